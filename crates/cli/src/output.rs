//! What a command says on stdout: for people, or as JSON.
//!
//! Output is buffered, so that millions of lines cost few system calls. Colour is for
//! terminals, and not even there if `NO_COLOR` is set. Names come from file systems
//! and buckets: control characters in them are shown, never sent to the terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

const BUFFER: usize = 1 << 16;

/// Width of the names of fields.
const NAME: usize = 12;

/// Stdout.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    pub(crate) json: bool,
    pub(crate) paint: Paint,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let out = io::stdout().lock();
        let paint = Paint::new(wants_colour(out.is_terminal()));
        let out = BufWriter::with_capacity(BUFFER, out);
        Self { out, json, paint }
    }

    /// Bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out
            .write_all(bytes)
            .map_err(|error| Failure::of_output(&error))
    }

    /// A line.
    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        writeln!(self.out, "{text}").map_err(|error| Failure::of_output(&error))
    }

    /// A line in bold.
    pub(crate) fn heading(&mut self, text: &str) -> Result<(), Failure> {
        self.line(self.paint.with(Paint::BOLD, &printable(text)))
    }

    /// A name and its value, below a heading.
    pub(crate) fn field(&mut self, name: &str, value: impl Display) -> Result<(), Failure> {
        let name = self.paint.with(Paint::DIM, &format!("{name:<NAME$}"));
        self.line(format_args!("  {name}{}", printable(&value.to_string())))
    }

    /// A document, with line breaks.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::new(error.to_string(), None))?;
        self.line(text)
    }

    /// Hands over what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::of_output(&error))
    }
}

/// Whether to use colour on a stream.
pub(crate) fn wants_colour(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    is_terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) const BOLD: &'static str = "1";
    pub(crate) const DIM: &'static str = "2";
    pub(crate) const RED: &'static str = "1;31";
    pub(crate) const YELLOW: &'static str = "1;33";
    pub(crate) const CYAN: &'static str = "36";

    pub(crate) fn new(on: bool) -> Self {
        Self { on }
    }

    pub(crate) fn with(self, colour: &str, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Text with control characters written out.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for char in text.chars() {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    Cow::Owned(shown)
}

/// A number with a comma every three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit that fits.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Bytes done of all, their rate and the time left; a message says what else there is. Seen on a
/// terminal only: nothing is drawn where stderr goes elsewhere.
pub(crate) fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = "{bar:20} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left  {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// `part` of `whole` in per cent.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let whole = whole.max(1) as f64;
    format!("{:.1} %", 100.0 * part as f64 / whole)
}

/// A bar as long as `part` of `most`; there is a bit of it for all but nothing.
pub(crate) fn bar(part: u64, most: u64, width: usize) -> String {
    let length = (part as f64 / most.max(1) as f64 * width as f64).round() as usize;
    "#".repeat(length.clamp(usize::from(part > 0), width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (14_197_122, "14,197,122"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_288_490_189, "1.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_bar_shows_that_there_is_something() {
        assert_eq!(bar(0, 100, 10), "");
        assert_eq!(bar(1, 1_000_000, 10), "#");
        assert_eq!(bar(50, 100, 10), "#####");
        assert_eq!(bar(100, 100, 10), "##########");
        assert_eq!(bar(0, 0, 10), "");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("cat\x1b[31m\n"), "cat\\u{1b}[31m\\n");
        assert!(matches!(printable("Kätzchen"), Cow::Borrowed(_)));
    }

    #[test]
    fn paint_that_is_off_leaves_text_alone() {
        assert_eq!(Paint::new(false).with(Paint::RED, "x"), "x");
        assert_eq!(Paint::new(true).with(Paint::RED, "x"), "\x1b[1;31mx\x1b[0m");
    }
}
