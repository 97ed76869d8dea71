//! Columns of figures for people: the first to the left, the others to the right.

use crate::failure::Failure;
use crate::output::{Output, Paint};

/// Two spaces before each line, and between columns.
pub(super) fn show(header: &[&str], rows: &[Vec<String>], out: &mut Output) -> Result<(), Failure> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        longest.max(header[column].chars().count())
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (at, (cell, &width)) in cells.zip(&widths).enumerate() {
            text += "  ";
            text += &match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
        }
        text.trim_end().to_owned()
    };
    let head = line(&mut header.iter().copied());
    out.line(out.paint.with(Paint::DIM, &head))?;
    for row in rows {
        out.line(line(&mut row.iter().map(String::as_str)))?;
    }
    Ok(())
}

/// A ratio with three decimals.
pub(super) fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

/// A ratio, or a dash if there is none.
pub(super) fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), ratio)
}
