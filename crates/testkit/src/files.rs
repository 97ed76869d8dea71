//! Directory trees that a loader meets in the wild and would rather not.
//!
//! Each function makes its files below a root that the caller owns, and says what a reader
//! ought to find there. Nothing here needs privileges.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Files of `size` bytes in class folders, named `class/0000.jpg`; each differs from the rest.
///
/// The bytes are pseudo-random but for the first eight, which are the sample's number in
/// little endian, so that a test can tell samples apart.
pub fn class_folders(
    root: &Path,
    classes: &[&str],
    files: usize,
    size: usize,
) -> io::Result<Vec<(PathBuf, usize)>> {
    let mut samples = Vec::new();
    for (label, class) in classes.iter().enumerate() {
        fs::create_dir_all(root.join(class))?;
        for file in 0..files {
            let path = root.join(class).join(format!("{file:04}.jpg"));
            fs::write(&path, bytes(samples.len() as u64, size))?;
            samples.push((path, label));
        }
    }
    Ok(samples)
}

/// The bytes of sample `number`: its number, then noise that depends on it.
pub fn bytes(number: u64, size: usize) -> Vec<u8> {
    let mut state = number ^ 0x9e37_79b9_7f4a_7c15;
    let mut bytes = number.to_le_bytes().to_vec();
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// A class `odd` below `root` with names and kinds of files that trip readers up.
///
/// ```text
/// 0.JPG  ä.jpg  "a b\n.jpg"  <not UTF-8>.jpg     ordinary files, odd names
/// deep/1/.../63/x.jpg                            far down
/// empty.jpg                                      no bytes
/// link.jpg -> 0.JPG, linked/ -> deep/            symlinks that lead somewhere
/// dangling.jpg, loop.jpg -> loop.jpg             symlinks that do not
/// folder.jpg/                                    a directory with a file's name
/// .hidden.jpg  notes.txt                         not an image by its name, or hidden
/// ```
pub fn odd_names(root: &Path) -> io::Result<()> {
    let odd = root.join("odd");
    let deep = (0..64).fold(odd.join("deep"), |path, i| path.join(i.to_string()));
    fs::create_dir_all(&deep)?;
    fs::create_dir_all(odd.join("folder.jpg"))?;
    for name in ["0.JPG", "ä.jpg", "a b\n.jpg", ".hidden.jpg", "notes.txt"] {
        fs::write(odd.join(name), name)?;
    }
    let broken = std::ffi::OsStr::from_bytes(b"\xff\xfe.jpg");
    fs::write(odd.join(broken), "not UTF-8")?;
    fs::write(odd.join("empty.jpg"), "")?;
    fs::write(deep.join("x.jpg"), "deep")?;
    symlink("0.JPG", odd.join("link.jpg"))?;
    symlink("deep", odd.join("linked"))?;
    symlink("nowhere", odd.join("dangling.jpg"))?;
    symlink("loop.jpg", odd.join("loop.jpg"))
}

/// A directory that contains itself through a symlink.
pub fn endless(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root.join("class"))?;
    fs::write(root.join("class/0000.jpg"), bytes(0, 64))?;
    symlink(root.canonicalize()?, root.join("class/again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_folders_hold_the_samples_that_are_named() {
        let root = tempfile::tempdir().unwrap();
        let samples = class_folders(root.path(), &["a", "b"], 3, 100).unwrap();
        assert_eq!(samples.len(), 6);
        assert_eq!(samples[4], (root.path().join("b/0001.jpg"), 1));
        for (number, (path, _)) in samples.iter().enumerate() {
            assert_eq!(fs::read(path).unwrap(), bytes(number as u64, 100));
        }
        assert_eq!(bytes(7, 3), [7, 0, 0]);
    }

    #[test]
    fn odd_trees_have_links_that_lead_nowhere_and_round_in_circles() {
        let root = tempfile::tempdir().unwrap();
        odd_names(root.path()).unwrap();
        let odd = root.path().join("odd");
        assert_eq!(fs::read_dir(&odd).unwrap().count(), 13);
        assert_eq!(fs::read(odd.join("link.jpg")).unwrap(), b"0.JPG");
        assert!(fs::read(odd.join("dangling.jpg")).is_err());
        assert!(fs::read(odd.join("loop.jpg")).is_err());

        let root = tempfile::tempdir().unwrap();
        endless(root.path()).unwrap();
        let again = root.path().join("class/again/class/again/class/0000.jpg");
        assert_eq!(fs::read(again).unwrap(), bytes(0, 64));
    }
}
