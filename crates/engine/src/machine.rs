//! How much memory this process may have: the machine's, or less if a control group says so.
//!
//! A container is such a group. Version 2 has one tree of groups with a `memory.max` in each,
//! version 1 a tree for memory alone with a `memory.limit_in_bytes`; the least of a group's and its
//! ancestors' counts. Where a tree is mounted, `/proc/self/mountinfo` says; which group of it this
//! process is in, `/proc/self/cgroup`.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// Bytes of memory, and whose word that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// How many.
    pub bytes: u64,
    /// Who allows no more.
    pub limited_by: LimitedBy,
}

/// See [`Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedBy {
    /// There is no more.
    Machine,
    /// The limit of a container, for one.
    ControlGroup,
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitedBy::Machine => "machine",
            LimitedBy::ControlGroup => "control group",
        })
    }
}

/// The memory that this process may have.
pub fn usable_memory() -> Memory {
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit));
    match group_limit(Path::new("/")) {
        Some(bytes) if bytes < machine => Memory {
            bytes,
            limited_by: LimitedBy::ControlGroup,
        },
        _ => Memory {
            bytes: machine,
            limited_by: LimitedBy::Machine,
        },
    }
}

/// The least limit of this process's groups, if they have one; `root`: where `/proc` and all mounts
/// are found.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let trees = mounts.lines().filter_map(|line| Tree::of(line, &groups));
    trees.filter_map(|tree| tree.limit(root)).min()
}

/// A tree of groups that limits memory, as it is mounted.
struct Tree {
    mounted_at: PathBuf,
    /// This process's group, from there.
    group: PathBuf,
    file: &'static str,
}

impl Tree {
    /// The tree of a line of mountinfo, if it is one.
    fn of(line: &str, groups: &str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (top, mounted_at) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let (file, controller) = match (kind.next()?, kind.nth(1)?) {
            ("cgroup2", _) => ("memory.max", ""),
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => {
                ("memory.limit_in_bytes", "memory")
            }
            _ => return None,
        };
        let group = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let ours = controllers.split(',').any(|known| known == controller);
            ours.then_some(group)
        })?;
        // Only a part of the tree may be mounted, and the group may be told from elsewhere.
        let group = Path::new(group).strip_prefix(top).unwrap_or(Path::new(""));
        let within = group
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        Some(Self {
            mounted_at: plain(mounted_at),
            group: if within { group.into() } else { PathBuf::new() },
            file,
        })
    }

    fn limit(&self, root: &Path) -> Option<u64> {
        let top = self.mounted_at.strip_prefix("/").ok()?;
        let read = |group: &Path| {
            let path = root.join(top).join(group).join(self.file);
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().parse::<u64>().ok() // "max": none
        };
        self.group.ancestors().filter_map(read).min()
    }
}

/// A path of mountinfo, where a space is written as `\\040`.
fn plain(text: &str) -> PathBuf {
    text.replace("\\040", " ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
    const V1: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        35 31 0:32 TOP /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    /// The limit with these words of the kernel's and these files below `/sys/fs/cgroup`.
    fn limit(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", groups);
        write("proc/self/mountinfo", mounts);
        for (path, text) in files {
            write(&format!("sys/fs/cgroup/{path}"), text);
        }
        group_limit(root.path())
    }

    #[test]
    fn the_least_limit_of_a_group_and_its_ancestors_counts() {
        let files = [
            ("a/memory.max", "4096\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/c/memory.max", "8192\n"),
            ("memory.max", "max\n"),
        ];
        assert_eq!(limit("0::/a/b/c\n", V2, &files), Some(4096));
        assert_eq!(limit("0::/\n", V2, &files), None);
    }

    #[test]
    fn in_a_container_the_limit_is_at_the_top_of_what_is_mounted() {
        let files = [("memory.max", "1073741824\n")];
        assert_eq!(limit("0::/\n", V2, &files), Some(1 << 30));
        // Its group as seen from outside.
        assert_eq!(limit("0::/../x\n", V2, &files), Some(1 << 30));
        let mounts = V1.replace("TOP", "/docker/1");
        let files = [("memory/memory.limit_in_bytes", "512\n")];
        let groups = "5:cpu:/docker/1\n4:memory:/docker/1\n0::/\n";
        assert_eq!(limit(groups, &mounts, &files), Some(512));
    }

    #[test]
    fn version_1_has_a_tree_for_memory() {
        let mounts = V1.replace("TOP", "/");
        let files = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/x/memory.limit_in_bytes", "1000\n"),
            ("cpu/x/memory.limit_in_bytes", "1\n"),
        ];
        let groups = "6:blkio:/\n4:cpu,memory:/x/y\n0::/\n";
        assert_eq!(limit(groups, &mounts, &files), Some(1000));
    }

    #[test]
    fn without_groups_the_machine_is_the_limit() {
        assert_eq!(limit("", "", &[]), None);
        assert_eq!(group_limit(Path::new("/nowhere/at/all")), None);
        assert!(usable_memory().bytes > 0);
    }
}
