//! A job: one user's sequence of batches on one dataset, or on a view of several.

mod handing_over;
mod next_uses;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_balance::Means;
use forebay_origin::View;

use crate::batch::Batch;
use crate::cache_form::{CacheForm, FormChoice};
use crate::crew::{Employer, Kind, Orders, Report, Totals};
use crate::engine::Plant;
use crate::lane::Lane;
use crate::lending::{Lending, LendingSettings};
use crate::logs::Logs;
use crate::preparation::{Preparation, PreparationSettings};
use crate::quarantine::Quarantine;
use crate::rows::Rows;
use crate::sequence::{Draws, Sequence};
use crate::slab::SlabPool;
use crate::stats::{Counters, JobStats};
use crate::window::{Head, Window};
use crate::{Error, fetch};

/// What to do about a sample that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The batch fails with the sample's name and the cause.
    Raise,
    /// Another sample stands in, the same one everywhere.
    Replace,
}

/// How a job is set up.
#[derive(Debug, Clone)]
pub struct JobSettings {
    /// Batches that are filled or full ahead of the user.
    pub depth: usize,
    /// What to do about a bad sample.
    pub on_error: OnError,
    /// With `Replace`: how many bad samples are borne.
    pub max_bad_samples: usize,
    /// Which of the plan's ranks it is, if there are several, for the figures.
    pub rank: Option<u32>,
    /// What is made of the samples; `None` hands them over as they are.
    pub preparation: Option<PreparationSettings>,
    /// How images are lent, decoded, to whoever goes on with them; goes without a preparation.
    pub lending: Option<LendingSettings>,
    /// Whether samples that stay as they are may have gaps between them in their batch: then it
    /// need not be copied while memory fills.
    pub gaps: bool,
}

/// The epoch after the one that begins.
#[derive(Debug, Clone)]
pub struct Coming {
    /// Names its order.
    pub tag: String,
    /// Its batches.
    pub sequence: Sequence,
    /// What its random parameters are drawn from.
    pub draws: Draws,
}

/// The answer of [`Job::next`].
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Batch),
    /// The epoch is over.
    End,
    /// Not ready within the time given.
    Wait,
}

/// What the crew, the network tasks and the user's handle share.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Itself, for tasks that outlive the call that starts them.
    pub(crate) me: Weak<Desk>,
    pub(crate) plant: Arc<Plant>,
    /// Its sample ids are positions of the user's dataset.
    pub(crate) dataset: Arc<View>,
    pub(crate) on_error: OnError,
    pub(crate) quarantine: Quarantine,
    pub(crate) counters: Counters,
    pub(crate) preparation: Option<Preparation>,
    pub(crate) logs: Logs,
    pub(crate) lending: Option<Lending>,
    /// Requests in flight.
    pub(crate) lane: Lane,
    rank: Option<u32>,
    pool: SlabPool,
    window: Mutex<Window>,
    complete: Condvar,
}

impl Desk {
    pub(crate) fn window(&self) -> MutexGuard<'_, Window> {
        // A thread that broke while it had it has closed the board: nobody goes on with it.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head of the queue may be complete.
    pub(crate) fn tell_user(&self) {
        self.complete.notify_all();
    }

    /// What found no room in the tier is asked for again: there may be some now.
    fn pump_again(&self) {
        if !self.dataset.is_local()
            && self.window().has_postponed()
            && let Some(desk) = self.me.upgrade()
        {
            fetch::pump(&desk);
        }
    }

    /// The tier's key of a sample.
    pub(crate) fn key(&self, sample: u32) -> u64 {
        key(&self.dataset, sample)
    }

    /// Whether the image that a sample decodes to is in memory.
    pub(crate) fn has_image(&self, sample: u32) -> bool {
        (self.preparation.is_some() || self.lending.is_some())
            && self.plant.tier.contains(self.decoded_key(sample))
    }

    /// The tier's key of the image that a sample decodes to.
    pub(crate) fn decoded_key(&self, sample: u32) -> u64 {
        // Jobs that share the tier share images only if they would decode them alike. Lent ones
        // have their head with them.
        let kind = match &self.preparation {
            Some(preparation) => u64::from(preparation.recipe.decoding()),
            None => 4,
        };
        // Datasets are numbered from 0 as they are opened: the highest bits are free.
        self.key(sample) | 1 << 63 | kind << 60
    }
}

/// The tier's key of a sample: whatever view it is seen in, it is the same.
pub(crate) fn key(view: &View, sample: u32) -> u64 {
    let (dataset, id) = view.sample(sample);
    u64::from(dataset.number()) << 32 | u64::from(id)
}

