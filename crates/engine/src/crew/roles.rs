//! What each thread is to do first.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_balance::{Means, Split};

use super::nodes::Nodes;

/// A split that stays as it is: "the crew is off". A thread does its own kind of work and no
/// other, and each queue has an equal share of those that load, and of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedSplit {
    /// Threads that load.
    pub load: usize,
    /// Threads that prepare.
    pub prepare: usize,
}

/// What a thread does first. When there is nothing of it to do, it does what there is, unless the
/// split is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Places what has come, for whichever queue waits for it.
    Prepare,
    /// Loads for the queue of that number.
    Load(u64),
    /// Nothing: more threads would only stand in each other's way.
    Rest,
}

impl Role {
    fn pack(self) -> u64 {
        match self {
            Role::Prepare => 0,
            Role::Rest => 1,
            Role::Load(queue) => queue + 2,
        }
    }

    fn unpack(packed: u64) -> Self {
        match packed {
            0 => Role::Prepare,
            1 => Role::Rest,
            queue => Role::Load(queue - 2),
        }
    }
}

/// The roles of all threads there may be.
#[derive(Debug)]
pub(super) struct Roles(Vec<AtomicU64>);

impl Roles {
    pub(super) fn new(most: usize) -> Self {
        Self((0..most).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn of(&self, thread: usize) -> Role {
        Role::unpack(self.0[thread].load(Ordering::Relaxed))
    }

    fn set(&self, thread: usize, role: Role) {
        self.0[thread].store(role.pack(), Ordering::Relaxed);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives out roles as `split` says; `queues`: number and means of each. Threads that have a
    /// role that is wanted keep it; the others take what is left, near their queue if they can.
    pub(super) fn assign(&self, split: &Split, queues: &[(u64, Means)], nodes: &Nodes) {
        let mut wanted: Vec<(Role, usize)> = vec![(Role::Prepare, split.prepare)];
        for (&(queue, means), &load) in queues.iter().zip(&split.load) {
            if means == Means::Threads {
                wanted.push((Role::Load(queue), load));
            }
        }
        let mut free = Vec::new();
        for thread in 0..self.len() {
            let role = self.of(thread);
            let near = match role {
                Role::Load(queue) => nodes.is_near(thread, queue),
                Role::Prepare | Role::Rest => true,
            };
            match wanted
                .iter_mut()
                .find(|(want, left)| *want == role && *left > 0)
            {
                Some((_, left)) if near => *left -= 1,
                _ => free.push(thread),
            }
        }
        for (role, left) in wanted {
            for _ in 0..left {
                let near = free.iter().position(|&thread| match role {
                    Role::Load(queue) => nodes.is_near(thread, queue),
                    Role::Prepare | Role::Rest => true,
                });
                if free.is_empty() {
                    return;
                }
                let thread = free.remove(near.unwrap_or(0));
                self.set(thread, role);
            }
        }
        for thread in free {
            self.set(thread, Role::Rest);
        }
    }

    /// How many threads there must be for all roles that were given out to be taken.
    pub(super) fn in_use(&self) -> usize {
        let last = (0..self.len()).rfind(|&thread| self.of(thread) != Role::Rest);
        last.map_or(0, |last| last + 1)
    }

    /// How many have a role, by what it is: prepare, and load for `queue`.
    pub(super) fn count(&self, queue: Option<u64>) -> (usize, usize) {
        let roles = || (0..self.len()).map(|thread| self.of(thread));
        let ours = |role: &Role| Some(*role) == queue.map(Role::Load);
        (
            roles().filter(|role| *role == Role::Prepare).count(),
            roles().filter(ours).count(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(prepare: usize, load: &[usize]) -> Split {
        Split {
            prepare,
            load: load.to_vec(),
        }
    }

    #[test]
    fn roles_follow_the_split_and_move_as_little_as_they_can() {
        let roles = Roles::new(6);
        let nodes = Nodes::one();
        let queues = [(7, Means::Threads), (9, Means::Threads)];
        roles.assign(&split(2, &[3, 1]), &queues, &nodes);
        assert_eq!(
            (roles.count(Some(7)), roles.count(Some(9))),
            ((2, 3), (2, 1))
        );
        let before: Vec<_> = (0..6).map(|thread| roles.of(thread)).collect();
        roles.assign(&split(2, &[2, 2]), &queues, &nodes);
        let moved = (0..6).filter(|&t| roles.of(t) != before[t]).count();
        assert_eq!(moved, 1);
    }

    #[test]
    fn those_that_nobody_needs_rest() {
        let roles = Roles::new(4);
        let queues = [(0, Means::Requests)];
        roles.assign(&split(1, &[64]), &queues, &Nodes::one());
        assert_eq!(roles.of(0), Role::Prepare);
        assert!((1..4).all(|thread| roles.of(thread) == Role::Rest));
    }
}
