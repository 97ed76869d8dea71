//! Whether a scenario can run, before it does.

use forebay_policy::Policy;

use crate::error::Error;
use crate::room::{Memory, Room};
use crate::scenario::{Job, Scenario};

impl Scenario {
    /// The datasets: how many samples and bytes each has.
    pub(crate) fn check(&self) -> Result<Vec<(u32, u64)>, Error> {
        if self.jobs.is_empty() || self.nodes == 0 {
            return Err(Error::Empty);
        }
        let mut datasets: Vec<Option<&Job>> = Vec::new();
        for (number, job) in self.jobs.iter().enumerate() {
            job.check(number)?;
            let ranks = job.plan.world();
            if ranks % self.nodes != 0 {
                return Err(Error::Ranks {
                    ranks,
                    nodes: self.nodes,
                });
            }
            // Numbers of datasets are dense: one for each job at most.
            let dataset = job.dataset;
            let wrong = Err(Error::Dataset {
                job: number,
                dataset,
            });
            if dataset >= self.jobs.len() || !job.sizes.covers(job.plan.samples()) {
                return wrong;
            }
            if datasets.len() <= dataset {
                datasets.resize(dataset + 1, None);
            }
            let known = datasets[dataset].get_or_insert(job);
            if known.plan.samples() != job.plan.samples() || known.sizes != job.sizes {
                return wrong;
            }
        }
        let figures = |job: Option<&Job>| {
            job.map_or((0, 0), |job| {
                let samples = job.plan.samples();
                (samples, job.sizes.total(samples))
            })
        };
        let datasets: Vec<_> = datasets.into_iter().map(figures).collect();
        let samples: u64 = datasets
            .iter()
            .map(|&(samples, _)| u64::from(samples))
            .sum();
        if samples >= u64::from(u32::MAX) {
            return Err(Error::Samples);
        }
        Ok(datasets)
    }

    /// The room of a node with this policy; every sample fits in it.
    pub(crate) fn room(&self, policy: &dyn Policy) -> Result<Room, Error> {
        let bytes = match self.memory {
            Memory::Engine { budget, .. } => budget,
            Memory::Exact { kept, transit } => kept.saturating_add(transit),
        };
        let room = self.memory.room(policy.overhead());
        let room = room.filter(|room| room.blocks() > 0);
        let room = room.ok_or(Error::Memory { bytes })?;
        let longest = self.jobs.iter().map(Job::longest).max().unwrap_or(0);
        if room.blocks_of(u64::from(longest)) > room.blocks() {
            return Err(Error::Sample {
                len: longest,
                capacity: room.capacity(),
            });
        }
        Ok(room)
    }
}

impl Job {
    fn check(&self, job: usize) -> Result<(), Error> {
        let loading = &self.loading;
        let wrong = |what| Err(Error::Setting { job, what });
        if !(self.step >= 0.0 && self.step.is_finite()) {
            return wrong("a step takes a time that is no time");
        }
        if !(loading.prepare >= 0.0 && loading.prepare.is_finite()) {
            return wrong("preparing takes a time that is no time");
        }
        if loading.threads == 0 || loading.requests == Some(0) {
            return wrong("nobody loads: it needs a thread, and a request if it has requests");
        }
        if loading.depth == 0 || loading.run == 0 || loading.run_bytes == 0 {
            return wrong("depth, run and run_bytes must not be 0");
        }
        Ok(())
    }

    fn longest(&self) -> u32 {
        let samples = 0..self.plan.samples();
        match &self.sizes {
            crate::Sizes::Equal(len) => *len,
            sizes => samples.map(|sample| sizes.of(sample)).max().unwrap_or(0),
        }
    }
}
