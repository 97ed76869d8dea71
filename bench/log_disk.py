"""Cold page cache, raw bytes, two cores: the second epoch from the log against other readers.

All read the same samples from the same disk, in processes of their own, in turn, several times
over; the best of each counts. Before every epoch the page cache is dropped. forebay's log is
there after its first epoch; its memory is a fraction of the samples. A new process with nothing
in memory reads the log too. fio says in the same run what the disk gives to one long read.

DALI shuffles within 1,000 samples and else reads in the order of names, FFCV's own reader
within pages of 8 MB; forebay and torch shuffle all.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from loaders import Contender, files
from log_files import Fio, disk_used, must_be_root, scratch
from log_life import Life, in_a_process, rate
from report import table

SECOND = "forebay, second epoch"
THIRD = "forebay, third epoch"
FRESH = "forebay, new process"
WORKERS = (1, 2, 4, 8)


def peers(root: Path) -> dict[str, Life]:
    """The others, as far as they are installed, by name."""
    found = {f"torch, {n} workers": Life("torch", str(root), n) for n in WORKERS}
    if not Contender("", "dali").missing():
        for way, mapped in (("mmap", True), ("read", False)):
            found[f"DALI, {way}"] = Life("dali", str(root), options={"mapped": mapped})
    if not Contender("", "ffcv").missing():
        from peers import raw

        beton = str(raw.convert_ffcv(root))
        for way, mapped in (("mmap, full shuffle", True), ("own reader, by pages", False)):
            # The first epoch compiles.
            life = Life("ffcv", beton, epochs=3, options={"mapped": mapped})
            found[f"FFCV, {way}"] = life
    return found


def check(epochs: list[dict[str, Any]], samples: int, size: int) -> None:
    """A loader that gives less is not fast; DALI's epochs overlap by what it shuffles."""
    for found in epochs:
        assert found["samples"] == samples, (found, samples)
        assert abs(found["bytes"] - size) <= size // 50, (found, size)


def forebay_lives(root: Path, directory: Path, memory: str) -> dict[str, dict[str, Any]]:
    """Three epochs with a new log, and one of a new process on the same."""
    cache = directory / "cache"
    options = {"cache_dir": str(cache), "disk": "1TiB", "memory": memory, "layout": "auto"}
    try:
        run = in_a_process(Life("forebay", str(root), epochs=3, options=options), "forebay")
        again = options | {"seed": 2}
        fresh = in_a_process(Life("forebay", str(root), epochs=1, options=again), FRESH)
        found = dict(zip(("forebay, first epoch", SECOND, THIRD), run, strict=False))
        if fresh:
            found[FRESH] = fresh[0]
        for epoch in found.values():
            epoch["disk_used"] = disk_used(cache)
        return found
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def best(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest of them, with what it is made of."""
    fastest = max(epochs, key=rate)
    samples_s = rate(fastest)
    mean = fastest["bytes"] / fastest["samples"]
    rates = {"samples_s": samples_s, "bytes_s": samples_s * mean}
    if "request_bytes" in fastest:
        read = fastest["request_bytes"] - fastest["ahead_bytes"]
        rates["disk_bytes_s"] = read / fastest["seconds"]
    rates["cpu_per_1000"] = 1000 * min(epoch["cpu"] / epoch["samples"] for epoch in epochs)
    return {**fastest, **rates}


def wanted(results: dict[str, dict[str, Any]], fio: float, torch: float) -> list[list[Any]]:
    """The claims: what forebay's second epoch is to be, and what it is."""
    ours = results[SECOND]

    def fastest(word: str) -> float:
        return max((r["samples_s"] for name, r in results.items() if word in name), default=0)

    claims = [("torch, best of all", fastest("torch,"), torch)]
    claims += [("DALI, best of both", fastest("DALI,"), 1.5)]
    claims += [("FFCV, best of both", fastest("FFCV,"), 1.5)]
    found = [[name, ours["samples_s"] / rate, least] for name, rate, least in claims if rate]
    if fio:
        found.append(["fio, bytes handed out", ours["bytes_s"] / fio, 0.8])
        found.append(["fio, bytes read from the log", ours["disk_bytes_s"] / fio, 0.8])
        if FRESH in results:
            found.append(["fio, a new process", results[FRESH]["bytes_s"] / fio, 0.8])
    return found


def report(results: dict[str, dict[str, Any]], ratios: list[list[Any]], fio: float) -> None:
    """Prints the table and the claims."""
    rows = []
    for name, found in results.items():
        row = [name, f"{found['samples_s']:,.0f}", f"{found['bytes_s'] / 1e6:,.0f}"]
        row.append(f"{found['disk_bytes_s'] / 1e6:,.0f}" if "disk_bytes_s" in found else "-")
        row.append(f"{found['cpu_per_1000']:.3f}")
        row += [str(found.get(key, "-")) for key in ("log_hits", "memory_hits", "origin_reads")]
        rows.append(row)
    if fio:
        rows.append(["fio, 4 MiB, direct", "-", f"{fio / 1e6:,.0f}", *["-"] * 5])
    header = ["cold epoch", "samples/s", "MB/s", "log MB/s", "CPU s/1000"]
    print(table([*header, "log hits", "memory hits", "origin reads"], rows))
    lines = [[name, f"{ratio:.2f}", f"{least:.1f}"] for name, ratio, least in ratios]
    print("\n" + table(["forebay's second epoch against", "ratio", "wanted"], lines))


def run(root: Path, torch: float, memory: str, repetitions: int) -> dict[str, Any]:
    """Measures one set of files; `torch` is the ratio that is wanted against torch."""
    must_be_root("dropping the page cache")
    others = peers(root)
    samples = files(root)
    size = sum(Path(path).stat().st_size for path, _ in samples)
    print(f"\n### {len(samples):,} files of {size / len(samples) / 1e3:.0f} KB\n", flush=True)
    lives: dict[str, list[dict[str, Any]]] = {}
    speeds: list[dict[int, float]] = []
    with scratch(3 * size) as directory:
        fio = Fio(directory, size)
        for _ in range(repetitions):
            for name, found in forebay_lives(root, directory, memory).items():
                check([found], len(samples), size)
                lives.setdefault(name, []).append(found)
            speeds.append(fio.read())
            for name, life in others.items():
                epochs = in_a_process(life, name)
                check(epochs, len(samples), size)
                lives.setdefault(name, []).extend(epochs)
    results = {name: best(found) for name, found in lives.items() if found}
    if SECOND not in results:
        raise SystemExit("forebay did not run: no figures")
    sequential = max((speed for found in speeds for speed in found.values()), default=0.0)
    ratios = wanted(results, sequential, torch)
    report(results, ratios, sequential)
    figures = {"samples": len(samples), "bytes": size, "memory": memory, "fio": speeds}
    return {**figures, "results": results, "ratios": ratios}
