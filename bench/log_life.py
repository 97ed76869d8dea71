"""One loader in a process of its own, epoch by epoch, for the parts of `log.py`.

All feed the same consumer, which touches one byte of every 4 KiB page. What forebay counted is
told for each epoch: from the end of the epoch before to its own end. It fetches ahead across
that edge, also while the page cache is dropped and no clock runs: samples that came then are
`ahead`, and do not count in its rate.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import loaders
import memory
import raw
from log_files import drop_caches
from report import tree_cpu

CORES = 2
WARM = 1 << 30
COUNTS = ("memory_hits", "log_hits", "log_hit_bytes", "origin_reads", "origin_bytes")
LOG_COUNTS = ("requests", "request_bytes", "written_bytes", "skipped_samples")


@dataclass(frozen=True)
class Life:
    """A loader, what it reads and how often. `options` are its own."""

    loader: str
    source: str
    workers: int = 2
    epochs: int = 2
    cold: bool = True
    options: dict[str, Any] = field(default_factory=dict)


def forebay_loader(life: Life) -> Callable[[], Iterable[Any]]:
    """Ours; `storage_options` belong to the dataset."""
    import forebay

    options = dict(life.options)
    dataset = forebay.FileFolder(life.source, storage_options=options.pop("storage_options", None))
    return lambda: forebay.DataLoader(
        dataset,
        batch_size=loaders.BATCH,
        shuffle=True,
        num_workers=life.workers,
        **{"seed": 1, **options},
    )


def make(life: Life) -> Callable[[], Iterable[Any]]:
    """What makes the loader; listing and conversion are done."""
    source = Path(life.source)
    if life.loader == "forebay":
        return forebay_loader(life)
    if life.loader == "torch":
        contender = loaders.Contender("torch", "torch", life.workers, "joined")
        found: Callable[[], Iterable[Any]] = loaders.torch_loader(source, contender)
        return found
    from peers import raw as peers_raw

    kind = {"dali": peers_raw.Dali, "ffcv": peers_raw.Ffcv}[life.loader]
    return lambda: kind(source, life.workers, **life.options)


def touch(batch: Any) -> int:
    """Reads one byte of each page; gives the bytes of the batch."""
    samples = batch[0]
    if isinstance(samples, list) and samples[0]._base is not None and samples[0]._base.ndim > 1:
        # Rows with empty ends: only the samples themselves.
        samples[0]._base.numpy()[:, :: raw.PAGE].tobytes()
        return sum(len(sample) for sample in samples)
    return raw.touch(batch)


def counts(loader: Any) -> dict[str, Any]:
    """What forebay has counted so far (nothing before its first epoch); empty of the others."""
    if not hasattr(loader, "stats"):
        return {}
    stats = loader.stats()
    log, memory = stats.get("log", {}), stats.get("memory", {})
    found = {name: stats.get(name, 0) for name in COUNTS}
    found |= {name: log.get(name, 0) for name in LOG_COUNTS}
    states = {name: log.get(name) for name in ("layout", "direct", "device", "disk_bytes")}
    return {"counts": found, "states": {**states, "kept_samples": memory.get("kept_samples", 0)}}


def epoch(loader: Any) -> dict[str, Any]:
    """Takes all batches of an epoch."""
    start, cpu = time.perf_counter(), tree_cpu()
    samples = size = 0
    for batch in loader:
        samples += len(batch[-1])
        size += touch(batch)
        del batch
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu": tree_cpu() - cpu, "samples": samples, "bytes": size}


def live(life: Life) -> list[dict[str, Any]]:
    """The epochs of a loader in this process. The listing is not timed, the making is."""
    import torch

    # More workers than cores, and tensors of bytes that are only read: both are meant.
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    build = make(life)
    memory.hold(WARM)
    loader, before, found = None, {}, []
    for _ in range(life.epochs):
        if life.cold:
            getattr(loader, "cool", lambda: None)()
            drop_caches()
        started = time.perf_counter()
        if loader is None:
            loader = build()
        made = time.perf_counter() - started
        head = counts(loader)
        result = epoch(loader)
        result["seconds"] += made
        after = counts(loader)
        if after:
            zero = dict.fromkeys(after["counts"], 0)
            last = before.get("counts", zero)
            result |= {name: after["counts"][name] - last[name] for name in zero}
            early = {name: head["counts"][name] - last[name] for name in zero}
            result["ahead"] = early["log_hits"] + early["origin_reads"]
            result["ahead_bytes"] = early["request_bytes"]
            result |= after["states"]
        before = after
        found.append(result)
    return found


def rate(epoch: dict[str, Any]) -> float:
    """Samples a second."""
    found: float = (epoch["samples"] - epoch.get("ahead", 0)) / epoch["seconds"]
    return found


def in_a_process(
    life: Life, name: str, before_exec: Callable[[], None] | None = None
) -> list[dict[str, Any]]:
    """A life in a fresh process; empty, with a word, where it failed."""
    command = [sys.executable, __file__, json.dumps(asdict(life))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, preexec_fn=before_exec)
    if done.returncode != 0:
        print(f"{name}: ended with {done.returncode}, left out", file=sys.stderr)
        return []
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    rates = ", ".join(f"{rate(epoch):,.0f}" for epoch in found)
    print(f"{name}: {rates} samples/s", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Lives the life that the argument describes and prints its epochs as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("life", help="a Life as JSON")
    life = Life(**json.loads(parser.parse_args().life))
    print(json.dumps(live(life)))


if __name__ == "__main__":
    main()
