//! The book of a memory tier: who holds which sample, and what a lookup comes to. All of it
//! under the tier's lock.
//!
//! A sample is *in transit* from its fill to the moment its last holder lets go. Then the policy
//! keeps it or it is dropped (`keep`). A kept one that is looked up is held again but stays kept:
//! nobody evicts it, and when it is let go the policy hears of a hit.
//!
//! ```text
//!   lookup -> in transit, held --let go--> kept --lookup--> kept, held --let go--> kept
//!                                \--refused--> gone <--evicted--/
//! ```
//!
//! O(1) a call beyond the policy and the blocks of a new sample.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_policy::{Candidate, Key, Next, Policy, Slot};

use super::arena::{Arena, Free, Reader, Span};
use super::stats::Stats;
use super::table::{State, Table};

/// Called when a fill has ended.
pub(super) type Done = Box<dyn FnOnce() + Send>;
/// Called when there may be room again.
pub(super) type OnRoom = Arc<dyn Fn() + Send + Sync>;

pub(super) struct Ledger {
    pub(super) arena: Arc<Arena>,
    pub(super) free: Free,
    pub(super) table: Table,
    pub(super) policy: Box<dyn Policy>,
    /// Blocks that kept samples may take.
    pub(super) limit: u64,
    /// Blocks that kept samples take, held or not.
    pub(super) kept: u64,
    /// Blocks that held samples take, kept or not.
    pub(super) held: u64,
    /// Of these, blocks that lie in rows.
    pub(super) away: u64,
    /// The engine has ended: nothing is kept any more.
    pub(super) closed: bool,
    /// Somebody was told that the tier is full and nobody has let go since.
    pub(super) starved: bool,
    /// Where the last search for a forced victim ended.
    pub(super) hand: u32,
    pub(super) on_room: Option<OnRoom>,
    pub(super) awaiting: HashMap<u32, Vec<Done>>,
    pub(super) expired: Vec<Slot>,
    pub(super) stats: Stats,
}

/// What to do once the lock is let go.
#[must_use]
#[derive(Default)]
pub(super) struct Afterwards {
    room: Option<OnRoom>,
    done: Vec<Done>,
    /// Threads wait for a fill that has ended.
    pub(super) wake: bool,
}

impl Afterwards {
    pub(super) fn run(self) {
        for done in self.done {
            done();
        }
        if let Some(room) = self.room {
            room();
        }
    }
}

/// What a lookup came to.
pub(super) enum Found {
    Ready(u32, Reader),
    Filling(u32),
    New(u32, Span),
    Full,
}

impl Ledger {
    pub(super) fn new(
        arena: Arc<Arena>,
        free: Free,
        policy: Box<dyn Policy>,
        reserve: u64,
        budget: u64,
    ) -> Ledger {
        let blocks = u64::from(arena.blocks());
        Ledger {
            limit: blocks.saturating_sub(reserve.div_ceil(arena.block())),
            table: Table::new(arena.blocks()),
            stats: Stats {
                budget,
                capacity: blocks * arena.block(),
                ..Stats::default()
            },
            arena,
            free,
            policy,
            kept: 0,
            held: 0,
            away: 0,
            closed: false,
            starved: false,
            hand: 0,
            on_room: None,
            awaiting: HashMap::new(),
            expired: Vec::new(),
        }
    }

    pub(super) fn lookup(&mut self, key: Key, len: u64, next: Next) -> Found {
        if let Some(slot) = self.table.find(key) {
            let entry = self.table.entry_mut(slot);
            if entry.len() == len {
                entry.next = next;
                return self.join(slot);
            }
            // Another length: the sample has changed and what is here is of no use.
            self.forget_slot(slot);
        }
        let candidate = Candidate {
            key,
            size: self.arena.blocks_of(len) * self.arena.block(),
            next,
        };
        let span = if self.make_room(candidate) {
            self.arena.take(&mut self.free, len)
        } else {
            None
        };
        let Some(span) = span else {
            self.starved = true;
            self.stats.full += 1;
            return Found::Full;
        };
        self.held += self.arena.blocks_of(len);
        self.stats.misses += 1;
        self.stats.miss_bytes += len;
        self.stats.peak_used = self.stats.peak_used.max(self.used());
        Found::New(self.table.insert(key, len, next), span)
    }

    /// The sample if its bytes are here.
    pub(super) fn find(&mut self, key: Key, next: Next) -> Option<(u32, Reader)> {
        let slot = self.table.find(key)?;
        let entry = self.table.entry_mut(slot);
        if !matches!(entry.state, State::Ready(_)) {
            return None;
        }
        entry.next = next;
        match self.join(slot) {
            Found::Ready(slot, reader) => Some((slot, reader)),
            _ => None,
        }
    }

