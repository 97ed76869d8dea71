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

struct Bug;

impl Employer for Bug {
    fn work(&self, _kind: Kind) -> bool {
        panic!("a bug in a test");
    }
}

#[test]
fn a_thread_that_breaks_ends_the_crew_and_says_why() {
    let crew = crew(2);
    let employer: Arc<dyn Employer> = Arc::new(Bug);
    crew.board().post(Arc::downgrade(&employer));
    assert!(crew.board().ending().is_none());
    crew.board().wake();
    while !crew.board().is_closing() {
        std::thread::yield_now();
    }
    let why = crew.board().ending().map(|error| error.to_string());
    assert!(why.is_some_and(|why| why.contains("a bug in a test")));
}

#[test]
fn a_crew_without_work_ends_at_once() {
    let started = Instant::now();
    drop(crew(8));
    assert!(started.elapsed() < PATIENCE);
}
