"""The bottleneck shifts: the origin slows down in mid-run, later decoding gets dearer by three.

    phase           delay of the slow files     images
    normal                 0 ms                 500x375, 100 KB
    slow origin           10 ms                 the same
    dear decoding          2 ms                 1000x750, 400 KB

One loader, eight threads, files in their order, taken as fast as they come. Every static split
goes through all phases, and each phase has its own best one; the crew goes through them once, and
is judged in each by what it gives after the phase's first 20 batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from crew_life import Run, in_a_process
from crew_origins import dear_photos, linked, photos, slow_files
from report import Progress, table

PHASES = ("normal", "slow origin", "dear decoding")
DELAYS_MS = (0, 10, 2)
# Batches of a phase that do not count: the crew may take so long, and what was fetched ahead
# under the phase before is gone by then.
FIRST = 20
READAHEAD = "16MiB"


@dataclass(frozen=True)
class Scale:
    """How much is measured; batches are of one phase."""

    threads: int = 8
    batch: int = 64
    batches: int = 50
    repetitions: int = 2
    # How many of a phase's best splits are run again.
    again: int = 2


def splits(threads: int) -> list[tuple[int, int]]:
    """All of them."""
    return [(load, threads - load) for load in range(1, threads)]


def rates(found: dict[str, Any], scale: Scale) -> list[float]:
    """Samples a second of each phase, after its first batches."""
    came = found["came"]
    result = []
    for phase in range(len(PHASES)):
        start, end = phase * scale.batches + FIRST, (phase + 1) * scale.batches
        seconds = came[end - 1] - came[start - 1]
        result.append((end - start) * scale.batch / seconds)
    return result


def dearer(scale: Scale) -> float:
    """How much dearer the dear images are: by a loader's CPU, its start apart."""
    files, dear = photos()[:800], dear_photos()
    cost = []
    with linked({"normal/class": files, "dear/class": dear}) as root:
        for name in ("normal", "dear"):
            settings = {"epochs": 3}
            run = Run("rate", (str(root / name),), 2, batch=scale.batch, settings=settings)
            found = in_a_process(run)
            if not found:
                raise SystemExit("the images could not be decoded: no figures")
            cost.append(min(epoch["cpu"] / epoch["samples"] for epoch in found["epochs"][1:]))
    return float(cost[1] / cost[0])


def folders(scale: Scale) -> dict[str, list[Any]]:
    """The phases' images, and a batch or two more."""
    normal = photos()[: 2 * scale.batches * scale.batch]
    dear = dear_photos()
    wanted = (scale.batches + 2) * scale.batch
    return {"a-normal": normal, "b-dear": (dear * (wanted // len(dear) + 1))[:wanted]}


def measure(runs: list[Run], scale: Scale) -> dict[str, list[float]]:
    """The best rates of each run, phase by phase: all once, then the crew and the best again."""
    best: dict[str, list[float]] = {}
    crew, left = runs[0].name(), list(runs)
    for turn in range(scale.repetitions):
        progress = Progress(f"shift, turn {turn + 1}", len(left))
        for run in left:
            found = in_a_process(run)
            if found:
                new = rates(found, scale)
                old = best.get(run.name(), new)
                best[run.name()] = [max(pair) for pair in zip(old, new, strict=True)]
            progress.step()
        progress.close()
        names = {crew}
        for phase in range(len(PHASES)):
            order = sorted(best, key=lambda name: -best[name][phase])
            names |= set([name for name in order if name != crew][: scale.again])
        left = [run for run in runs if run.name() in names]
    if crew not in best or len(best) < 2:
        raise SystemExit("the crew or every split failed: no figures")
    return best


def run(scale: Scale) -> dict[str, Any]:
    """All splits and the crew through all phases."""
    factor = dearer(scale)
    with linked(folders(scale)) as root, slow_files(root) as origin:
        settings = {"delays_ms": DELAYS_MS, "batches": scale.batches}
        engine = {"memory": "256MiB", "readahead": READAHEAD, "policy": "none"}
        crew = Run("phases", (origin.source,), scale.threads, batch=scale.batch)
        crew = replace(crew, **origin.settings(), engine=engine, settings=settings)
        static = [replace(crew, split=split) for split in splits(scale.threads)]
        best = measure([crew, *static], scale)
    return report(crew.name(), best, scale, factor)


def report(crew: str, best: dict[str, list[float]], scale: Scale, factor: float) -> dict[str, Any]:
    """Prints the rates and the claims; gives them."""
    rows = [[name, *(f"{rate:,.0f}" for rate in found)] for name, found in best.items()]
    title = f"{scale.threads} threads, batches of {scale.batch}, from batch {FIRST + 1} of a phase"
    print(f"\n### Shift of bottleneck: {title}; decoding is {factor:.1f}x dearer at last\n")
    print(table(["samples/s", *PHASES], rows))
    lines, claims = [], {}
    for phase, name in enumerate(PHASES):
        split = max((other for other in best if other != crew), key=lambda n: best[n][phase])
        claims[name] = best[crew][phase] / best[split][phase]
        lines.append([name, split, f"{claims[name]:.2f}", ">= 0.90"])
    print("\n" + table(["phase", "best", "crew / best", "wanted"], lines), flush=True)
    return {"threads": scale.threads, "dearer": factor, "rates": best, "claims": claims}