    fn join(&mut self, slot: u32) -> Found {
        let reader = self.hold(slot);
        let entry = self.table.entry_mut(slot);
        match reader {
            Some(reader) => {
                self.stats.hits += 1;
                self.stats.hit_bytes += entry.len();
                Found::Ready(slot, reader)
            }
            None if matches!(entry.state, State::Away(_)) => {
                // Whoever has it may have it for long: nobody waits for that.
                self.release(slot);
                self.starved = true;
                self.stats.full += 1;
                Found::Full
            }
            None => {
                entry.awaited = true;
                self.stats.joined += 1;
                Found::Filling(slot)
            }
        }
    }

    /// One more holder; the bytes if they are there.
    pub(super) fn hold(&mut self, slot: u32) -> Option<Reader> {
        let entry = self.table.entry_mut(slot);
        if entry.holders == 0 {
            self.held += self.arena.blocks_of(entry.len());
        }
        entry.holders += 1;
        match &entry.state {
            State::Ready(reader) => Some(self.arena.again(reader)),
            _ => None,
        }
    }

    /// One holder less; its reader must have been released.
    pub(super) fn let_go(&mut self, slot: u32) -> Afterwards {
        match self.release(slot) {
            true => self.room(),
            false => Afterwards::default(),
        }
    }

    /// The same, without a word to those who wait for room. True if it was the last holder.
    pub(super) fn release(&mut self, slot: u32) -> bool {
        let entry = self.table.entry_mut(slot);
        entry.holders -= 1;
        if entry.holders > 0 {
            return false;
        }
        self.held -= self.arena.blocks_of(entry.len());
        self.settle(slot);
        true
    }

    /// The fill is complete: the table has the bytes, the filler holds on to them.
    pub(super) fn commit(&mut self, slot: u32, span: Span) -> (Reader, Afterwards) {
        let table_reader = self.arena.share(span);
        let reader = self.arena.again(&table_reader);
        self.table.entry_mut(slot).state = State::Ready(table_reader);
        (reader, self.fill_ended(slot))
    }

    /// The fill was given up: its flights see another generation.
    pub(super) fn abort(&mut self, slot: u32, span: Span) -> Afterwards {
        self.stats.aborted += 1;
        self.held -= self.arena.blocks_of(self.table.entry(slot).len());
        let mut after = self.fill_ended(slot);
        self.table.vacate(slot);
        self.arena.give(&mut self.free, span);
        after.room = self.room().room;
        after
    }

    fn fill_ended(&mut self, slot: u32) -> Afterwards {
        if !std::mem::take(&mut self.table.entry_mut(slot).awaited) {
            return Afterwards::default();
        }
        let done = self.awaiting.remove(&slot).unwrap_or_default();
        Afterwards {
            room: None,
            done,
            wake: true,
        }
    }

    /// Something was let go: whoever found the tier full may look again.
    pub(super) fn room(&mut self) -> Afterwards {
        let mut after = Afterwards::default();
        if std::mem::take(&mut self.starved) {
            after.room = self.on_room.clone();
        }
        after
    }

    pub(super) fn set_on_room(&mut self, on_room: OnRoom) {
        self.on_room = Some(on_room);
    }

    pub(super) fn set_next(&mut self, slot: u32, next: Next) {
        self.table.entry_mut(slot).next = next;
    }

    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.table.entry(slot).generation
    }

    /// Whether this very fill goes on.
    pub(super) fn is_filling(&self, slot: u32, generation: u32) -> bool {
        let entry = self.table.entry(slot);
        entry.generation == generation && matches!(entry.state, State::Filling(_))
    }

    pub(super) fn when_filled(&mut self, slot: u32, done: Done) {
        self.awaiting.entry(slot).or_default().push(done);
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.table
            .find(key)
            .is_some_and(|slot| matches!(self.table.entry(slot).state, State::Ready(_)))
    }

    pub(super) fn used(&self) -> u64 {
        self.stats.capacity - self.arena.free_blocks(&self.free) * self.arena.block()
    }

    pub(super) fn stats(&self) -> Stats {
        let used = self.used();
        let held_bytes = self.held * self.arena.block();
        Stats {
            used,
            held_bytes,
            kept_bytes: used - held_bytes,
            entries: u64::from(self.table.len()),
            ..self.stats
        }
    }
}
