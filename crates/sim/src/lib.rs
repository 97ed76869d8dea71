//! The answer before the run: plans and policies replayed with a cost model.
//!
//! ```text
//!   Scenario: jobs (plan, sizes, step, loading) x nodes (memory, policy, log) x costs
//!        |
//!      run()   samples are looked up one by one; time passes for parcels of them
//!        |
//!     Report: by job, epoch and rank: hits, ready, waiting, bytes and requests by tier
//! ```
//!
//! Plans and policies are the very objects of production, and the memory tier's rules are the
//! cache's (a test walks both side by side). What is simplified is time: threads and requests of a
//! rank work in parcels, and a parcel's speed is what its tier gives at the concurrency that there
//! is when it starts. Pure: no I/O, no threads, no clock; the same scenario gives the same figures.
//!
//! [`optimum`] is the ceiling: what the best of all policies could hit on the same accesses.

mod arrive;
pub mod baselines;
mod check;
mod curve;
mod disk;
mod error;
mod events;
mod fetch;
pub mod figures;
mod future;
pub mod memory;
mod optimum;
pub mod papers;
mod parcel;
mod room;
mod scenario;
mod sizes;
mod window;
mod world;

pub use curve::{Access, Curve};
pub use error::Error;
pub use figures::{Figures, JobReport, Report};
pub use optimum::{Ceiling, Walk, optimum};
pub use room::{Memory, Room};
pub use scenario::{Costs, Job, Layout, Loading, Log, MakePolicy, Scenario};
pub use sizes::Sizes;

impl Scenario {
    /// Runs it to the end.
    pub fn run(&self) -> Result<Report, Error> {
        self.run_watched(&mut |_| true)
    }

    /// The same; `watch` hears now and then how many samples were fetched so far, and ends the run
    /// by saying no.
    pub fn run_watched(&self, watch: &mut dyn FnMut(u64) -> bool) -> Result<Report, Error> {
        world::World::new(self)?.run(watch)
    }

    /// How many samples will be fetched, but for what runs on after the last epoch.
    pub fn events(&self) -> u64 {
        let events = |job: &Job| {
            let epoch = u64::from(job.plan.samples());
            epoch * u64::from(job.epochs)
        };
        self.jobs.iter().map(events).sum()
    }
}
