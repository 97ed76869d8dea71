//! Lobster's tables, for people and as JSON.

use forebay_sim::papers::lobster::{
    AHEAD, AHEAD_OF_DALI, AHEAD_OF_TORCH, BATCH, EACH, EightNodes, ORIGIN, OneNode, PEER, RANKS,
    Row, STEP, Setup, TwoJobs,
};
use serde_json::{Value, json};

use super::table::{self, maybe, ratio};
use crate::failure::Failure;
use crate::output::{Output, count, size};

pub(super) fn show(
    setup: &Setup,
    one: &OneNode,
    eight: &EightNodes,
    two: &TwoJobs,
    out: &mut Output,
) -> Result<(), Failure> {
    if out.json {
        return out.document(&document(setup, one, eight, two));
    }
    settings(setup, out)?;
    one_node(one, out)?;
    eight_nodes(setup, eight, out)?;
    two_jobs(setup, two, out)?;
    eviction(one, eight, two, out)
}

fn settings(setup: &Setup, out: &mut Output) -> Result<(), Failure> {
    out.heading("Lobster (ICPP '22), section 5.5: ResNet-50 on ImageNet-1K")?;
    out.field("samples", count(u64::from(setup.samples)))?;
    out.field("bytes", size(setup.bytes))?;
    let memory = format!("{} a node: 40/135 of the dataset", size(setup.memory));
    out.field("memory", memory)?;
    let ranks = format!("{RANKS} a node, {BATCH} samples a batch");
    out.field("ranks", ranks)?;
    let step = format!("{:.0} ms", STEP * 1e3);
    out.field("step", step)?;
    let origin = format!(
        "{:.0} MB/s a request, {:.0} MB/s a node (so that PyTorch's GPUs are as busy as in the paper)",
        EACH / 1e6,
        ORIGIN / 1e6
    );
    out.field("origin", origin)?;
    let ahead = format!(
        "PyTorch {AHEAD_OF_TORCH}, DALI {AHEAD_OF_DALI}, NoPFS and Forebay {AHEAD} batches a rank, beside the memory; none across epochs"
    );
    out.field("ahead", ahead)?;
    out.line("")?;
    out.line(
        "  hits: bytes that an earlier use left in memory. ready: samples that had come when",
    )?;
    out.line(
        "  their batch was asked for. The paper's ratio counts what was fetched ahead in time.",
    )
}

fn one_node(one: &OneNode, out: &mut Output) -> Result<(), Failure> {
    out.line("")?;
    out.heading("One node")?;
    let line = |row: &Row| {
        let system = row.system;
        vec![
            system.policy.to_owned(),
            system.loader.to_owned(),
            ratio(row.figures.hit_byte_ratio()),
            ratio(row.figures.ready_ratio()),
            maybe(system.paper),
            ratio(row.busy),
            maybe(system.paper_busy),
            format!("{:.0} s", row.seconds),
        ]
    };
    let rows: Vec<_> = one.rows.iter().map(line).collect();
    let header = [
        "policy", "loader", "hits", "ready", "paper", "GPU busy", "paper", "epoch",
    ];
    table::show(&header, &rows, out)?;
    out.line(format_args!(
        "  No policy can hit more than {:.3}: each sample is used once an epoch, so a hit has crossed",
        one.ceiling
    ))?;
    out.line(
        "  the edge between epochs in memory. By the future, all hits come as the epoch begins and",
    )?;
    out.line("  the origin is idle meanwhile; MinIO's are spread over it.")
}

fn eight_nodes(setup: &Setup, eight: &EightNodes, out: &mut Output) -> Result<(), Failure> {
    out.line("")?;
    out.heading("Eight nodes of eight ranks, all with Forebay's loader")?;
    let samples = count(u64::from(setup.part().samples));
    out.line(format_args!(
        "  {samples} samples; what nodes get from each other: {:.0} GB/s each",
        PEER / 1e9
    ))?;
    let header = [
        "policy",
        "peers",
        "hits",
        "from peers",
        "from origin",
        "GPU busy",
        "epoch",
    ];
    let mut rows = Vec::new();
    for (peers, part) in ["without", "with"].into_iter().zip(&eight.rows) {
        for row in part {
            let bytes = row.figures.bytes.max(1) as f64;
            rows.push(vec![
                row.system.policy.to_owned(),
                peers.to_owned(),
                ratio(row.figures.hit_byte_ratio()),
                ratio(row.figures.peer_bytes as f64 / bytes),
                ratio(row.figures.read_bytes as f64 / bytes),
                ratio(row.busy),
                format!("{:.1} s", row.seconds),
            ]);
        }
    }
    table::show(&header, &rows, out)?;
    out.line(format_args!(
        "  A node meets a sample again every eight epochs on average; Belady's MIN, with all epochs in",
    ))?;
    out.line(format_args!(
        "  sight (`farthest` and `reuse` see the coming one), would hit {:.3} on the first node. All",
        eight.ceiling
    ))?;
    out.line(format_args!(
        "  nodes together hold {:.2} times the dataset: with peers, nothing need come from the origin.",
        eight.together
    ))
}

