//! Which of the layouts a log has.

use std::fs;
use std::path::Path;

use super::budget::RESERVED;
use super::files::Dir;
use super::layout::LayoutChoice;
use super::log::MAP;
use super::measure::Speeds;
use super::settings::LogSettings;

/// Smaller datasets are packed: which layout would be faster is not worth a second.
const WORTH_MEASURING: u64 = 64 << 20;

/// The layout that a log has, decided when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Packed,
    Reorder,
}

impl Kind {
    /// What is asked for; else what is there already; else what the disk is better at.
    pub(super) fn choose(settings: &LogSettings, home: &Dir) -> Self {
        match settings.layout {
            LayoutChoice::Packed => return Kind::Packed,
            LayoutChoice::Reorder => return Kind::Reorder,
            LayoutChoice::Auto => {}
        }
        let has = |kind: Kind| {
            let entries = fs::read_dir(&home.folder).ok();
            let mut paths = entries.into_iter().flatten().flatten();
            paths.any(|entry| kind.owns(&entry.path()))
        };
        if has(Kind::Packed) || settings.total_bytes < WORTH_MEASURING {
            return Kind::Packed;
        }
        if has(Kind::Reorder) {
            return Kind::Reorder;
        }
        let mean = settings.total_bytes / u64::from(settings.subject.samples.max(1));
        match home.budget.room() {
            room if room < WORTH_MEASURING * 2 => Kind::Packed,
            _ => match Speeds::of(&home.budget, mean, &settings.device) {
                Ok(speeds) if speeds.favour_reorder() => Kind::Reorder,
                _ => Kind::Packed,
            },
        }
    }

    /// Its name in settings and stats.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Packed => "packed",
            Kind::Reorder => "reorder",
        }
    }

    pub(super) fn extension(self) -> &'static str {
        match self {
            Kind::Packed => "segment",
            Kind::Reorder => "ordered",
        }
    }

    fn owns(self, path: &Path) -> bool {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("");
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        match self {
            Kind::Packed => ends(&[".segment", MAP]),
            Kind::Reorder => ends(&[".ordered", ".order", RESERVED]),
        }
    }

    /// Deletes what a log of the other layout has left in a folder.
    pub(super) fn delete_other(self, folder: &Path) {
        let other = match self {
            Kind::Packed => Kind::Reorder,
            Kind::Reorder => Kind::Packed,
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if other.owns(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
