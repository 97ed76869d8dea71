"""Load balance: four ranks whose batches have unequal shares from the origin.

The ranks are threads of one process with one engine, and go in lockstep: a fixed step, then a
barrier, as the all-reduce of a data-parallel job. Before the run 90, 60, 30 and 0% of the ranks'
samples are brought into memory (policy `minio`: what is in stays in), so that each batch of the
last rank has to come from the origin, and a tenth of the first rank's. An iteration is
imbalanced if its slowest rank waits longer than a tenth of the step.

The crew, which may put any thread to any rank, stands against equal static splits: of so many
loading threads (in a bucket: requests in flight) each rank has its quarter. All splits that are
equal are tried, the best counts.

The second table is the paper's ablation: ranks with datasets of 5, 10, 20 and 40 iterations over
and over, and memory for most of them. Eviction by the future is policy `farthest`, and "off" is
`lru`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

from crew_life import Run, in_a_process
from crew_origins import IMAGE_BYTES, Origin, bucket, linked, photos, slow_files
from report import Progress, table

WARM = (0.9, 0.6, 0.3, 0.0)
BATCH = 32
STEP_MS = 200
# A sample takes two delays of the slow files, and one request of the bucket.
DELAY_MS = 10
BUCKET_DELAY_MS = 60
BUCKET_REQUESTS = 24
# The ablation: so slow that without balance or without eviction the step is too short.
ABLATION_BATCH, ABLATION_STEP_MS, ABLATION_DELAY_MS = 16, 100, 40
# Of the images of all ranks, so many find room in memory there, beside what is fetched ahead.
FITS = 0.7
AHEAD = 16 << 20


@dataclass(frozen=True)
class Scale:
    """How much is measured. The first iterations count by themselves: the window fills, and the
    crew finds out."""

    threads: int = 10
    first: int = 20
    iterations: int = 80
    repetitions: int = 2
    # How many of the best splits are run again.
    again: int = 2
    # Iterations after which each rank of the ablation begins anew.
    lengths: tuple[int, ...] = (5, 10, 20, 40)


def splits(threads: int, every: int) -> list[tuple[int, int]]:
    """All whose loading threads are a multiple of `every`: of any other number of threads some
    ranks would have more. Requests in flight are equal whatever the threads."""
    return [(load, threads - load) for load in range(every, threads, every)]


def summary(run: Run, found: dict[str, Any], first: int) -> dict[str, Any]:
    """Seconds and shares of imbalanced iterations: of all, and after the first ones."""
    worst = [max(waits) for waits in zip(*found["waits"], strict=True)]
    limit = 0.1 * run.settings["step_ms"] / 1e3
    imbalanced = [wait > limit for wait in worst]
    ends = found["ends"]
    reads = [
        after.get("origin_reads", 0) - before.get("origin_reads", 0)
        for before, after in zip(found["before"], found["after"], strict=True)
    ]
    return {
        "name": run.name(),
        "seconds": ends[-1] - ends[first - 1],
        "imbalanced": sum(imbalanced[first:]) / len(imbalanced[first:]),
        "all_seconds": ends[-1],
        "all_imbalanced": sum(imbalanced) / len(imbalanced),
        "mean_waits": [sum(waits[first:]) / len(waits[first:]) for waits in found["waits"]],
        "origin_reads": reads,
        "after": found["after"],
    }


def measure(runs: list[Run], scale: Scale, what: str) -> list[dict[str, Any]]:
    """Each run once; then the crew and the best splits again. The best of each counts."""
    best: dict[str, dict[str, Any]] = {}
    crew, left = runs[0].name(), list(runs)
    for turn in range(scale.repetitions):
        progress = Progress(f"{what}, turn {turn + 1}", len(left))
        for run in left:
            found = in_a_process(run)
            if found:
                result = summary(run, found, scale.first)
                known = best.get(run.name())
                if known is None or result["seconds"] < known["seconds"]:
                    best[run.name()] = result
            progress.step()
        progress.close()
        order = sorted(best.values(), key=lambda result: float(result["seconds"]))
        fast = [result["name"] for result in order if result["name"] != crew]
        names = {crew, *fast[: scale.again]}
        left = [run for run in runs if run.name() in names]
    if crew not in best or len(best) < 2:
        raise SystemExit(f"{what}: the crew or every split failed: no figures")
    return [best.pop(crew), *best.values()]


def compared(run: Run, scale: Scale, what: str) -> dict[str, Any]:
    """The crew against all splits."""
    every = 2 if run.storage_options else len(WARM)
    static = [replace(run, split=split) for split in splits(scale.threads, every)]
    results = measure([run, *static], scale, what)
    crew, *others = results
    best = min(others, key=lambda result: float(result["seconds"]))
    return {"results": results, "crew": crew, "static": best}


def report(title: str, found: dict[str, Any], scale: Scale) -> dict[str, Any]:
    """Prints all runs and the claims; gives the claims."""
    rows = []
    for result in found["results"]:
        waits = [f"{1e3 * wait:,.0f}" for wait in result["mean_waits"]]
        row = [result["name"], f"{result['seconds']:.2f}", f"{result['imbalanced']:.0%}"]
        row += [f"{result['all_seconds']:.2f}", f"{result['all_imbalanced']:.0%}"]
        rows.append([*row, " ".join(waits)])
    measured = scale.iterations - scale.first
    header = ["", f"s, last {measured}", "imbalanced", "s, all", "imbalanced", "mean waits, ms"]
    print(f"\n### {title}\n\n{table(header, rows)}")
    crew, static = found["crew"], found["static"]
    claims = {
        "speedup": static["seconds"] / crew["seconds"],
        "imbalanced_of_static": crew["imbalanced"] / max(static["imbalanced"], 1e-9),
        "all_speedup": static["all_seconds"] / crew["all_seconds"],
        "all_imbalanced_of_static": crew["all_imbalanced"] / max(static["all_imbalanced"], 1e-9),
    }
    lines = [
        ["total time, static / crew", "speedup", ">= 1.20"],
        ["imbalanced iterations, crew / static", "imbalanced_of_static", "<= 0.50"],
    ]
    rows = [[words, f"{claims[k]:.2f}", f"{claims['all_' + k]:.2f}", w] for words, k, w in lines]
    against = f"crew against {static['name']}, the best"
    print("\n" + table([against, f"last {measured}", "all", "wanted"], rows), flush=True)
    return {**found, "claims": claims}


def lockstep(scale: Scale, origin: Origin, sources: tuple[str, ...], **changes: Any) -> Run:
    """Four ranks on an origin."""
    settings = {"iterations": scale.iterations, "step_ms": STEP_MS, **changes.pop("settings")}
    changes = {"batch": BATCH, **changes, **origin.settings()}
    return Run("ranks", sources, scale.threads, settings=settings, **changes)


def warm_run(scale: Scale, origin: Origin, **changes: Any) -> Run:
    """Four ranks of one dataset, of which memory holds unequal shares."""
    engine = {"memory": "2GiB", "readahead": "64MiB", "policy": "minio"}
    settings = {"warm": WARM}
    return lockstep(scale, origin, (origin.source,), engine=engine, settings=settings, **changes)


def count(scale: Scale) -> int:
    """Images for all iterations, and as many more as may be fetched ahead."""
    return (scale.iterations + 10) * BATCH * len(WARM)


def on_files(scale: Scale) -> dict[str, Any]:
    """The slow files."""
    with linked({"class": photos()[: count(scale)]}) as root, slow_files(root) as origin:
        run = warm_run(scale, origin, delay_ms=DELAY_MS)
        found = compared(run, scale, "slow files")
    title = f"Slow files, {DELAY_MS} ms an open and a read"
    return report(f"{title}, {scale.threads} threads, a step of {STEP_MS} ms", found, scale)


def in_a_bucket(scale: Scale) -> dict[str, Any]:
    """The bucket: requests in flight are what is dealt there."""
    with bucket(count(scale)) as origin:
        requests = {"requests_in_flight": BUCKET_REQUESTS}
        run = warm_run(scale, origin, delay_ms=BUCKET_DELAY_MS, read_options=requests)
        found = compared(run, scale, "bucket")
    title = f"S3, {BUCKET_DELAY_MS} ms a request, {BUCKET_REQUESTS} in flight"
    return report(f"{title}, {scale.threads} threads, a step of {STEP_MS} ms", found, scale)


def ablation(scale: Scale) -> dict[str, Any]:
    """Crew on and off, eviction on and off: measured when the longest dataset begins anew."""
    longest = max(scale.lengths)
    scale = replace(scale, first=longest, iterations=2 * longest)
    files, folders, at = photos(), {}, 0
    for rank, length in enumerate(scale.lengths):
        folders[f"rank{rank}/class"] = files[at : at + length * ABLATION_BATCH]
        at += length * ABLATION_BATCH
    memory = int(FITS * at * IMAGE_BYTES) + AHEAD
    rows, found = [], {}
    with linked(folders) as root, slow_files(root) as origin:
        sources = tuple(f"{origin.source}/rank{rank}" for rank in range(len(scale.lengths)))
        for policy in ("lru", "farthest"):
            engine = {"memory": memory, "readahead": AHEAD, "policy": policy}
            slow = {"batch": ABLATION_BATCH, "delay_ms": ABLATION_DELAY_MS}
            step = {"step_ms": ABLATION_STEP_MS}
            run = lockstep(scale, origin, sources, engine=engine, settings=step, **slow)
            found[policy] = compared(run, scale, f"ablation, {policy}")
    base = found["lru"]["static"]["seconds"]
    for policy, words in (("lru", "off (lru)"), ("farthest", "on (farthest)")):
        for side in ("static", "crew"):
            result = found[policy][side]
            row = ["on" if side == "crew" else f"off ({result['name']})", words]
            row += [f"{result['seconds']:.2f}", f"{result['imbalanced']:.0%}"]
            row += [f"{sum(result['origin_reads']):,}", f"{base / result['seconds']:.2f}x"]
            rows.append(row)
    header = ["crew", "eviction", f"s, last {longest}", "imbalanced", "origin reads", "of off/off"]
    where = f"slow files, {ABLATION_DELAY_MS} ms an open and a read, {scale.threads} threads"
    print(f"\n### Ablation: {where}, a step of {ABLATION_STEP_MS} ms\n")
    print(table(header, rows), flush=True)
    return found


TABLES = {"files": on_files, "bucket": in_a_bucket, "ablation": ablation}


def run(scale: Scale, wanted: list[str]) -> dict[str, Any]:
    """The tables that are asked for; one that cannot be made is said so."""
    found: dict[str, Any] = {}
    for name in wanted:
        try:
            found[name] = TABLES[name](scale)
        except SystemExit as error:
            if str(error) == "stopped" or len(wanted) == 1:
                raise
            print(f"balance, {name}: {error}", file=sys.stderr)
    if not found:
        raise SystemExit("no table of this part could be made")
    settings = {"step_ms": STEP_MS, "batch": BATCH, "warm": WARM, "threads": scale.threads}
    return {"settings": settings, **found}
