"""No cost when idle: the loader's CPU where training is the slower side.

The consumer sleeps for a step after each batch, longer than the loader needs for one. What counts
is the CPU of the process but the consumer's own thread, from the time when all has settled, so
that the window is full at both ends: the same work for all. The crew, of fixed and of automatic
size, stands against as many threads in two fixed halves.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import images
from crew_life import Run, in_a_process
from crew_origins import slow_files
from prepared import warm
from report import Progress, table

DELAY_MS = 2
STEP_MS = 150


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    threads: int = 4
    skip: int = 20
    batches: int = 60
    repetitions: int = 5


def cases(scale: Scale, stack: ExitStack) -> dict[str, Run]:
    """What is read, with the crew."""
    root = images.make(images.Settings())
    warm(root)
    settings = {"skip": scale.skip, "batches": scale.batches, "step_ms": STEP_MS}
    engine = {"memory": "256MiB", "readahead": "64MiB", "policy": "none"}
    base = Run("steps", (str(root),), scale.threads, batch=64, engine=engine, settings=settings)
    found = {
        "raw, local": replace(base, images=False, batch=256),
        "images, local": base,
    }
    try:
        origin = stack.enter_context(slow_files(root))
    except SystemExit as error:
        print(f"idle: {error}", flush=True)
        return found
    slow = replace(base, sources=(origin.source,), delay_ms=DELAY_MS, **origin.settings())
    return {**found, "images, slow files": slow}


def contenders(run: Run, scale: Scale) -> dict[str, Run]:
    """The fixed halves first: the others are compared with them."""
    half = scale.threads // 2
    runs = [replace(run, split=(half, scale.threads - half)), run, replace(run, threads="auto")]
    return {run.name(): run for run in runs}


def run(scale: Scale) -> dict[str, Any]:
    """All cases, each contender in turn."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    with ExitStack() as stack:
        wanted = cases(scale, stack)
        progress = Progress("idle", scale.repetitions * len(wanted) * 3)
        for _ in range(scale.repetitions):
            for case, base in wanted.items():
                for name, contender in contenders(base, scale).items():
                    found = in_a_process(contender)
                    if found:
                        keep(results.setdefault(case, {}), name, found, scale)
                    progress.step()
        progress.close()
    return report(results)


def keep(best: dict[str, dict[str, float]], name: str, found: dict[str, Any], scale: Scale) -> None:
    """The least CPU of the repetitions, with the waits of that run."""
    cpu = 1000 * found["cpu"] / found["samples"]
    if name not in best or cpu < best[name]["cpu"]:
        best[name] = {"cpu": cpu, "waited_ms": 1000 * found["waited"] / scale.batches}


def report(results: dict[str, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Prints CPU and ratios; gives them."""
    rows, claims = [], {}
    for case, found in results.items():
        fixed = next((name for name in found if name.startswith("split")), None)
        for name, result in found.items():
            row = [case, name, f"{result['cpu']:.4f}", f"{result['waited_ms']:.1f}"]
            if fixed is None or name == fixed:
                rows.append([*row, "", ""])
            else:
                claims[f"{case}: {name}"] = ratio = result["cpu"] / found[fixed]["cpu"]
                rows.append([*row, f"{ratio:.3f}", "<= 1.03"])
    if not claims:
        raise SystemExit("nothing to compare: no figures")
    header = ["", "threads", "CPU s/1000 samples", "wait, ms a batch", "of fixed", "wanted"]
    print(f"\n### Idle: a step of {STEP_MS} ms\n\n{table(header, rows)}", flush=True)
    return {"step_ms": STEP_MS, "results": results, "claims": claims}
