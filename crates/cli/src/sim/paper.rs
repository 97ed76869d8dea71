//! `forebay sim paper`: a paper's table, its figures beside ours.

use clap::{Args, ValueEnum};
use forebay_sim::Error;
use forebay_sim::papers::{Watch, lcache, lobster};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use crate::stop::Stop;

const AFTER_HELP: &str = "\
Without a name: the papers there are. What a paper does not say of its storage is chosen so
that one of its figures comes out; which one is said. Hits (left in memory by an earlier use)
and ready (there when asked for) are kept apart, always.

Examples:
  forebay sim paper
  forebay sim paper lobster
  forebay sim paper lobster --scale 0.1
  forebay sim paper lcache --json";

/// Reproduce a paper's table: its figures beside ours
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Which paper; without it, they are listed
    #[arg(value_name = "NAME")]
    name: Option<Name>,
    /// The part of the dataset to simulate, above 0 and at most 1: ratios hardly depend on it,
    /// the time does
    #[arg(long, value_name = "PART", default_value = "1", value_parser = part)]
    scale: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Hits and readiness of six policies: one node, eight nodes, two jobs (ICPP '22)
    Lobster,
    /// Loading throughput from local disks, whole dataset and half
    Lcache,
}

fn part(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|&part| part > 0.0 && part <= 1.0)
        .ok_or_else(|| "not a part: above 0 and at most 1".to_owned())
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<(), Failure> {
    match arguments.name {
        None => list(out),
        Some(Name::Lobster) => {
            let setup = lobster::Setup::new(arguments.scale);
            let tables = watched(setup.events(), |watch| {
                let part = setup.part();
                let one_node = setup.one_node(watch)?;
                let eight_nodes = part.eight_nodes(watch)?;
                let two_jobs = part.two_jobs(watch)?;
                Ok((one_node, eight_nodes, two_jobs))
            })?;
            super::lobster::show(&setup, &tables.0, &tables.1, &tables.2, out)
        }
        Some(Name::Lcache) => {
            let setup = lcache::Setup::new(arguments.scale);
            let rows = watched(setup.events(), |watch| setup.rows(watch))?;
            super::lcache::show(&setup, &rows, out)
        }
    }
}

fn list(out: &mut Output) -> Result<(), Failure> {
    let papers = Name::value_variants().iter().filter_map(|name| {
        let name = name.to_possible_value()?;
        let help = name.get_help().map(ToString::to_string);
        Some((name.get_name().to_owned(), help.unwrap_or_default()))
    });
    if out.json {
        let papers: Vec<_> = papers
            .map(|(name, about)| json!({"name": name, "about": about}))
            .collect();
        return out.document(&json!({"papers": papers}));
    }
    for (name, about) in papers {
        out.field(&name, about)?;
    }
    Ok(())
}

/// Runs something that takes its time: with progress on stderr, and until Ctrl-C.
fn watched<T>(
    events: u64,
    work: impl FnOnce(&mut Watch<'_>) -> Result<T, Error>,
) -> Result<T, Failure> {
    let stop = Stop::new().map_err(|error| Failure::of(&error, None))?;
    let bar = progress(events);
    let mut tell = |done: u64| {
        bar.set_position(done);
        stop.signal().is_none()
    };
    let done = work(&mut Watch::new(&mut tell));
    bar.finish_and_clear();
    match (done, stop.signal()) {
        (Ok(done), _) => Ok(done),
        (Err(Error::Stopped), Some(signal)) => Err(Failure::Stopped(signal)),
        (Err(error), _) => Err(Failure::of(&error, None)),
    }
}

/// Samples simulated of all; drawn on a terminal only.
fn progress(samples: u64) -> ProgressBar {
    let bar = ProgressBar::new(samples);
    let style = "{bar:20} {human_pos} of {human_len} samples, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_above_0_and_at_most_1() {
        assert_eq!(part("0.25"), Ok(0.25));
        for text in ["0", "-1", "1.5", "nan", "all", ""] {
            assert!(part(text).is_err(), "{text}");
        }
    }
}
