//! How many sample events the simulator does in a second, on one core.
//!
//!     cargo run --release -p forebay-sim --example rate -- 14_100_000 64 3 local
//!
//! Samples, ranks (eight a node), epochs, and `local` files or a `remote` store; then policies, all
//! if none is named.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use forebay_plan::{Deal, Order, Plan, Uneven};
use forebay_policy::{NAMES, Settings, by_name};
use forebay_sim::{Access, Costs, Job, Loading, Memory, Scenario, Sizes, baselines};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u32| {
        let given = arguments.get(at).map(|text| text.replace('_', ""));
        given.map_or(usual, |text| text.parse().expect("a number"))
    };
    let (samples, ranks, epochs) = (number(0, 1_281_167), number(1, 8), number(2, 3));
    let remote = arguments.get(3).is_some_and(|word| word == "remote");
    let named: Vec<&String> = arguments.iter().skip(4).collect();
    let nodes = ranks.div_ceil(8);
    let sizes = Sizes::log_normal(samples, 105_000.0, 0.6, 1);
    let kept = sizes.total(samples) / u64::from(nodes) * 40 / 135;
    println!("{samples} samples, {ranks} ranks on {nodes} nodes, {epochs} epochs");
    for name in NAMES {
        if !named.is_empty() && !named.iter().any(|&other| other == name) {
            continue;
        }
        let deal = Deal::Strided {
            uneven: Uneven::Pad,
        };
        let order = Order::Seeded { seed: 1 };
        let plan = Plan::new(samples, order, deal, ranks, Some(256), false).expect("a plan");
        let settings = Settings {
            epoch: Some(u64::from(samples / ranks)),
            sole_copy: true,
        };
        let scenario = Scenario {
            jobs: vec![Job {
                plan,
                dataset: 0,
                sizes: sizes.clone(),
                first_epoch: 0,
                epochs,
                step: 0.1,
                loading: if remote {
                    Loading::remote(4, 64)
                } else {
                    baselines::ahead(4, 8)
                },
            }],
            nodes,
            memory: Memory::Exact {
                kept,
                transit: 8 << 30,
            },
            policy: Arc::new(move |_| by_name(name, settings).expect("a policy's name")),
            log: None,
            peers: nodes > 1,
            costs: Costs::origin_only(Access::flat(2e9)),
        };
        let begun = busy();
        let report = scenario.run().expect("a scenario that runs");
        let seconds = busy() - begun;
        let warm = report.jobs[0].from(1);
        println!(
            "{name:9} {:5.2} million events/s, {seconds:6.2} s, {:.3} hits, {:.3} ready",
            report.events as f64 / seconds / 1e6,
            warm.hit_ratio(),
            warm.ready_ratio(),
        );
    }
    println!("peak memory {} MB", peak());
}

/// Seconds that this process had a core, as Linux tells it: others on the machine do not count.
fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanos.expect("a Linux with schedstat") * 1e-9
}

/// As Linux tells it.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    digits.unwrap_or(0) / 1024
}
