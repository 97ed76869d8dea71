//! `forebay inspect`: what is in a dataset.
//!
//! All from the index: one pass over lengths and labels, 8 bytes a sample for the median.

use std::collections::HashMap;

use clap::Args;
use forebay_origin::{Index, IndexError, Refresh};
use serde_json::{Value, json};

use crate::dataset::DatasetArguments;
use crate::failure::{Failure, warn};
use crate::output::{Output, Paint, bar, count, printable, share, size};

const AFTER_HELP: &str = "\
Lists the dataset if it has no index yet, or a local one if it has changed.

Examples:
  forebay inspect ./train --images
  forebay inspect ./train --classes
  forebay inspect 's3://bucket/shards/train-{0000..0146}.tar' --json";

/// Classes shown without --classes.
const TOP: usize = 10;
/// Bars of a histogram in equal steps.
const STEPS: u64 = 10;
/// Characters of the longest bar.
const WIDTH: usize = 40;

/// Show what is in a dataset: samples, bytes, classes, sizes
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    dataset: DatasetArguments,
    /// All classes, in the order of their labels, not only the largest
    #[arg(long)]
    classes: bool,
}

pub(crate) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    let dataset = arguments.dataset.open(Refresh::Auto)?;
    if let Some(warning) = &dataset.opened().warning {
        warn(warning);
    }
    let index = dataset.index();
    let damaged =
        |error: IndexError| Failure::of(&error, Some("forebay index builds it anew".to_owned()));
    let sizes = Sizes::of(index).map_err(damaged)?;
    let mut classes = Classes::of(index).map_err(damaged)?;
    if out.json {
        return out.document(&json!({
            "url": index.url(),
            "samples": index.len(),
            "bytes": index.total_bytes(),
            "fingerprint": format!("{:016x}", index.fingerprint()),
            "index": {"file": dataset.opened().index_path, "bytes": index.file_len()},
            "classes": classes.json(),
            "unlabelled": classes.unlabelled,
            "sizes": sizes.as_ref().map(Sizes::json),
        }));
    }
    out.heading(index.url())?;
    out.field("samples", count(u64::from(index.len())))?;
    out.field("bytes", size(index.total_bytes()))?;
    if let Some(path) = &dataset.opened().index_path {
        out.field(
            "index",
            format!("{} ({})", path.display(), size(index.file_len())),
        )?;
    }
    out.field("classes", count(classes.rows.len() as u64))?;
    if classes.unlabelled > 0 {
        out.field(
            "unlabelled",
            format!("{} samples", count(classes.unlabelled)),
        )?;
    }
    if !arguments.classes {
        classes.keep_largest(TOP);
    }
    classes.show(u64::from(index.len()), out)?;
    sizes.map_or(Ok(()), |sizes| sizes.show(out))
}

/// How many samples each class has.
struct Classes {
    /// Label, name, samples; by label.
    rows: Vec<(i64, String, u64)>,
    unlabelled: u64,
    left_out: usize,
}

impl Classes {
    fn of(index: &Index) -> Result<Self, IndexError> {
        let mut counts: HashMap<i64, u64> = HashMap::new();
        // Class folders come one after the other: few turns of the table for many samples.
        let mut run = (-1, 0);
        for sample in 0..index.len() {
            let label = index.label(sample)?;
            if label != run.0 {
                *counts.entry(run.0).or_default() += run.1;
                run = (label, 0);
            }
            run.1 += 1;
        }
        *counts.entry(run.0).or_default() += run.1;
        let unlabelled = counts.remove(&-1).unwrap_or(0);
        for label in 0..index.classes().len() {
            counts.entry(label as i64).or_default();
        }
        let name = |label: i64| {
            let name = usize::try_from(label)
                .ok()
                .and_then(|at| index.classes().get(at));
            name.cloned().unwrap_or_else(|| format!("label {label}"))
        };
        let mut rows: Vec<_> = counts
            .into_iter()
            .map(|(label, samples)| (label, name(label), samples))
            .collect();
        rows.sort_unstable_by_key(|row| row.0);
        Ok(Self {
            rows,
            unlabelled,
            left_out: 0,
        })
    }

    fn keep_largest(&mut self, most: usize) {
        if self.rows.len() > most {
            self.rows.sort_by_key(|row| std::cmp::Reverse(row.2));
            self.left_out = self.rows.len() - most;
            self.rows.truncate(most);
        }
    }

    fn show(&self, samples: u64, out: &mut Output) -> Result<(), Failure> {
        let names: Vec<_> = self.rows.iter().map(|row| printable(&row.1)).collect();
        let width = names.iter().map(|name| name.chars().count()).max();
        let width = width.unwrap_or(0).min(WIDTH);
        for ((_, _, number), name) in self.rows.iter().zip(&names) {
            let (number, part) = (count(*number), share(*number, samples));
            out.line(format_args!("    {name:<width$}  {number:>11}  {part:>7}"))?;
        }
        if self.left_out > 0 {
            let rest = count(self.left_out as u64);
            out.line(format_args!("    and {rest} more: --classes shows all"))?;
        }
        Ok(())
    }

    fn json(&self) -> Vec<Value> {
        let row = |(label, name, samples): &(i64, String, u64)| json!({"label": label, "name": name, "samples": samples});
        self.rows.iter().map(row).collect()
    }
}

