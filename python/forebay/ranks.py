"""Which rank this process is, of how many."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler


def find_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: explicit arguments, else the process group, else the environment."""
    for name, value in (("rank", rank), ("world_size", world_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name}={value!r} is not a whole number")
    if rank is not None and world_size is not None:
        found_rank, found_world = rank, world_size
    else:
        found_rank, found_world = _find()
    world = found_world if world_size is None else world_size
    if rank is None:
        rank = found_rank if world_size is None or world_size == found_world else None
    if rank is None:
        if world != 1:
            raise ValueError(f"world_size={world} needs rank= as well")
        rank = 0
    if not 1 <= world < 2**32:
        raise ValueError(f"world_size={world} is not a number of ranks; it is 1 to 2**32-1")
    if not 0 <= rank < world:
        raise ValueError(f"rank={rank} is not one of world_size={world} ranks (0 to {world - 1})")
    return rank, world


def surroundings() -> tuple[int, int]:
    """Rank and world size of this process, for who does not depend on them."""
    try:
        return _find()
    except ValueError:
        return 0, 1


def dealt_to(sampler: Any, batch_sampler: Any) -> tuple[int, int]:
    """The rank whose samples a sampler gives, and of how many; (0, 1) if it deals to nobody.

    A sampler that is not known may deal by itself: then it is taken to do so.
    """
    outer = sampler if batch_sampler is None else batch_sampler
    while outer is not None:
        if hasattr(outer, "process_index") and hasattr(outer, "num_processes"):
            return outer.process_index, outer.num_processes  # accelerate's shard
        if isinstance(outer, DistributedSampler):
            return outer.rank, outer.num_replicas
        if type(outer).__module__ == "torch.utils.data.sampler" and type(outer) is not BatchSampler:
            return 0, 1
        inner = getattr(outer, "batch_sampler", None)
        outer = getattr(outer, "sampler", None) if inner is None else inner
    return surroundings()


def explain_dealing(rank: int, world: int, by: str | None, streams: bool) -> str:
    """Who gets which samples, in a sentence; ``by``: the sampler that deals, None for ours."""
    _, there = surroundings()
    if streams:
        return "order: the IterableDataset's own; sharing it out to ranks is up to the dataset"
    if world > 1:
        by = by or "forebay"
        return f"order: dealt to {world} ranks by {by}; this loader gives those of rank {rank}"
    if there > 1:
        return (
            f"order: not dealt, so each of the {there} ranks gets every sample, as with torch; "
            "hint: pass seed= or a DistributedSampler to deal it"
        )
    return "order: of one rank; every sample is this loader's"


def _find() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None or world is None:
        return 0, 1
    try:
        return int(rank), int(world)
    except ValueError:
        raise ValueError(
            f"RANK={rank!r} and WORLD_SIZE={world!r} in the environment are not numbers; "
            "hint: unset them or pass rank= and world_size="
        ) from None
