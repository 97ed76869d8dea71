use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

struct Count(AtomicUsize, usize);

impl Employer for Count {
    fn work(&self, _kind: Kind) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) < self.1
    }
}

fn crew(threads: usize) -> Crew {
    let split = None;
    Crew::start(CrewSettings { threads, split }).unwrap()
}

#[test]
fn sleeping_threads_wake_for_new_work() {
    let crew = crew(2);
    for _ in 0..100 {
        let count = Arc::new(Count(AtomicUsize::new(0), 10));
        let employer: Arc<dyn Employer> = count.clone();
        crew.board().post(Arc::downgrade(&employer));
        crew.board().wake();
        while count.0.load(Ordering::SeqCst) < 10 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_crew_without_work_ends_at_once() {
    let started = Instant::now();
    drop(crew(8));
    assert!(started.elapsed() < PATIENCE);
}
