//! LCache's table, for people and as JSON.

use forebay_sim::papers::lcache::{
    BATCH, CHUNKS, COMPUTE, FILES, FILES_OF_NOPFS, HALF, ORIGIN, RANKS, Row, Setup, System, WORKERS,
};
use serde_json::json;

use super::table::{self, maybe, ratio};
use crate::failure::Failure;
use crate::output::{Output, count};

pub(super) fn show(setup: &Setup, rows: &[Row], out: &mut Output) -> Result<(), Failure> {
    if out.json {
        return document(setup, rows, out);
    }
    out.heading("LCache, section IV: loading ImageNet-1K from local disks")?;
    out.field("samples", count(u64::from(setup.samples)))?;
    out.field(
        "ranks",
        format!("{RANKS}, {BATCH} samples a batch, {WORKERS} workers in all"),
    )?;
    out.field(
        "disk",
        format!(
            "files {:.2} GB/s (NoPFS {:.2}), chunks {:.1} GB/s: the paper's own, put in",
            FILES / 1e9,
            FILES_OF_NOPFS / 1e9,
            CHUNKS / 1e9
        ),
    )?;
    out.field(
        "origin",
        format!(
            "{:.3} GB/s, so that LCache has its 1.45 with half the disk",
            ORIGIN / 1e9
        ),
    )?;
    out.field(
        "computing",
        format!("{COMPUTE:.0} s an epoch, so that PyTorch waits as in the paper"),
    )?;
    let header = [
        "system",
        "from disk",
        "GB/s",
        "x torch",
        "paper",
        "waiting",
        "paper",
        "written",
    ];
    for (full, title) in [
        (true, "The whole dataset fits".to_owned()),
        (false, format!("{:.0} GB of disk for 138 GB", HALF / 1e9)),
    ] {
        out.line("")?;
        out.heading(&title)?;
        let part = rows.iter().filter(|row| row.full == full);
        let lines: Vec<_> = part
            .map(|row| {
                vec![
                    row.system.name().to_owned(),
                    ratio(row.log_ratio),
                    format!("{:.2}", row.throughput / 1e9),
                    format!("{:.2}", speedup(row, rows)),
                    row.paper
                        .map_or("-".to_owned(), |paper| format!("{paper:.2}")),
                    ratio(row.waiting),
                    maybe(row.paper_waiting),
                    format!("{:.0} GB", row.written / 1e9),
                ]
            })
            .collect();
        table::show(&header, &lines, out)?;
    }
    out.line("")?;
    out.line(
        "  packed is Forebay's log: one copy, written once and read with a deep queue; here with",
    )?;
    out.line(
        "  the throughput of chunks, which flash gives to deep queues too. written: in each epoch",
    )?;
    out.line(
        "  after the first. That the disk's own speed comes out in the first table is no result.",
    )
}

/// Throughput over torch's in the same case.
fn speedup(row: &Row, rows: &[Row]) -> f64 {
    let torch = rows
        .iter()
        .find(|other| other.full == row.full && other.system == System::Torch);
    torch.map_or(0.0, |torch| row.throughput / torch.throughput)
}

fn document(setup: &Setup, rows: &[Row], out: &mut Output) -> Result<(), Failure> {
    let object = |row: &Row| {
        json!({
            "system": row.system.name(),
            "disk": if row.full { "full" } else { "half" },
            "log_ratio": row.log_ratio,
            "bytes_per_second": row.throughput,
            "speedup": speedup(row, rows),
            "paper": row.paper,
            "waiting": row.waiting,
            "paper_waiting": row.paper_waiting,
            "bytes_written_per_epoch": row.written,
        })
    };
    out.document(&json!({
        "paper": "lcache",
        "settings": {
            "samples": setup.samples,
            "ranks": RANKS,
            "batch_size": BATCH,
            "workers": WORKERS,
            "disk_bytes_per_second": {
                "torch": FILES, "nopfs": FILES_OF_NOPFS, "lcache": CHUNKS, "packed": CHUNKS,
            },
            "origin_bytes_per_second": ORIGIN,
            "compute_seconds": COMPUTE,
        },
        "rows": rows.iter().map(object).collect::<Vec<_>>(),
    }))
}
