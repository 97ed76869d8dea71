use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use forebay_origin::{Dataset, DatasetSpec, Layout};
use futures_util::FutureExt;

use super::*;
use crate::{Engine, EngineSettings};

const BLOCK: u64 = 4096;
const LONG: Duration = Duration::from_secs(60);

/// A hundred files of a block each.
fn dataset(root: &Path) -> Arc<Dataset> {
    let class = root.join("data/a");
    std::fs::create_dir_all(&class).unwrap();
    for name in 0..100 {
        std::fs::write(class.join(name.to_string()), [0; 100]).unwrap();
    }
    let layout = Layout::ClassFolders {
        extensions: None,
        allow_empty: false,
    };
    let mut spec = DatasetSpec::new(root.join("data").to_str().unwrap(), layout);
    spec.index_dir = Some(root.join("index"));
    Arc::new(Dataset::open(&spec, &()).unwrap())
}

fn engine(readahead: u64) -> Engine {
    Engine::new(EngineSettings {
        memory: 1 << 20,
        readahead,
        policy: forebay_cache::policy_by_name("none", Default::default()).unwrap(),
        disk: None,
        threads: 1,
        split: None,
        shared: false,
    })
    .unwrap()
}

fn job(engine: &Engine, dataset: &Arc<Dataset>) -> Job {
    let settings = JobSettings {
        depth: 1,
        on_error: OnError::Raise,
        max_bad_samples: 0,
        rank: None,
        preparation: None,
        lending: None,
        gaps: false,
    };
    engine.job(dataset.clone(), settings).unwrap()
}

fn begin(job: &Job) {
    let sequence = Sequence::Listed {
        batches: (0..100).map(|id| vec![id]).collect(),
        closed: true,
    };
    job.begin("listed", sequence, Draws::default()).unwrap();
}

/// One piece of work: it tells that it has begun, and lasts until the other channel is closed.
struct Busy(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl Employer for Busy {
    fn work(&self, _kind: Kind) -> bool {
        let Some((begun, over)) = self.0.lock().unwrap().take() else {
            return false;
        };
        begun.send(()).unwrap();
        over.recv().unwrap_err();
        true
    }
}

#[test]
fn a_job_that_begins_first_leaves_the_others_their_part_of_the_readahead() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = dataset(dir.path());
    let engine = engine(16 * BLOCK);
    let [first, _second] = [(); 2].map(|()| job(&engine, &dataset));
    // The pilot would divide it as well, but later: its only thread is busy.
    let ((begins, begun), (_over, lasts)) = (channel(), channel());
    let busy: Arc<dyn Employer> = Arc::new(Busy(Mutex::new(Some((begins, lasts)))));
    let board = &first.desk.plant.board;
    board.post(Arc::downgrade(&busy));
    board.wake();
    begun.recv().unwrap();
    begin(&first);
    let mut window = first.desk.window();
    while window.take_fetch().is_some() {}
    assert_eq!(window.ahead(), 8 * BLOCK);
}

#[test]
fn a_batch_whose_slab_cannot_be_mapped_fails_and_the_readahead_is_whole_again() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = dataset(dir.path());
    let engine = engine(4 * BLOCK);
    let job = job(&engine, &dataset);
    job.desk.pool.refuse(usize::MAX);
    begin(&job);
    for _ in 0..20 {
        // Its sample is fetched all the same.
        while job.desk.window().ahead() == 0 {
            std::thread::yield_now();
        }
        let error = job.next(LONG).unwrap_err();
        assert!(error.to_string().contains("mapping memory"), "{error}");
    }
    job.desk.pool.refuse(0);
    let mut batches = 0;
    loop {
        match job.next(LONG) {
            Ok(Next::Batch(_)) => batches += 1,
            Ok(Next::End) => break,
            Ok(Next::Wait) => panic!("no batch within {LONG:?}"),
            // It was opened while there was no memory.
            Err(_) => assert_eq!(batches, 0),
        }
    }
    assert!(batches >= 79, "{batches}");
    assert_eq!(job.desk.window().ahead(), 0);
}

#[test]
fn a_panic_that_a_batch_waits_for_ends_the_wait_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = dataset(dir.path());
    let engine = engine(BLOCK);
    let job = job(&engine, &dataset);
    job.begin("listed", Sequence::listed(), Draws::default())
        .unwrap();
    assert!(matches!(job.next(Duration::ZERO), Ok(Next::Wait)));
    let board = job.desk.plant.board.clone();
    let task = fetch::guarded(board, async { panic!("a bug in a test") });
    task.now_or_never().expect("it never waits");
    let error = job.next(LONG).unwrap_err();
    assert!(error.to_string().contains("a bug in a test"), "{error}");
}
