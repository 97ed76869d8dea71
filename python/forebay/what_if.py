"""``loader.what_if``: what a run would come to with other sizes, before it is paid for."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch.utils.data import RandomSampler, SequentialSampler

from forebay import _forebay
from forebay.orders import Batching, Planned, Share, Watched
from forebay.sizes import in_bytes

if TYPE_CHECKING:
    from forebay.loader import DataLoader

Size = int | str

# What is taken for granted where nothing was measured: a store, and local files.
_STEP_MS = 100.0
_ORIGIN = {False: (400.0, 30.0), True: (1000.0, 0.05)}
_DISK = (2000.0, 0.1)
_PRICE_PER_1000_REQUESTS = {False: 0.0004, True: 0.0}


def what_if(
    self: DataLoader[Any],
    memory: Size | Iterable[Size] | None = None,
    *,
    disk: Size | Iterable[Size] | None = None,
    policy: str | Iterable[str] | None = None,
    step_ms: float | None = None,
    prepare_ms: float | None = None,
    epochs: int = 3,
    batch_size: int | None = None,
    world_size: int | None = None,
    nodes: int | None = None,
    num_workers: int | None = None,
    origin_mbps: float | None = None,
    origin_latency_ms: float | None = None,
    disk_mbps: float = _DISK[0],
    disk_latency_ms: float = _DISK[1],
    price_per_gb: float = 0.0,
    price_per_1000_requests: float | None = None,
) -> list[dict[str, Any]]:
    """Replay epochs of this loader with other sizes of memory; one dict for each size.

    Dataset, order, batches, ranks, policy and disk are the loader's unless given. So are, once it
    has run, the time of a step, of preparing a sample and what the origin gave, as measured; else
    a step takes 100 ms, a store gives 400 MB/s after 30 ms, local files 1000 MB/s. An order that is
    only drawn when its epoch begins is answered for with another permutation; images count as they
    are stored, whatever their ``cache_form``; a sample that a Subset has twice counts as two.

    - ``memory``, ``disk``, ``policy``: one or several; an answer for each combination.
    - ``nodes``: each has that memory and disk for its ranks; by default every rank is one, or
      all share one if ``engine=`` was passed to the loader.
    - ``num_workers``: threads of each rank.
    - ``price_per_gb``, ``price_per_1000_requests``: for ``cost``, with a request for each sample;
      by default 0 a GB and, of a store, 0.0004 for 1000 requests.

    Each dict has ``policy``, ``memory``, ``disk``, then, of an epoch after the first: ``seconds``,
    ``waiting`` (a share of them), ``samples``, ``memory_hits``, ``disk_hits``, ``origin_reads``,
    ``origin_bytes``, ``ready`` (samples that were there before their batch was asked for),
    ``cost``; ``epochs`` has the same for each epoch, ``ahead`` for what is fetched of the one after
    the last, and ``settings`` is what it rests on.

        >>> for row in loader.what_if(["8GiB", "32GiB"], step_ms=120):
        ...     print(row["memory"], row["seconds"], row["waiting"])
    """
    if not self._native:
        raise ValueError("what_if() needs a dataset of forebay's, as it is")
    own = self._its_engine.settings
    dataset = self.reading.native
    world = self.world_size if world_size is None else world_size
    plan = _plan(self, _batch_size(self) if batch_size is None else batch_size, world)
    nodes = (world if self._owns_engine else 1) if nodes is None else nodes
    threads, requests = _threads(self, own), dataset.requests_in_flight
    # An engine that was passed in is for all ranks of a node together.
    here = 1 if self._owns_engine else max(1, world // max(1, nodes))
    settings = {
        "policy": _listed(own["policy"] if policy is None else policy),
        "memory": _sizes(own["memory"] if memory is None else memory, "memory"),
        "disk": _sizes(_disk(own) if disk is None else disk, "disk"),
        "nodes": nodes,
        "first_epoch": 0,
        "epochs": epochs,
        "threads": max(1, threads // here) if num_workers is None else num_workers,
        "requests": None if dataset.is_local else max(1, requests // here),
        "depth": self._depth,
        "readahead": own["readahead"],
        "disk_mbps": disk_mbps,
        "disk_latency_ms": disk_latency_ms,
        "price_per_gb": price_per_gb,
        "price_per_1000_requests": (
            _PRICE_PER_1000_REQUESTS[dataset.is_local]
            if price_per_1000_requests is None
            else price_per_1000_requests
        ),
    }
    settings |= _times(self.stats(), dataset.is_local, threads if dataset.is_local else requests)
    given = {"step_ms": step_ms, "prepare_ms": prepare_ms}
    settings |= {name: value for name, value in given.items() if value is not None}
    if origin_mbps is not None or origin_latency_ms is not None:
        if origin_mbps is not None:
            settings["origin_mbps"] = origin_mbps
        usual = _ORIGIN[dataset.is_local][1]
        latency = usual if origin_latency_ms is None else origin_latency_ms
        settings |= {"origin_latency_ms": latency, "origin_each_mbps": None}
    _check(settings)
    rows: list[dict[str, Any]] = json.loads(_forebay.what_if(dataset, plan, json.dumps(settings)))
    for row in rows:
        row["settings"] = settings
    return rows


def _times(stats: dict[str, Any], is_local: bool, side_by_side: int) -> dict[str, float | None]:
    """What was measured, else what is usual; so many read at a time."""
    mbps, latency = _ORIGIN[is_local]
    times: dict[str, float | None] = {
        "step_ms": _STEP_MS,
        "prepare_ms": 0.0,
        "origin_mbps": mbps,
        "origin_latency_ms": latency,
        "origin_each_mbps": None,
    }
    if stats.get("steps"):
        times["step_ms"] = 1e3 * stats["stepping_seconds"] / stats["steps"]
    if stats.get("prepared_samples"):
        times["prepare_ms"] = 1e3 * stats["preparing_seconds"] / stats["prepared_samples"]
    reads, seconds = stats.get("origin_reads", 0), stats.get("reading_seconds", 0.0)
    if reads and seconds > 0 and stats["origin_bytes"]:
        # As a read was on average, its latency in it.
        each = stats["origin_bytes"] / seconds / 1e6
        times |= {
            "origin_each_mbps": each,
            "origin_mbps": each * side_by_side,
            "origin_latency_ms": 0.0,
        }
    return times


def _disk(own: dict[str, Any]) -> int:
    """What an engine with these settings keeps on disk."""
    if "cache_dirs" not in own:
        return 0
    budget = own["disk"]
    return int(_forebay.default_disk(own["cache_dirs"]) if budget is None else budget)


def _threads(loader: DataLoader[Any], own: dict[str, Any]) -> int:
    if own["split"] is not None:
        return int(sum(own["split"]))
    running = loader.stats().get("threads") or len(os.sched_getaffinity(0))
    return int(own["threads"] or running)


def _plan(loader: DataLoader[Any], batch_size: int | None, world: int) -> _forebay.Plan:
    """The loader's own order; where that is drawn when an epoch begins, one like it."""
    for name, value, least in (("batch_size", batch_size, 1), ("world_size", world, 1)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and least <= value < 2**32):
            raise ValueError(f"{name}={value!r} is not a whole number from {least}")
    source = loader._order_source
    source = source.planned if isinstance(source, Watched) else source
    if not isinstance(source, Planned):
        batching = Batching(batch_size, loader.drop_last)
        source = Planned(len(loader.dataset), _seed_of_one_like_it(loader), batching, Share())
    return source.plan(batch_size, world)


