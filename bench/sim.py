"""The simulator against reality: what `loader.what_if` foretells, and what then comes of it.

Six settings on a real dataset, three policies with memory for a quarter and for 60 % of it:

- hits, with one thread that fetches nothing ahead of the batches being filled, and is idle before
  each batch is taken: then the order in which samples are looked up and let go is defined, and the
  counts must be the same.
- seconds of an epoch, from slow files (a mount whose opens and reads are delayed, as of NFS) with
  the default readahead. What a read and a step cost is measured just before, by an epoch of a
  loader that keeps nothing, and put in by that loader itself.

    .venv/bin/python bench/sim.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import images
from crew_origins import slow_files
from report import Progress, save, table
from s3 import servers

POLICIES = ("farthest", "lru", "minio")
PARTS = (0.25, 0.6)
BATCH = 64
EPOCHS = 3
SEED = 1
THREADS = 4
STEP = 0.06
DELAY_MS = 3


def loader_of(source: str, **options: Any) -> Any:
    """A loader of plain files; every one with an index of its own."""
    import forebay

    settings = {"shuffle": True, "seed": SEED, "drop_last": True, "disk": 0, **options}
    return forebay.DataLoader(forebay.FileFolder(source), BATCH, **settings)


def wait_until_fetched(loader: Any, samples: int) -> dict[str, Any]:
    """Until so many samples were looked up, which is all that there is to do."""
    while True:
        stats: dict[str, Any] = loader.stats()
        if stats["memory_hits"] + stats["origin_reads"] >= samples:
            return stats
        time.sleep(0.001)


def hits(source: str, policy: str, memory: int) -> tuple[int, int]:
    """Foretold and counted, of all epochs and of what was fetched of the one after them."""
    loader = loader_of(source, policy=policy, memory=memory, num_workers=1, readahead=0)
    (row,) = loader.what_if(epochs=EPOCHS, step_ms=10_000)
    foretold = sum(part["memory_hits"] for part in [*row["epochs"], row["ahead"]])
    taken, stats = 0, {}
    for _ in range(EPOCHS):
        for _ in loader:
            taken += 1
            stats = wait_until_fetched(loader, (taken + loader._depth) * BATCH + 1)
    return int(foretold), stats["memory_hits"]


def seconds(loader: Any, epochs: int) -> list[float]:
    """How long each epoch takes, with a step of training after each batch."""
    found = []
    for _ in range(epochs):
        begun = time.perf_counter()
        for _ in loader:
            time.sleep(STEP)
        found.append(time.perf_counter() - begun)
    return found


def measured(source: str) -> Any:
    """A loader that knows what a read and a step cost here."""
    loader = loader_of(source, policy="none", memory="256MiB", num_workers=THREADS)
    seconds(loader, 1)
    return loader


def run(root: Path) -> list[dict[str, Any]]:
    """All settings, one after the other."""
    import forebay

    bytes_ = forebay.FileFolder(str(root)).native.total_bytes
    settings = [(policy, int(part * bytes_)) for policy in POLICIES for part in PARTS]
    progress = Progress("settings", len(settings))
    rows: list[dict[str, Any]] = []
    with slow_files(root) as origin:
        servers.ask_control(origin.control, {"delay_ms": DELAY_MS})
        for policy, memory in settings:
            knows = measured(origin.source)
            foretold, counted = hits(str(root), policy, memory)
            (row,) = knows.what_if(memory, policy=policy, epochs=EPOCHS)
            knows.close()
            loader = loader_of(origin.source, policy=policy, memory=memory, num_workers=THREADS)
            took = seconds(loader, EPOCHS)
            stats = loader.stats()
            loader.close()
            rows.append(
                {
                    "policy": policy,
                    "memory": memory,
                    "part": memory / bytes_,
                    "hits": {"foretold": foretold, "counted": counted},
                    "seconds": {"foretold": [e["seconds"] for e in row["epochs"]], "took": took},
                    "timed_hits": {
                        "foretold": sum(e["memory_hits"] for e in row["epochs"]),
                        "counted": stats["memory_hits"],
                    },
                    "waiting": row["waiting"],
                    "settings": row["settings"],
                }
            )
            progress.step()
    progress.close()
    return rows


def deviations(row: dict[str, Any]) -> list[float]:
    """How far the first epoch's seconds, and those of the later ones together, were off."""
    foretold, took = row["seconds"]["foretold"], row["seconds"]["took"]
    pairs = ((foretold[0], took[0]), (sum(foretold[1:]), sum(took[1:])))
    return [ours / theirs - 1 for ours, theirs in pairs]


def report(rows: list[dict[str, Any]]) -> str:
    """A line for each setting."""
    lines = []
    for row in rows:
        foretold, took = row["seconds"]["foretold"], row["seconds"]["took"]
        cells = [row["policy"], f"{row['part']:.0%}"]
        cells += [str(row["hits"]["counted"]), str(row["hits"]["foretold"])]
        first, later = deviations(row)
        cells += [f"{took[0]:.2f}", f"{foretold[0]:.2f}", f"{first:+.1%}"]
        cells += [f"{sum(took[1:]):.2f}", f"{sum(foretold[1:]):.2f}", f"{later:+.1%}"]
        lines.append(cells)
    header = ["policy", "memory", "hits", "foretold", "first epoch s", "foretold", "off"]
    header += ["later epochs s", "foretold", "off"]
    return table(header, lines)


def main() -> None:
    """Prints the table and keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="half of the images")
    quick = parser.parse_args().quick
    root = images.make(images.Settings(count=1024 if quick else 2048, classes=16))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FOREBAY_CACHE"] = cache
        rows = run(root)
    print(report(rows))
    save("sim-quick" if quick else "sim", {"rows": rows})
    same = all(row["hits"]["counted"] == row["hits"]["foretold"] for row in rows)
    print(f"\nhits agree exactly: {'yes' if same else 'NO'}")
    worst = max((off for row in rows for off in deviations(row)), key=abs)
    print(f"seconds of epochs are off by {worst:+.1%} at the most (wanted: 15 %)")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
