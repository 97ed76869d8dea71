//! Prints the CPU seconds of one permutation: `randperm [N] [SEED]`.
//!
//! The memory is fresh, as torch's is, and its page faults are counted.

use std::hint::black_box;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| match arguments.next() {
        Some(text) => text.parse().expect("a whole number"),
        None => default,
    };
    let n = u32::try_from(number(14_200_000)).expect("n below 2^32");
    let mut engine = forebay_plan::Mt19937::new(number(0));
    let before = cpu_seconds();
    black_box(forebay_plan::randperm(&mut engine, n));
    let seconds = cpu_seconds() - before;
    #[allow(clippy::print_stdout)]
    {
        println!("{seconds:.4}");
    }
}

/// CPU time of this process so far, as the kernel accounts for it.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux with schedstat");
    let nanoseconds = stat.split(' ').next().expect("a first field");
    nanoseconds.parse::<u64>().expect("nanoseconds") as f64 * 1e-9
}