def _seed_of_one_like_it(loader: DataLoader[Any]) -> int | None:
    """For an order that is drawn as it goes on: all samples once, shuffled or in their order."""
    sampler: Any = getattr(loader.batch_sampler, "sampler", loader.sampler)
    samples = len(loader.dataset)
    if isinstance(sampler, SequentialSampler) or sampler == range(samples):
        return None
    whole = isinstance(sampler, RandomSampler) and not sampler.replacement
    if whole and sampler.num_samples == samples:
        return 0
    raise ValueError(
        f"what_if() knows orders that have every sample once, not those of "
        f"{type(sampler).__name__}; hint: ask a loader made with shuffle=True"
    )


def _batch_size(loader: DataLoader[Any]) -> int | None:
    """A batch sampler's own, where it says: torch's loader then has none."""
    size = loader.batch_size
    return size if size is not None else getattr(loader.batch_sampler, "batch_size", None)


def _listed(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _sizes(sizes: Size | Iterable[Size], name: str) -> list[int]:
    several = [sizes] if isinstance(sizes, int | str) else list(sizes)
    return [in_bytes(size, name) for size in several]


def _check(settings: dict[str, Any]) -> None:
    """What is no number cannot be said in JSON; the rest is checked where it is used."""
    for name in ("nodes", "epochs", "threads"):
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
            raise ValueError(f"{name}={value!r} is not a whole number from 1")
    for name, value in settings.items():
        if name.endswith(("_ms", "_mbps", "_gb", "_requests")) and value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name}={value!r} is not a number")
            if not math.isfinite(value):
                raise ValueError(f"{name}={value!r} is not a number that can be")
