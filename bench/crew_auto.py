"""`num_workers="auto"` against numbers picked by hand.

Three sources: raw bytes of local files in the page cache, decoded and augmented images of the
same, and raw bytes from a bucket that answers after 10 ms. Nothing stays in memory (policy
`none`), so every epoch is alike; the making of the loader and all that `auto` has to find out
counts.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import images
from crew_life import Run, in_a_process
from crew_origins import bucket
from prepared import warm
from report import Progress, table

DELAY_MS = 10
BY_HAND = (1, 2, 4, 8, 16)
BATCH = 256


@dataclass(frozen=True)
class Scale:
    """How much is measured: epochs of each source, objects in the bucket."""

    raw_epochs: int = 8
    image_epochs: int = 1
    objects: int = 4000
    object_epochs: int = 4
    repetitions: int = 3


def cases(scale: Scale, stack: ExitStack) -> dict[str, Run]:
    """What is read."""
    root = images.make(images.Settings())
    warm(root)
    engine = {"memory": "512MiB", "policy": "none"}
    base = Run("rate", (str(root),), batch=BATCH, images=False, engine=engine)
    origin = stack.enter_context(bucket(scale.objects))
    far = replace(base, sources=(origin.source,), delay_ms=DELAY_MS, **origin.settings())
    return {
        "raw, local": replace(base, settings={"epochs": scale.raw_epochs}),
        "images, local": replace(base, images=True, settings={"epochs": scale.image_epochs}),
        f"raw, S3 + {DELAY_MS} ms": replace(far, settings={"epochs": scale.object_epochs}),
    }


def rate(found: dict[str, Any]) -> float:
    """Samples a second of the whole run."""
    samples = sum(epoch["samples"] for epoch in found["epochs"])
    return float(samples / sum(epoch["seconds"] for epoch in found["epochs"]))


def run(scale: Scale) -> dict[str, Any]:
    """All numbers in turn, several times; the best of each counts."""
    results: dict[str, dict[str, float]] = {}
    last: dict[str, Any] = {}
    with ExitStack() as stack:
        wanted = cases(scale, stack)
        numbers: list[int | str] = ["auto", *BY_HAND]
        progress = Progress("auto", scale.repetitions * len(wanted) * len(numbers))
        for turn in range(scale.repetitions):
            # Another one first each time: nobody always comes right after another source.
            first = turn % len(numbers)
            for case, base in wanted.items():
                for number in numbers[first:] + numbers[:first]:
                    found = in_a_process(replace(base, threads=number))
                    if found:
                        best = results.setdefault(case, {})
                        best[str(number)] = max(rate(found), best.get(str(number), 0.0))
                        if number == "auto":
                            last[case] = found["after"]
                    progress.step()
        progress.close()
    return {**report(results), "crew": last}


def report(results: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Prints rates and ratios; gives them."""
    rows, claims = [], {}
    numbers = ["auto", *map(str, BY_HAND)]
    for case, found in results.items():
        row = [case, *(f"{found[n]:,.0f}" if n in found else "-" for n in numbers)]
        by_hand = [found[n] for n in numbers[1:] if n in found]
        if "auto" in found and by_hand:
            claims[case] = found["auto"] / max(by_hand)
        rows.append([*row, f"{claims[case]:.3f}" if case in claims else "-", ">= 0.95"])
    if not claims:
        raise SystemExit("nothing to compare: no figures")
    header = ["samples/s, num_workers=", *numbers, "auto / best", "wanted"]
    print(f"\n### Auto\n\n{table(header, rows)}", flush=True)
    return {"results": results, "claims": claims}
