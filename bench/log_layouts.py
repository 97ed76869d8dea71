"""The layouts side by side, where the log has room for all samples, for half and for a quarter.

Samples that do not fit come from the origin in every epoch; the least that is possible are those
that fit neither on the disk nor in memory. The page cache is dropped before each epoch.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from loaders import files
from log_files import disk_used, must_be_root, scratch
from log_life import Life, in_a_process, rate
from report import table

LAYOUTS = ("packed", "reorder", "auto")
SHARES = (1.0, 0.5, 0.25)


def measure(
    root: Path,
    cache: Path,
    layout: str,
    disk: int,
    memory: str,
    epochs: int,
    before_exec: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """A life with a new log; empty if this layout does not run."""
    options = {"cache_dir": str(cache), "disk": disk, "memory": memory, "layout": layout}
    life = Life("forebay", str(root), epochs=epochs, options=options)
    try:
        found = in_a_process(life, f"{layout}, {disk / 1e6:,.0f} MB", before_exec)
        used = disk_used(cache) if cache.exists() else 0
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    if not found:
        return {}
    later = found[1:]
    return {
        "asked": layout,
        # What `auto` ends with may not be what it begins with.
        "used": " > ".join(dict.fromkeys(str(epoch["layout"]) for epoch in found)),
        "disk": disk,
        "disk_used": used,
        "rates": [rate(epoch) for epoch in found],
        "written_bytes": [epoch["written_bytes"] for epoch in found],
        "origin_reads": [epoch["origin_reads"] for epoch in found],
        "log_hits": [epoch["log_hits"] for epoch in found],
        "requests": [epoch["requests"] for epoch in found],
        "kept_samples": max(epoch["kept_samples"] for epoch in later),
    }


def least_reads(found: dict[str, Any], samples: int, mean: float) -> int:
    """Origin reads of an epoch that no cache of this size could save."""
    return max(0, int(samples - found["disk"] // mean - found["kept_samples"]))


def joined(figures: list[float], unit: float = 1) -> str:
    """Figures of epochs, one after another."""
    return " / ".join(f"{figure / unit:,.0f}" for figure in figures)


def report(results: list[dict[str, Any]], samples: int, size: int, where: str = "") -> None:
    """Prints a line for each layout and share."""
    rows = []
    for found in results:
        least = found["least_origin_reads"]
        later = sum(found["origin_reads"][1:]) / max(1, len(found["origin_reads"]) - 1)
        row = [f"{found['asked']}, {found['disk'] / size:.0%}", found["used"]]
        row += [joined(found["rates"][1:]), joined(found["written_bytes"], 1e6)]
        row += [f"{found['disk_used'] / 1e6:,.0f}", joined(found["origin_reads"])]
        row += [f"{least:,}", f"{later / least:.2f}" if least else "-"]
        rows.append(row)
    header = ["layout, disk", "used", "samples/s, epochs 2..", "MB written, epochs 1.."]
    header += ["MB on disk", "origin reads, epochs 1..", "least", "of the least"]
    print(f"\n### Layouts: {samples:,} samples of {size / samples / 1e3:.0f} KB{where}\n")
    print(table(header, rows), flush=True)


def better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The first, with the higher rate of each epoch: a busy machine is not the layout's."""
    if not one or not other:
        return one or other
    rates = [max(pair) for pair in zip(one["rates"], other["rates"], strict=True)]
    return {**one, "rates": rates}


def run(root: Path, memory: str, epochs: int, repetitions: int) -> dict[str, Any]:
    """All layouts with all shares, in turn, several times over."""
    must_be_root("dropping the page cache")
    samples = files(root)
    size = sum(Path(path).stat().st_size for path, _ in samples)
    lives: dict[tuple[float, str], dict[str, Any]] = {}
    with scratch(3 * size) as directory:
        for _ in range(repetitions):
            for share, layout in product(SHARES, LAYOUTS):
                disk = int(share * size)
                found = measure(root, directory / "cache", layout, disk, memory, epochs)
                lives[share, layout] = better(lives.get((share, layout), {}), found)
    results = []
    for found in filter(None, lives.values()):
        least = least_reads(found, len(samples), size / len(samples))
        results.append({**found, "least_origin_reads": least})
    if not results:
        raise SystemExit("no layout ran: no figures")
    report(results, len(samples), size)
    return {"samples": len(samples), "bytes": size, "memory": memory, "results": results}