impl Desk {
    /// Whether samples are made into something by a step of their own.
    fn prepares(&self) -> bool {
        self.preparation.is_some() || self.lending.is_some()
    }
}

impl Employer for Desk {
    fn work(&self, kind: Kind) -> bool {
        let kind = match kind {
            // Where nothing is prepared, to load is to do it all.
            Kind::Load if !self.prepares() => Kind::Any,
            kind => kind,
        };
        let (placing, fetch) = {
            let mut window = self.window();
            let placing = (kind != Kind::Load).then(|| window.take_placing());
            match placing.flatten() {
                Some(placing) => (Some(placing), None),
                None if self.dataset.is_local() && kind != Kind::Prepare => {
                    (None, window.take_fetch())
                }
                None => (None, None),
            }
        };
        match (placing, fetch) {
            (Some(placing), _) => fetch::place(self, placing),
            (None, Some(fetch)) => fetch::local(self, fetch, kind),
            (None, None) => {
                self.pump_again();
                return false;
            }
        }
        true
    }

    fn is_short(&self) -> bool {
        // One who holds the lock is at work for it: others may look elsewhere first.
        let window = self.window.try_lock();
        window.is_ok_and(|window| !window.is_ready())
    }

    fn report(&self) -> Option<Report> {
        let (is_used, waiting) = {
            let window = self.window();
            (window.is_used(), window.waiting())
        };
        is_used.then(|| Report {
            rank: self.rank,
            means: if self.dataset.is_local() {
                Means::Threads
            } else {
                Means::Requests
            },
            most_requests: self.dataset.requests_in_flight(),
            prepared: self.prepares(),
            waiting,
            totals: Totals {
                log_reading: self.logs.busy(),
                ..self.counters.totals()
            },
        })
    }

    fn is_sharer(&self) -> bool {
        self.window().is_sharer()
    }

    fn share(&self, sharers: usize) {
        self.window().share_readahead(sharers);
    }

    fn rank_on(&self, dataset: u32) -> Option<u32> {
        self.rank.filter(|_| self.dataset.number() == dataset)
    }

    fn obey(&self, orders: Orders) {
        if !self.dataset.is_local() {
            self.lane.widen(orders.requests);
        }
        self.share(orders.queues.max(self.plant.board.sharers()));
    }
}

/// See the module's text. Dropping it gives up what was under way.
#[derive(Debug)]
pub struct Job {
    desk: Arc<Desk>,
    asked: Mutex<Option<(Instant, bool)>>,
    /// When the user got the last batch of this epoch.
    given: Mutex<Option<Instant>>,
    /// A batch that could not be handed over.
    returned: Mutex<Option<Batch>>,
}

impl Job {
    pub(crate) fn new(
        plant: Arc<Plant>,
        dataset: Arc<View>,
        logs: Logs,
        settings: JobSettings,
    ) -> Self {
        let pool = SlabPool::new(settings.depth + 1);
        let arrives = !dataset.is_local() || !logs.is_empty();
        let preparation = settings.preparation.map(|settings| Preparation {
            recipe: settings.recipe,
            form: FormChoice::new(settings.cache_form),
        });
        let lending = settings.lending.map(Lending::new);
        let mut window = Window::new(
            dataset.clone(),
            pool.clone(),
            settings.depth,
            plant.readahead,
            preparation.as_ref().map(Preparation::shape),
            arrives,
        );
        if lending.is_some() {
            window.expect_images();
        }
        if settings.gaps && preparation.is_none() && lending.is_none() && !arrives {
            window.set_rows(Rows::for_all_of(&plant, &dataset));
        }
        let desk = Arc::new_cyclic(|me| Desk {
            me: me.clone(),
            dataset,
            on_error: settings.on_error,
            quarantine: Quarantine::new(settings.max_bad_samples),
            counters: Counters::default(),
            preparation,
            logs,
            lending,
            lane: Lane::default(),
            rank: settings.rank,
            pool,
            window: Mutex::new(window),
            complete: Condvar::new(),
            plant,
        });
        let employer: Arc<dyn Employer> = desk.clone();
        desk.plant.board.post(Arc::downgrade(&employer));
        Self {
            desk,
            asked: Mutex::default(),
            given: Mutex::default(),
            returned: Mutex::default(),
        }
    }

    /// Begins an epoch. `tag` names its order: if it is the one foreseen, what was
    /// fetched ahead is used; otherwise it costs nothing but the prefetch.
    pub fn begin(&self, tag: &str, sequence: Sequence, draws: Draws) -> Result<(), Error> {
        self.begin_with_forecast(tag, sequence, draws, None)
    }

