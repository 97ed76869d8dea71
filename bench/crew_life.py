"""One run of forebay in a process of its own, for the parts of `crew.py`.

| kind | what is run | what is told |
|---|---|---|
| `ranks` | four loaders of one engine, in lockstep, with a fixed step | each rank's waits |
| `phases` | one loader while the origin and the images change | when each batch came |
| `shifted` | one loader with a fixed step whose origin changes | the pace of its last batches |
| `steps` | one loader whose training is the slower side | CPU seconds |
| `rate` | one loader, taken as fast as it gives | samples a second |

Every process has a cache directory of its own: nothing that one run has learned is known to
the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import raw
from peers.pixels import SIDE, transform
from s3 import servers

COUNTS = ("memory_hits", "origin_reads", "ready_samples", "waited_seconds")


@dataclass(frozen=True)
class Run:
    """What is run, on how many threads. `split` is the crew switched off: so many threads load,
    so many prepare, for good. `settings` are those of the kind."""

    kind: str
    sources: tuple[str, ...]
    threads: int | str = "auto"
    split: tuple[int, int] | None = None
    batch: int = 32
    images: bool = True
    # The origin's settings: where they are changed, and the delay to begin with.
    control: str | None = None
    delay_ms: int = 0
    storage_options: dict[str, str] = field(default_factory=dict)
    read_options: dict[str, float] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def crew(self) -> dict[str, Any]:
        """The threads, and what the engine may hold: in the loader's own words."""
        return {"num_workers": self.threads, "split": self.split, "disk": 0, **self.engine}

    def name(self) -> str:
        """For tables and progress."""
        if self.split is None:
            return f"crew, {self.threads}"
        return f"split {self.split[0]} + {self.split[1]}"


def set_delay(run: Run, delay_ms: int) -> None:
    """Makes the origin slower or faster from now on."""
    if run.control is not None:
        servers.ask_control(run.control, {"delay_ms": delay_ms})


def datasets(run: Run) -> list[Any]:
    """The sources, listed without delay."""
    import forebay

    set_delay(run, 0)
    options: dict[str, Any] = {
        "storage_options": run.storage_options or None,
        "read_options": run.read_options,
    }
    if run.images:
        options["transform"] = transform()
    kind = forebay.ImageFolder if run.images else forebay.FileFolder
    return [kind(source, **options) for source in run.sources]


def loader(run: Run, dataset: Any, **options: Any) -> Any:
    """A loader whose samples stay encoded in memory, if they stay."""
    import forebay

    form = {"cache_form": "encoded"} if run.images else {}
    return forebay.DataLoader(dataset, **{"batch_size": run.batch, **form, **options})


def check(batch: Any, run: Run) -> int:
    """The samples of a batch, which is as it should be: another would not be the same work."""
    if run.images:
        assert tuple(batch[0].shape[1:]) == (3, SIDE, SIDE), batch[0].shape
    else:
        raw.touch(batch)
    return len(batch[1])


def figures(loader: Any) -> dict[str, Any]:
    """What a loader has counted, and what it says of its crew."""
    stats = loader.stats()
    found = {name: stats[name] for name in COUNTS if name in stats}
    found |= {name: stats[name] for name in ("crew", "bottleneck") if name in stats}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


# -- four ranks in lockstep ---------------------------------------------------------------


def endless(loader: Any) -> Iterator[Any]:
    """One epoch after another."""
    while True:
        yield from loader


def warmed(run: Run, dataset: Any, shares: list[float]) -> list[int]:
    """So much of each rank's first epoch, drawn at random: what is in memory when it begins."""
    import numpy as np

    chosen = []
    for rank, share in enumerate(shares):
        order = planned(run, dataset, rank, len(shares)).order(0)
        drawn = np.random.default_rng([7, rank]).permutation(order)
        chosen += drawn[: round(share * len(drawn))].tolist()
    return chosen


def planned(run: Run, dataset: Any, rank: int, ranks: int, **options: Any) -> Any:
    """The loader of one rank of a data-parallel job."""
    order = {"shuffle": True, "seed": 1, "rank": rank, "world_size": ranks, "drop_last": True}
    return loader(run, dataset, **order, **options)


def ranks(run: Run) -> dict[str, Any]:
    """Ranks of one process on one engine; a barrier ends each iteration, as an all-reduce does.

    With one source all ranks share it, and a share of each rank's samples (`warm`) is brought
    into memory first. With one source a rank, each has a dataset of its own.
    """
    import forebay

    found = datasets(run)
    engine = forebay.Engine(**run.crew())
    shares, step = run.settings.get("warm"), run.settings["step_ms"] / 1e3
    if shares is not None:
        chosen = warmed(run, found[0], shares)
        warming = loader(run, found[0], sampler=chosen, engine=engine)
        assert sum(check(batch, run) for batch in warming) == len(chosen)
        del warming
        count = len(shares)
        loaders = [planned(run, found[0], rank, count, engine=engine) for rank in range(count)]
    else:
        loaders = [planned(run, dataset, 0, 1, engine=engine) for dataset in found]
    set_delay(run, run.delay_ms)
    before = [figures(loader) for loader in loaders]
    barrier = threading.Barrier(len(loaders))
    waits: list[list[float]] = [[] for _ in loaders]
    ends: list[float] = []

    def train(rank: int) -> None:
        iterator = endless(loaders[rank])
        try:
            barrier.wait()
            for _ in range(run.settings["iterations"]):
                start = time.perf_counter()
                batch = next(iterator)
                waits[rank].append(time.perf_counter() - start)
                assert check(batch, run) == run.batch
                del batch
                time.sleep(step)
                if barrier.wait() == 0:
                    ends.append(time.perf_counter())
        except threading.BrokenBarrierError:
            pass  # another rank's failure, which is told there
        except BaseException:
            barrier.abort()
            raise

    start = time.perf_counter()
    with ThreadPoolExecutor(len(loaders)) as pool:
        for future in [pool.submit(train, rank) for rank in range(len(loaders))]:
            future.result()
    after = [figures(loader) for loader in loaders]
    return {
        "waits": waits,
        "ends": [end - start for end in sorted(ends)],
        "before": before,
        "after": after,
    }


