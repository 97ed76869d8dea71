//! A state in its file.
//!
//! ```text
//!   {"step": 1200, "loss": 0.1234500, "loader": {"version":1, ...}}
//!                                               ^^^^^^^^^^^^^^^^^^ only this is replaced
//! ```
//!
//! Whatever else a checkpoint holds stays byte for byte. A file is written under another
//! name and renamed: it is the old one or the new one at any moment, even after a crash.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::value::RawValue;

use super::position::{KIND, Position};
use crate::failure::Failure;

/// A file with a state in it.
#[derive(Debug)]
pub(crate) struct StateFile {
    text: String,
    place: Range<usize>,
    pub(crate) position: Position,
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

impl StateFile {
    /// Reads a state; it is the file's object, or its member `key`.
    pub(crate) fn open(path: &Path, key: Option<&str>) -> Result<Self, Failure> {
        let failed = |what: &str, hint: Option<String>| {
            Failure::new(format!("{}: {what}", path.display()), hint)
        };
        let bytes = fs::read(path).map_err(|error| failed(&error.to_string(), None))?;
        let how =
            || Some("a state is kept by json.dump(loader.state_dict(), file) in Python".to_owned());
        let text = String::from_utf8(bytes).map_err(|_| failed("not JSON", how()))?;
        let whole: &RawValue = serde_json::from_str(&text)
            .map_err(|error| failed(&format!("not JSON: {error}"), how()))?;
        let members = members(whole);
        let found = match (is_state(whole), key) {
            (true, _) => Some(whole),
            (false, Some(key)) => match members.get(key) {
                Some(&member) => Some(member).filter(|member| is_state(member)),
                None => {
                    let names: Vec<_> = members.keys().map(String::as_str).take(20).collect();
                    let hint = Some(format!("it has: {}", names.join(", ")));
                    let hint = hint.filter(|_| !names.is_empty());
                    return Err(failed(&format!("no key {key:?}"), hint));
                }
            },
            (false, None) => None,
        };
        let Some(found) = found else {
            let elsewhere = members.iter().find(|(_, member)| is_state(member));
            let hint = elsewhere.map(|(name, _)| format!("there is one in it: pass --key {name}"));
            return Err(failed(
                &format!("not the state of a {KIND}"),
                hint.or_else(how),
            ));
        };
        let object = serde_json::from_str(found.get())
            .map_err(|error| failed(&format!("state is damaged: {error}"), None))?;
        let position = Position::of(object).map_err(|what| failed(&what, None))?;
        let start = found.get().as_ptr().addr() - text.as_ptr().addr();
        let place = start..start + found.get().len();
        Ok(Self {
            text,
            place,
            position,
        })
    }

    /// Writes the file with another state in its place; atomic.
    pub(crate) fn save(&self, position: &Position, to: &Path) -> Result<(), Failure> {
        let old = &self.text[self.place.clone()];
        let new = if old.contains('\n') {
            let pretty = serde_json::to_string_pretty(position);
            // As deep as the state was.
            pretty.map(|text| text.replace('\n', &format!("\n{}", self.indent())))
        } else {
            serde_json::to_string(position)
        };
        let new = new.map_err(|error| Failure::new(error.to_string(), None))?;
        let (before, after) = (&self.text[..self.place.start], &self.text[self.place.end..]);
        replace(to, &[before, &new, after])
            .map_err(|error| Failure::new(format!("{}: {error}", to.display()), None))
    }

    /// The white space that the state's line starts with.
    fn indent(&self) -> &str {
        let before = &self.text[..self.place.start];
        let line = before.rsplit('\n').next().unwrap_or_default();
        &line[..line.len() - line.trim_start().len()]
    }
}

fn members(value: &RawValue) -> Members<'_> {
    serde_json::from_str(value.get()).unwrap_or_default()
}

fn is_state(value: &RawValue) -> bool {
    let kind = members(value).remove("kind").map(RawValue::get);
    kind.is_some_and(|text| serde_json::from_str::<String>(text).is_ok_and(|kind| kind == KIND))
}

fn replace(path: &Path, parts: &[&str]) -> io::Result<()> {
    // A link stays one: the file that it leads to is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".forebay-")
        .permissions(Permissions::from_mode(0o666)) // less what the umask takes
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    for part in parts {
        file.write_all(part.as_bytes())?;
    }
    if let Ok(old) = fs::metadata(path) {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