    /// The same with an order that may turn out to be the next one. It is only a hint to a disk
    /// cache that is written in the order of the next epoch; nothing is fetched for it.
    pub fn begin_with_forecast(
        &self,
        tag: &str,
        sequence: Sequence,
        draws: Draws,
        forecast: Option<&Sequence>,
    ) -> Result<(), Error> {
        self.check(&sequence)?;
        let (logs, view) = (&self.desk.logs, &self.desk.dataset);
        logs.begin(view, &sequence);
        if let Some(forecast) = forecast {
            self.check(forecast)?;
            logs.forecast(view, forecast);
        }
        self.expect_epoch();
        let mut window = self.desk.window();
        window.set_clock(self.desk.plant.clock.load(Ordering::Relaxed));
        let foreseen = window.begin(tag, sequence, draws);
        drop(window);
        self.begun(foreseen);
        Ok(())
    }

    /// Begins an epoch and tells which one follows it. Next uses are computed before anybody
    /// fetches for it, so that even its first samples have theirs.
    pub fn begin_before(
        &self,
        tag: &str,
        sequence: Sequence,
        draws: Draws,
        coming: Coming,
    ) -> Result<(), Error> {
        self.check(&sequence)?;
        self.check(&coming.sequence)?;
        let (logs, view) = (&self.desk.logs, &self.desk.dataset);
        logs.begin(view, &sequence);
        logs.foresee(view, &coming.sequence);
        let uses = self.next_uses(sequence.clone(), Some(coming.sequence.clone()));
        let uses = uses.map(|compute| compute());
        self.expect_epoch();
        let mut window = self.desk.window();
        window.set_clock(self.desk.plant.clock.load(Ordering::Relaxed));
        let foreseen = window.begin(tag, sequence, draws);
        window.foresee(&coming.tag, coming.sequence, coming.draws);
        if let (Some(uses), Some((_, _, known))) = (uses, window.horizon()) {
            let _ = known.set(uses);
        }
        drop(window);
        self.begun(foreseen);
        Ok(())
    }

    /// Others give up the part of the readahead that is this job's from now on.
    fn expect_epoch(&self) {
        self.desk.window().expect_epoch();
        self.desk.plant.board.divide_readahead();
    }

    /// Whether its disk cache is written in the order of the next epoch. What is read before that
    /// order is told is not written.
    pub fn wants_coming_order(&self) -> bool {
        self.desk.logs.wants_orders(&self.desk.dataset)
    }

    fn begun(&self, foreseen: bool) {
        if foreseen {
            Counters::add(&self.desk.counters.foreseen, 1);
        }
        self.forget_user();
        self.desk.plant.board.change();
        self.stir();
    }

    /// Tells which epoch follows the current one, as far as is known.
    pub fn foresee(&self, tag: &str, sequence: Sequence, draws: Draws) -> Result<(), Error> {
        self.check(&sequence)?;
        self.desk.logs.foresee(&self.desk.dataset, &sequence);
        self.desk.window().foresee(tag, sequence, draws);
        self.compute_next_uses();
        self.stir();
        Ok(())
    }

    /// Hands a batch over to a listed sequence.
    pub fn push(&self, ids: Vec<u32>) -> Result<(), Error> {
        self.check_ids(&ids)?;
        self.desk.window().push(ids);
        self.stir();
        Ok(())
    }

    /// No more batches are handed over in this epoch.
    pub fn close(&self) {
        self.desk.window().close();
        self.stir();
    }

    /// Gives up the epoch: what was fetched for it is let go.
    pub fn cancel(&self) {
        self.desk.window().reset();
        self.forget_user();
        self.desk.plant.board.change();
    }

    fn forget_user(&self) {
        *self.asked.lock().expect("the job's lock") = None;
        *self.given.lock().expect("the job's lock") = None;
        *self.returned() = None;
    }