# -- one loader ---------------------------------------------------------------------------


def phases(run: Run) -> dict[str, Any]:
    """Batches in the order of the files; the delay changes when a phase's last one has come."""
    [dataset] = datasets(run)
    delays, batches = run.settings["delays_ms"], run.settings["batches"]
    feeding = loader(run, dataset, drop_last=True, **run.crew())
    assert len(feeding) >= len(delays) * batches, len(feeding)
    iterator, came, seen = iter(feeding), [], []
    start = time.perf_counter()
    for delay in delays:
        set_delay(run, delay)
        for batch in islice(iterator, batches):
            came.append(time.perf_counter() - start)
            assert check(batch, run) == run.batch
            del batch
        seen.append(figures(feeding))
    assert len(came) == len(delays) * batches, len(came)
    return {"came": came, "after": seen}


def shifted(run: Run) -> dict[str, Any]:
    """Batches at one delay after another; how long each takes at the last, once time was given."""
    [dataset] = datasets(run)
    feeding = loader(run, dataset, shuffle=True, seed=1, drop_last=True, **run.crew())
    iterator, step = endless(feeding), run.settings["step_ms"] / 1e3

    def go(seconds: float) -> float:
        """Seconds a batch, on the average."""
        start, batches = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            batch = next(iterator)
            assert check(batch, run) == run.batch
            del batch
            time.sleep(step)
            batches += 1
        return (time.perf_counter() - start) / batches

    delays = run.settings["delays_ms"]
    for delay in delays[:-1]:
        set_delay(run, delay)
        go(run.settings["before_seconds"])
    set_delay(run, delays[-1])
    go(run.settings["given_seconds"])
    return {"pace": go(run.settings["measured_seconds"]), "after": figures(feeding)}


def steps(run: Run) -> dict[str, Any]:
    """CPU of all threads but the consumer's, from batch `skip` on, by which all has settled."""
    [dataset] = datasets(run)
    set_delay(run, run.delay_ms)
    skip, batches = run.settings["skip"], run.settings["batches"]
    feeding = loader(run, dataset, shuffle=True, seed=1, drop_last=True, **run.crew())
    iterator = endless(feeding)
    samples, waited, cpu, own = 0, 0.0, 0.0, 0.0
    for number in range(skip + batches):
        if number == skip:
            samples, waited, cpu, own = 0, 0.0, time.process_time(), time.thread_time()
        start = time.perf_counter()
        batch = next(iterator)
        waited += time.perf_counter() - start
        samples += check(batch, run)
        del batch
        time.sleep(run.settings["step_ms"] / 1e3)
    cpu, own = time.process_time() - cpu, time.thread_time() - own
    after = figures(feeding)
    return {"cpu": cpu - own, "own": own, "samples": samples, "waited": waited, "after": after}


def rate(run: Run) -> dict[str, Any]:
    """Whole epochs, the first with the loader's making: what it has to find out counts too."""
    [dataset] = datasets(run)
    set_delay(run, run.delay_ms)
    found, start, cpu = [], time.perf_counter(), time.process_time()
    feeding = loader(run, dataset, shuffle=True, seed=1, **run.crew())
    for _ in range(run.settings["epochs"]):
        samples = sum(check(batch, run) for batch in feeding)
        assert samples == len(dataset), samples
        seconds, spent = time.perf_counter() - start, time.process_time() - cpu
        found.append({"samples": samples, "seconds": seconds, "cpu": spent})
        start, cpu = time.perf_counter(), time.process_time()
    return {"epochs": found, "after": figures(feeding)}


KINDS = {"ranks": ranks, "phases": phases, "shifted": shifted, "steps": steps, "rate": rate}


def in_a_process(run: Run, timeout: float = 1200) -> dict[str, Any]:
    """A run in a fresh process; empty, with a word, where it failed."""
    command = [sys.executable, __file__, json.dumps(asdict(run))]
    with tempfile.TemporaryDirectory(prefix="forebay-crew-") as cache:
        surroundings = {**os.environ, "FOREBAY_CACHE": cache}
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, check=False, env=surroundings, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            print(f"{run.name()}: not done after {timeout:.0f} s, left out", file=sys.stderr)
            return {}
    if done.returncode != 0:
        print(f"{run.name()}: ended with {done.returncode}, left out", file=sys.stderr)
        return {}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def need_engines() -> None:
    """Ends with a clear word where forebay is older than what is measured."""
    import forebay

    if not hasattr(forebay, "Engine"):
        raise SystemExit(f"{Path(forebay.__file__).parent}: has no forebay.Engine to measure")


def main() -> None:
    """Runs what the one argument says and prints what it found."""
    import torch

    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    given["sources"] = tuple(given["sources"])
    given["split"] = given["split"] and tuple(given["split"])
    run = Run(**given)
    print("\n" + json.dumps(KINDS[run.kind](run)), flush=True)


if __name__ == "__main__":
    main()
