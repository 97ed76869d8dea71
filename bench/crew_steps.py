"""The origin's latency steps in mid-run: against a run that never knew another.

    0 ms for 8 s | 40 ms: 5 s to find out | 8 s that count          shifted
                   40 ms: 5 s to find out | 8 s that count          fresh

`num_workers="auto"`, batches of 16, a step of 50 ms, slow files whose opens and reads take the
delay. Shifted and fresh runs take turns, each in a process of its own; the best of each counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crew_life import Run, in_a_process
from crew_origins import linked, photos, slow_files
from report import Progress, table

BATCH = 16
STEP_MS = 50
WANTED = 1.2


@dataclass(frozen=True)
class Scale:
    """How much is measured, of which steps: milliseconds before and after, and images or not."""

    files: int = 2000
    before: float = 8.0
    given: float = 5.0
    measured: float = 8.0
    repetitions: int = 2
    steps: tuple[tuple[int, int, bool], ...] = (
        (0, 40, True),
        (0, 40, False),
        (5, 40, True),
        (5, 40, False),
        (40, 0, True),
        (40, 5, True),
    )


def named(before: int, after: int, images: bool) -> str:
    """A step, in words."""
    return f"{before} -> {after} ms, {'images' if images else 'raw'}"


def run(scale: Scale, files: list[Path] | None = None) -> dict[str, Any]:
    """Every step, and the fresh run that it is held against."""
    chosen = photos()[: scale.files] if files is None else files
    paces: dict[str, dict[str, float]] = {}
    crews: dict[str, Any] = {}
    with linked({"class": chosen}) as root, slow_files(root) as origin:
        engine = {"memory": "256MiB", "policy": "none"}
        base = Run("shifted", (origin.source,), batch=BATCH, engine=engine, **origin.settings())
        progress = Progress("steps", 2 * scale.repetitions * len(scale.steps))
        for _turn in range(scale.repetitions):
            for before, after, images in scale.steps:
                name = named(before, after, images)
                for kind, delays in {"fresh": [after], "shifted": [before, after]}.items():
                    settings = {
                        "delays_ms": delays,
                        "step_ms": STEP_MS,
                        "before_seconds": scale.before,
                        "given_seconds": scale.given,
                        "measured_seconds": scale.measured,
                    }
                    found = in_a_process(replace(base, images=images, settings=settings))
                    if found:
                        best = paces.setdefault(name, {})
                        if found["pace"] <= best.get(kind, found["pace"]):
                            best[kind] = found["pace"]
                            crews.setdefault(name, {})[kind] = found["after"]
                    progress.step()
        progress.close()
    return report(paces, crews)


def split(figures: dict[str, Any]) -> str:
    """Threads that prepare, and those that load."""
    crew = figures["crew"]
    return f"{crew['prepare']}/{sum(queue['load'] for queue in crew['queues'])}"


def report(paces: dict[str, dict[str, float]], crews: dict[str, Any]) -> dict[str, Any]:
    """Prints the paces and the claims; gives them."""
    rows, claims = [], {}
    for name, found in paces.items():
        if len(found) < 2:
            continue
        claims[name] = found["shifted"] / found["fresh"]
        cells = [f"{found[kind] * 1e3:.0f}, {split(crews[name][kind])}" for kind in found]
        rows.append([name, *cells, f"{claims[name]:.2f}", f"<= {WANTED:.2f}"])
    if not claims:
        raise SystemExit("nothing to compare: no figures")
    header = ["a step of the origin", "fresh: ms a batch, split", "shifted", "ratio", "wanted"]
    print(f"\n### Steps of latency\n\n{table(header, rows)}", flush=True)
    return {"paces": paces, "claims": claims, "crew": crews}