fn two_jobs(setup: &Setup, two: &TwoJobs, out: &mut Output) -> Result<(), Failure> {
    out.line("")?;
    out.heading("Two jobs on one node: one dataset, one memory, an order for each")?;
    let samples = count(u64::from(setup.part().samples));
    out.line(format_args!("  {samples} samples"))?;
    let line = |row: &Row| {
        vec![
            row.system.policy.to_owned(),
            ratio(row.figures.hit_byte_ratio()),
            ratio(row.figures.ready_ratio()),
            ratio(row.busy),
            format!("{:.0} s", row.seconds),
        ]
    };
    let rows: Vec<_> = two.rows.iter().map(line).collect();
    table::show(
        &["policy", "hits", "ready", "GPU busy", "epoch"],
        &rows,
        out,
    )?;
    let (best, minio) = (hits(&two.rows, "farthest"), hits(&two.rows, "minio"));
    out.line(format_args!(
        "  Eviction by the future hits {:.2} times what MinIO does; Belady's MIN, all epochs of both jobs\n  in sight and the jobs in step, would hit {:.3}.",
        best / minio.max(f64::MIN_POSITIVE),
        two.ceiling
    ))
}

/// Lobster's rule, eviction by the exact future, and the optimum, side by side.
fn eviction(
    one: &OneNode,
    eight: &EightNodes,
    two: &TwoJobs,
    out: &mut Output,
) -> Result<(), Failure> {
    out.line("")?;
    out.heading("Eviction by the future: hits")?;
    let rows: Vec<_> = cases(one, eight, two)
        .into_iter()
        .map(|(case, rows, ceiling)| {
            vec![
                case.to_owned(),
                ratio(hits(rows, "reuse")),
                ratio(hits(rows, "farthest")),
                ratio(ceiling),
            ]
        })
        .collect();
    let header = ["", "2*I-h (reuse)", "farthest", "MIN"];
    table::show(&header, &rows, out)
}

type Case<'a> = (&'static str, &'a [Row], f64);

fn cases<'a>(one: &'a OneNode, eight: &'a EightNodes, two: &'a TwoJobs) -> [Case<'a>; 3] {
    [
        ("one node", &one.rows, one.ceiling),
        ("eight nodes, no peers", &eight.rows[0], eight.ceiling),
        ("two jobs", &two.rows, two.ceiling),
    ]
}

fn hits(rows: &[Row], policy: &str) -> f64 {
    let row = rows.iter().find(|row| row.system.policy == policy);
    row.map_or(0.0, |row| row.figures.hit_byte_ratio())
}

fn document(setup: &Setup, one: &OneNode, eight: &EightNodes, two: &TwoJobs) -> Value {
    let rows = |rows: &[Row]| rows.iter().map(object).collect::<Vec<_>>();
    let eviction: Vec<_> = cases(one, eight, two)
        .into_iter()
        .map(|(case, rows, ceiling)| {
            json!({
                "case": case,
                "reuse": hits(rows, "reuse"),
                "farthest": hits(rows, "farthest"),
                "optimum": ceiling,
            })
        })
        .collect();
    let part = setup.part();
    json!({
        "paper": "lobster",
        "settings": {
            "samples": setup.samples,
            "bytes": setup.bytes,
            "memory": setup.memory,
            "ranks": RANKS,
            "batch_size": BATCH,
            "step_seconds": STEP,
            "origin_bytes_per_second": ORIGIN,
            "origin_bytes_per_second_each": EACH,
            "peer_bytes_per_second": PEER,
            "batches_ahead": {"lru": AHEAD_OF_TORCH, "dali": AHEAD_OF_DALI, "minio": AHEAD_OF_DALI,
                "nopfs": AHEAD, "reuse": AHEAD, "farthest": AHEAD},
        },
        "ceiling": one.ceiling,
        "rows": rows(&one.rows),
        "nodes": {
            "nodes": 8,
            "samples": part.samples,
            "ceiling": eight.ceiling,
            "memory_of_all": eight.together,
            "without_peers": rows(&eight.rows[0]),
            "with_peers": rows(&eight.rows[1]),
        },
        "jobs": {
            "jobs": 2,
            "samples": part.samples,
            "ceiling": two.ceiling,
            "rows": rows(&two.rows),
        },
        "eviction": eviction,
    })
}

fn object(row: &Row) -> Value {
    let figures = &row.figures;
    let bytes = figures.bytes.max(1) as f64;
    json!({
        "policy": row.system.policy,
        "loader": row.system.loader,
        "hit_ratio": figures.hit_byte_ratio(),
        "hit_ratio_of_samples": figures.hit_ratio(),
        "ready_ratio": figures.ready_ratio(),
        "paper": row.system.paper,
        "gpu_busy": row.busy,
        "paper_gpu_busy": row.system.paper_busy,
        "peer_ratio": figures.peer_bytes as f64 / bytes,
        "origin_ratio": figures.read_bytes as f64 / bytes,
        "imbalanced": row.imbalanced,
        "epoch_seconds": row.seconds,
    })
}
