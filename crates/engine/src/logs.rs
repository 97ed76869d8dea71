//! The logs of a job: one for each dataset of its view.
//!
//! A log knows the samples of its dataset by their ids there, so the positions of the view are
//! turned into those here.

use std::sync::Arc;

use forebay_cache::log::{Log, Order};
use forebay_origin::View;

use crate::disk::{LogReader, order};
use crate::sequence::Sequence;

/// By dataset of the view; `None` for one whose log cannot be opened.
#[derive(Debug, Default)]
pub(crate) struct Logs(Vec<Option<Arc<LogReader>>>);

impl Logs {
    pub(crate) fn new(readers: Vec<Option<Arc<LogReader>>>) -> Self {
        Self(readers)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The log of the sample at a position, and the sample's id in it.
    pub(crate) fn of(&self, view: &View, position: u32) -> Option<(&Arc<LogReader>, u32)> {
        if self.0.is_empty() {
            return None;
        }
        let (part, id) = view.part(position);
        Some((self.0.get(part)?.as_ref()?, id))
    }

    /// Those that there are, with the dataset that each is of.
    pub(crate) fn readers(&self) -> impl Iterator<Item = (usize, &Arc<LogReader>)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(part, reader)| Some((part, reader.as_ref()?)))
    }

    fn logs(&self) -> impl Iterator<Item = &Arc<Log>> {
        self.readers().map(|(_, reader)| reader.log())
    }

    /// Nanoseconds in which they were read.
    pub(crate) fn busy(&self) -> u64 {
        self.logs().map(|log| log.busy()).sum()
    }

    /// An epoch begins.
    pub(crate) fn begin(&self, view: &View, sequence: &Sequence) {
        for log in self.logs() {
            log.begin(wanted(log, view, sequence).as_ref());
        }
    }

    /// Which epoch comes after it.
    pub(crate) fn foresee(&self, view: &View, coming: &Sequence) {
        for log in self.logs() {
            if let Some(order) = wanted(log, view, coming) {
                log.foresee(&order);
            }
        }
    }

    /// Which epoch comes after it unless somebody else draws from its generator.
    pub(crate) fn forecast(&self, view: &View, coming: &Sequence) {
        for log in self.logs() {
            if let Some(order) = wanted(log, view, coming) {
                log.forecast(&order);
            }
        }
    }

    /// Whether one of them is written in the order of the coming epoch.
    pub(crate) fn wants_orders(&self, view: &View) -> bool {
        self.logs().any(|log| is_ordered(log, view))
    }

    /// The user has had these positions.
    pub(crate) fn consumed(&self, view: &View, positions: &[u32]) {
        match &self.0[..] {
            [] => {}
            [Some(reader)] if view.map().is_none() => reader.log().consumed(positions),
            _ => {
                for (part, reader) in self.readers() {
                    let samples = positions.iter().map(|&position| view.part(position));
                    let ids: Vec<u32> = samples
                        .filter_map(|(of, id)| (of == part).then_some(id))
                        .collect();
                    reader.log().consumed(&ids);
                }
            }
        }
    }

    /// The epoch is over.
    pub(crate) fn seal(&self) {
        self.logs().for_each(|log| log.seal());
    }
}

/// Whether a log is written in the order of epochs: that goes with a whole dataset only.
fn is_ordered(log: &Log, view: &View) -> bool {
    view.datasets().len() == 1 && view.map().is_none() && log.wants_orders()
}

/// The order of an epoch, if the log is written in it.
fn wanted(log: &Log, view: &View, sequence: &Sequence) -> Option<Order> {
    is_ordered(log, view).then(|| order(sequence)).flatten()
}
