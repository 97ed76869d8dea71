//! `forebay order`: which samples a rank gets in an epoch, in their order.
//!
//! One sample a line, or one batch a line. Costs the permutation (4 bytes a sample)
//! and the digits; a sequential order needs no memory.

use clap::{Args, ValueEnum};
use forebay_plan::{Deal, Epoch, Order, Plan, Uneven};

use crate::failure::Failure;
use crate::numbers;
use crate::output::{Output, size};

const AFTER_HELP: &str = "\
The order of epoch E is torch.randperm(N) under manual_seed(S + E), dealt to ranks as
DistributedSampler deals it: what forebay.DataLoader(..., shuffle=True, seed=S) yields.

Examples:
  forebay order --samples 50000 --seed 7 --epoch 3 --head 5
  forebay order --samples 50000 --seed 7 --rank 1 --world-size 8 --batch-size 32
  forebay order --samples 1_281_167 --seed 0 --json > epoch.json";

/// Print the samples of an epoch, in their order
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Samples in the dataset
    #[arg(long, value_name = "N", value_parser = numbers::u32, allow_negative_numbers = true)]
    samples: u32,
    /// Seed of epoch 0
    #[arg(long, value_name = "S", value_parser = numbers::u64, allow_negative_numbers = true)]
    #[arg(required_unless_present = "sequential", conflicts_with = "sequential")]
    seed: Option<u64>,
    /// Epoch, counted from 0
    #[arg(long, value_name = "E", value_parser = numbers::u64, allow_negative_numbers = true)]
    #[arg(default_value = "0")]
    epoch: u64,
    /// Sample 0 first, the last one last
    #[arg(long)]
    sequential: bool,
    /// Whose samples; ranks count from 0
    #[arg(long, value_name = "R", value_parser = numbers::u32, allow_negative_numbers = true)]
    #[arg(requires = "world_size")]
    rank: Option<u32>,
    /// How many ranks there are
    #[arg(long, value_name = "W", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true, requires = "rank")]
    world_size: Option<u32>,
    /// Samples in a batch; each batch is a line then
    #[arg(long, value_name = "B", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true)]
    batch_size: Option<u32>,
    /// Leave out a last batch that is short
    #[arg(long, requires = "batch_size")]
    drop_last: bool,
    /// What becomes of samples that do not go evenly into the ranks [default: pad, or
    /// drop with --drop-last]
    #[arg(long, value_name = "HOW")]
    uneven: Option<HowUneven>,
    /// What is dealt to the ranks in turn
    #[arg(long, value_name = "WHAT", default_value = "strided")]
    deal: What,
    /// Only the first K lines
    #[arg(long, value_name = "K", value_parser = numbers::u64, allow_negative_numbers = true)]
    head: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum HowUneven {
    /// Samples from the start come again, as with DistributedSampler
    Pad,
    /// The remainder is left out
    Drop,
    /// No sample twice, none left out: ranks differ by at most one
    Keep,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// Samples, as DistributedSampler does
    Strided,
    /// Whole batches, as accelerate does
    Batches,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<(), Failure> {
    let order = match arguments.seed {
        Some(seed) => {
            check_memory(arguments.samples, free_memory())?;
            Order::Seeded { seed }
        }
        None => Order::Sequential,
    };
    let plan = Plan::new(
        arguments.samples,
        order,
        deal(arguments)?,
        arguments.world_size.unwrap_or(1),
        arguments.batch_size,
        arguments.drop_last,
    );
    let refused =
        |error: forebay_plan::Error| Failure::usage(error.to_string(), error.hint().unwrap_or(""));
    let plan = plan.map_err(refused)?;
    let rank = plan
        .check_rank(arguments.rank.unwrap_or(0))
        .map_err(refused)?;
    let epoch = plan.epoch(arguments.epoch);
    if out.json {
        json(arguments, &epoch, rank, out)
    } else {
        lines(arguments, &epoch, rank, out)
    }
}

fn deal(arguments: &Arguments) -> Result<Deal, Failure> {
    if arguments.deal == What::Batches {
        if arguments.batch_size.is_none() {
            return Err(Failure::usage(
                "--deal batches without a batch size",
                "pass --batch-size as well",
            ));
        }
        if arguments.uneven.is_some() {
            return Err(Failure::usage(
                "--uneven does not go with --deal batches",
                "the last round is filled from the start, or dropped with --drop-last",
            ));
        }
        return Ok(Deal::Batches);
    }
    let uneven = match arguments.uneven {
        Some(HowUneven::Pad) => Uneven::Pad,
        Some(HowUneven::Drop) => Uneven::Drop,
        Some(HowUneven::Keep) => Uneven::Keep,
        None if arguments.drop_last => Uneven::Drop,
        None => Uneven::Pad,
    };
    Ok(Deal::Strided { uneven })
}

fn lines(arguments: &Arguments, epoch: &Epoch, rank: u32, out: &mut Output) -> Result<(), Failure> {
    let head = arguments.head.unwrap_or(u64::MAX);
    let mut digits = itoa::Buffer::new();
    if arguments.batch_size.is_none() {
        for sample in epoch.rank(rank).take(to_usize(head)) {
            out.write(digits.format(sample).as_bytes())?;
            out.write(b"\n")?;
        }
        return Ok(());
    }
    for batch in 0..epoch.batches(rank).min(head) {
        let samples = epoch.batch(rank, batch);
        list(samples, b" ", out)?;
        out.write(b"\n")?;
    }
    Ok(())
}

/// One object; the long list in it is written as it comes.
fn json(arguments: &Arguments, epoch: &Epoch, rank: u32, out: &mut Output) -> Result<(), Failure> {
    let head = arguments.head.unwrap_or(u64::MAX);
    let name = if arguments.batch_size.is_some() {
        "batches"
    } else {
        "order"
    };
    let or_null =
        |number: Option<u64>| number.map_or("null".to_owned(), |number| number.to_string());
    let settings = format!(
        "{{\"samples\":{},\"seed\":{},\"epoch\":{},\"rank\":{rank},\"world_size\":{},\
         \"batch_size\":{},\"{name}\":[",
        arguments.samples,
        or_null(arguments.seed),
        arguments.epoch,
        arguments.world_size.unwrap_or(1),
        or_null(arguments.batch_size.map(u64::from)),
    );
    out.write(settings.as_bytes())?;
    if arguments.batch_size.is_none() {
        list(epoch.rank(rank).take(to_usize(head)), b",", out)?;
    } else {
        for batch in 0..epoch.batches(rank).min(head) {
            out.write(if batch > 0 { b",[" } else { b"[" })?;
            list(epoch.batch(rank, batch), b",", out)?;
            out.write(b"]")?;
        }
    }
    out.write(b"]}\n")
}

fn list(
    samples: impl Iterator<Item = u32>,
    between: &[u8],
    out: &mut Output,
) -> Result<(), Failure> {
    let mut digits = itoa::Buffer::new();
    for (at, sample) in samples.enumerate() {
        if at > 0 {
            out.write(between)?;
        }
        out.write(digits.format(sample).as_bytes())?;
    }
    Ok(())
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A permutation that memory cannot hold is an error here, not the end of the machine.
fn check_memory(samples: u32, free: Option<u64>) -> Result<(), Failure> {
    let needed = u64::from(samples) * 4;
    match free {
        Some(free) if needed > free => Err(Failure::new(
            format!(
                "an order of {samples} samples takes {}, {} of memory is free",
                size(needed),
                size(free)
            ),
            Some("check --samples, or run it where there is more memory".to_owned()),
        )),
        _ => Ok(()),
    }
}

/// As Linux tells it; elsewhere it is not known.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_beyond_the_memory_is_refused_before_it_is_made() {
        assert!(check_memory(1000, Some(4000)).is_ok());
        assert!(check_memory(u32::MAX, None).is_ok());
        let Err(Failure::Failed(words)) = check_memory(u32::MAX, Some(1 << 30)) else {
            panic!("not refused");
        };
        let words = format!("{words:?}");
        assert!(
            words.contains("takes 16.0 GiB, 1.0 GiB of memory is free"),
            "{words}"
        );
    }
}