    /// The next batch, waiting at most `timeout` for it.
    pub fn next(&self, timeout: Duration) -> Result<Next, Error> {
        if let Some(batch) = self.returned().take() {
            return Ok(Next::Batch(batch));
        }
        let desk = &self.desk;
        let started = Instant::now();
        let mut window = desk.window();
        let (asked, ready) = self.asked(started, &window);
        let head = loop {
            let ending = desk.plant.board.ending();
            if let Some(broken @ Error::Broken { .. }) = ending {
                return Err(broken); // its windows may be in any state
            }
            match (window.deliver(), ending) {
                (Head::Wait, Some(ending)) => return Err(ending),
                (Head::Wait, None) => {
                    let left = timeout.saturating_sub(started.elapsed());
                    if left.is_zero() {
                        return Ok(Next::Wait);
                    }
                    window = desk
                        .complete
                        .wait_timeout(window, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
                (head, _) => break head,
            }
        };
        drop(window);
        *self.asked.lock().expect("the job's lock") = None;
        let now = Instant::now();
        Counters::add(&desk.counters.waited_nanos, (now - asked).as_nanos() as u64);
        *self.given.lock().expect("the job's lock") = Some(now);
        match head {
            Head::End => {
                desk.logs.seal();
                Ok(Next::End)
            }
            Head::Failed(error) => {
                // Its going has opened another batch, which somebody has to fill.
                self.stir();
                Err(error)
            }
            Head::Wait => Ok(Next::Wait),
            Head::Complete(complete) => {
                desk.plant.clock.fetch_max(complete.tick, Ordering::Relaxed);
                desk.plant.tier.advance(complete.tick);
                desk.logs.consumed(&desk.dataset, &complete.layout.ids);
                Counters::add(&desk.counters.batches, 1);
                Counters::add(&desk.counters.samples, complete.layout.ids.len() as u64);
                desk.plant.board.edge();
                self.stir();
                let batch = Batch::assemble(
                    complete.layout,
                    complete.slab,
                    &complete.stand_ins,
                    &desk.pool,
                )?;
                let batch = batch.with_lent(complete.lent);
                let samples = batch.len() as u64;
                Counters::add(&desk.counters.bytes, batch.bytes());
                Counters::add(&desk.counters.replaced, complete.stand_ins.len() as u64);
                Counters::add(&desk.counters.ready, if ready { samples } else { 0 });
                Ok(Next::Batch(batch))
            }
        }
    }

    /// When the user first asked for the coming batch, and whether it was there.
    fn asked(&self, now: Instant, window: &Window) -> (Instant, bool) {
        let mut asked = self.asked.lock().expect("the job's lock");
        *asked.get_or_insert_with(|| {
            if let Some(given) = self.given.lock().expect("the job's lock").take() {
                let step = now.saturating_duration_since(given);
                Counters::add(&self.desk.counters.stepping, step.as_nanos() as u64);
                Counters::add(&self.desk.counters.steps, 1);
            }
            (now, window.is_ready())
        })
    }

    /// Takes a sample into quarantine that only the user's side finds to be bad; an
    /// error once there are too many.
    pub fn quarantine(&self, sample: u32, reason: String) -> Result<(), Error> {
        Counters::add(&self.desk.counters.replaced, 1);
        let name = self.desk.dataset.name(sample);
        self.desk.quarantine.note(sample, name, reason)
    }

    /// What holds all jobs of the engine up, if that has changed since it was last said.
    pub fn take_news(&self) -> Option<String> {
        self.desk.plant.board.take_news()
    }

    /// Batches that the user still refers to.
    pub fn batches_out(&self) -> usize {
        self.desk.window().with_user()
    }

    /// Figures so far.
    pub fn stats(&self) -> JobStats {
        JobStats {
            slabs_out: self.desk.pool.out(),
            slabs_made: self.desk.pool.made(),
            slab_peak_bytes: self.desk.pool.peak_bytes(),
            bad_samples: self.desk.quarantine.list(),
            cache_form: self.cache_form(),
            ..self.desk.counters.snapshot()
        }
    }

    /// The form in which images stay in memory, once it is chosen.
    fn cache_form(&self) -> Option<CacheForm> {
        let desk = &self.desk;
        let prepared = desk
            .preparation
            .as_ref()
            .map(|preparation| &preparation.form);
        let lent = desk.lending.as_ref().map(|lending| &lending.form);
        prepared.or(lent)?.chosen()
    }

    /// Sets crew and network to work on what is to be fetched now.
    fn stir(&self) {
        if !self.desk.dataset.is_local() {
            fetch::pump(&self.desk);
        }
        self.desk.plant.board.wake();
    }

    fn check(&self, sequence: &Sequence) -> Result<(), Error> {
        let samples = self.desk.dataset.len();
        match sequence {
            // A plan's ids are below its own number of samples.
            Sequence::Planned { epoch, .. } if epoch.samples() > samples => {
                Err(Error::OutOfRange {
                    sample: epoch.samples() - 1,
                    samples,
                })
            }
            Sequence::Planned { .. } => Ok(()),
            Sequence::Listed { batches, .. } => {
                batches.iter().try_for_each(|ids| self.check_ids(ids))
            }
        }
    }

    fn check_ids(&self, ids: &[u32]) -> Result<(), Error> {
        let samples = self.desk.dataset.len();
        match ids.iter().find(|&&id| id >= samples) {
            Some(&sample) => Err(Error::OutOfRange { sample, samples }),
            None => Ok(()),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.cancel();
    }
}
