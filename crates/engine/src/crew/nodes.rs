//! Which processors are near each other: on a machine with several NUMA nodes, the threads that
//! load for a queue stay on one of them.

use std::fs;
use std::path::Path;

/// The nodes that this process may use, each with its processors.
#[derive(Debug, Clone)]
pub(super) struct Nodes(Vec<Vec<usize>>);

impl Nodes {
    /// As this machine has them.
    pub(super) fn here() -> Self {
        Self::of(Path::new("/sys/devices/system/node"), &allowed())
    }

    /// All processors are near each other.
    #[cfg(test)]
    pub(super) fn one() -> Self {
        Self(Vec::new())
    }

    fn of(directory: &Path, allowed: &[usize]) -> Self {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut nodes: Vec<(usize, Vec<usize>)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let number = name.strip_prefix("node")?.parse().ok()?;
                let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
                let mut processors = processors(&list);
                processors.retain(|processor| allowed.contains(processor));
                (!processors.is_empty()).then_some((number, processors))
            })
            .collect();
        nodes.sort_unstable();
        if nodes.len() < 2 {
            nodes.clear();
        }
        Self(
            nodes
                .into_iter()
                .map(|(_, processors)| processors)
                .collect(),
        )
    }

    /// Whether a thread is on the node of a queue.
    pub(super) fn is_near(&self, thread: usize, queue: u64) -> bool {
        match self.0.len() as u64 {
            0 => true,
            nodes => thread as u64 % nodes == queue % nodes,
        }
    }

    /// Keeps the calling thread, the crew's `thread`-th, on its node.
    pub(super) fn stay(&self, thread: usize) {
        let Some(processors) = self.0.get(thread % self.0.len().max(1)) else {
            return;
        };
        // SAFETY: a local set of plain bits. If it fails the thread runs anywhere: only slower.
        unsafe {
            let mut set = std::mem::zeroed::<libc::cpu_set_t>();
            for &processor in processors {
                if processor < libc::CPU_SETSIZE as usize {
                    libc::CPU_SET(processor, &mut set);
                }
            }
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

/// The processors that this process may use.
fn allowed() -> Vec<usize> {
    // SAFETY: a local set of plain bits, read after the call has filled it.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&processor| libc::CPU_ISSET(processor, &set))
            .collect()
    }
}

/// A list as the kernel writes it: `0-3,8,10-11`.
fn processors(list: &str) -> Vec<usize> {
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(nodes: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (number, list) in nodes.iter().enumerate() {
            let node = directory.path().join(format!("node{number}"));
            fs::create_dir(&node).unwrap();
            fs::write(node.join("cpulist"), list).unwrap();
        }
        fs::write(directory.path().join("online"), "0-1\n").unwrap();
        directory
    }

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(processors("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert!(processors("\n").is_empty());
    }

    #[test]
    fn threads_and_queues_are_dealt_to_the_nodes_in_turn() {
        let machine = machine(&["0-1\n", "2-3\n"]);
        let nodes = Nodes::of(machine.path(), &[0, 1, 2, 3]);
        assert_eq!(nodes.0, [vec![0, 1], vec![2, 3]]);
        assert!(nodes.is_near(0, 4) && nodes.is_near(3, 1) && !nodes.is_near(2, 1));
    }

    #[test]
    fn one_node_or_leave_for_one_alone_is_no_choice() {
        let two = machine(&["0-1\n", "2-3\n"]);
        assert!(Nodes::of(two.path(), &[2, 3]).0.is_empty());
        let one = machine(&["0-7\n"]);
        let nodes = Nodes::of(one.path(), &[0, 1]);
        assert!(nodes.0.is_empty() && nodes.is_near(3, 1));
        nodes.stay(5); // stays where it is
    }

    #[test]
    fn a_thread_stays_on_its_node() {
        let here = allowed();
        let nodes = Nodes(vec![vec![here[0]], vec![*here.last().unwrap()]]);
        std::thread::spawn(move || {
            nodes.stay(3);
            assert_eq!(allowed(), [*here.last().unwrap()]);
        })
        .join()
        .unwrap();
    }
}