/// How large samples are.
#[derive(Debug, PartialEq)]
struct Sizes {
    min: u64,
    median: u64,
    mean: u64,
    max: u64,
    /// From, to (not included), samples.
    histogram: Vec<(u64, u64, u64)>,
}

impl Sizes {
    fn of(index: &Index) -> Result<Option<Self>, IndexError> {
        let lengths: Result<Vec<u64>, _> = (0..index.len()).map(|i| index.length(i)).collect();
        Ok(Self::from_lengths(lengths?))
    }

    /// Nothing for no samples.
    fn from_lengths(mut lengths: Vec<u64>) -> Option<Self> {
        let (&min, &max) = (lengths.iter().min()?, lengths.iter().max()?);
        let total: u128 = lengths.iter().map(|&length| u128::from(length)).sum();
        let number = lengths.len();
        let histogram = histogram(&lengths, min, max);
        let (below, &mut upper, _) = lengths.select_nth_unstable(number / 2);
        let median = match below.iter().max() {
            Some(&lower) if number.is_multiple_of(2) => lower.midpoint(upper),
            _ => upper,
        };
        Some(Self {
            min,
            median,
            mean: (total / number as u128) as u64,
            max,
            histogram,
        })
    }

    fn show(&self, out: &mut Output) -> Result<(), Failure> {
        let [min, median, mean, max] = [self.min, self.median, self.mean, self.max].map(size);
        let text = format!("min {min}, median {median}, mean {mean}, max {max}");
        out.field("sizes", text)?;
        let most = self.histogram.iter().map(|row| row.2).max().unwrap_or(0);
        for &(from, to, samples) in &self.histogram {
            let bar = bar(samples, most, WIDTH);
            let space = " ".repeat(WIDTH - bar.len());
            let bar = out.paint.with(Paint::CYAN, &bar);
            let (from, to, samples) = (size(from), size(to), count(samples));
            out.line(format_args!(
                "    {from:>10} .. {to:>10}  {bar}{space}  {samples}"
            ))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let row = |(from, to, samples): &(u64, u64, u64)| json!({"from": from, "to": to, "samples": samples});
        let histogram: Vec<_> = self.histogram.iter().map(row).collect();
        json!({
            "min": self.min, "median": self.median, "mean": self.mean, "max": self.max,
            "histogram": histogram,
        })
    }
}

/// In powers of two where sizes are far apart, else in equal steps.
fn histogram(lengths: &[u64], min: u64, max: u64) -> Vec<(u64, u64, u64)> {
    let edges: Vec<u64> = if max / 16 >= min.max(1) {
        let first = min.checked_ilog2().unwrap_or(0);
        let zero = (min == 0).then_some(0);
        let powers = (first..=max.ilog2()).map(|power| 1 << power);
        let last = 1u64.checked_shl(max.ilog2() + 1).unwrap_or(u64::MAX);
        zero.into_iter().chain(powers).chain([last]).collect()
    } else {
        let step = ((max - min) / STEPS + 1).max(1);
        let last = (max - min) / step;
        let edge = |at: u64| min.saturating_add(at.saturating_mul(step));
        (0..=last + 1).map(edge).collect()
    };
    let mut counts = vec![0; edges.len() - 1];
    for length in lengths {
        // The last edge not above it; a length of u64::MAX belongs to the last bar.
        let at = edges.partition_point(|edge| edge <= length) - 1;
        counts[at.min(edges.len() - 2)] += 1;
    }
    let ranges = edges.windows(2).map(|pair| (pair[0], pair[1]));
    ranges
        .zip(counts)
        .map(|((from, to), count)| (from, to, count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_far_apart_are_shown_in_powers_of_two() {
        let sizes = Sizes::from_lengths(vec![0, 1, 3, 100, 5]).unwrap();
        assert_eq!(
            (sizes.min, sizes.median, sizes.mean, sizes.max),
            (0, 3, 21, 100)
        );
        let filled: Vec<_> = sizes
            .histogram
            .into_iter()
            .filter(|row| row.2 > 0)
            .collect();
        let expected = [(0, 1, 1), (1, 2, 1), (2, 4, 1), (4, 8, 1), (64, 128, 1)];
        assert_eq!(filled, expected);
    }

    #[test]
    fn sizes_close_together_are_shown_in_equal_steps() {
        let sizes = Sizes::from_lengths((1000..1100).collect()).unwrap();
        assert_eq!((sizes.median, sizes.mean), (1049, 1049));
        let expected: Vec<_> = (0..10)
            .map(|at| (1000 + 10 * at, 1010 + 10 * at, 10))
            .collect();
        assert_eq!(sizes.histogram, expected);
        let same = Sizes::from_lengths(vec![7, 7]).unwrap();
        assert_eq!(same.histogram, [(7, 8, 2)]);
    }

    #[test]
    fn every_sample_is_in_one_bar() {
        for lengths in [
            vec![0],
            vec![u64::MAX, 0],
            vec![u64::MAX],
            vec![1, 16, 17],
            vec![0, 9],
        ] {
            let number = lengths.len() as u64;
            let histogram = Sizes::from_lengths(lengths).unwrap().histogram;
            assert_eq!(histogram.iter().map(|row| row.2).sum::<u64>(), number);
        }
        assert_eq!(Sizes::from_lengths(Vec::new()), None);
    }
}
