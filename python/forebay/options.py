"""The options that ``forebay.DataLoader`` adds to torch's, checked before anything is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from forebay.engine import Engine
from forebay.images import CACHE_FORMS, PREPARE

# What an engine that is passed in was told already.
_OF_THE_ENGINE = (
    *("memory", "readahead", "policy", "split"),
    *("cache_dir", "disk", "layout", "chunk"),
)


def check_options(given: Mapping[str, Any], defaults: Mapping[str, Any], streams: bool) -> None:
    """Refuse options that are wrong, or that an ``IterableDataset`` cannot have."""
    _one_of("deal", given["deal"], ("strided", "batches"))
    if given["deal"] == "batches" and not given["even"]:
        raise ValueError('even=False goes with deal="strided" only: batches are dealt evenly')
    _one_of("on_error", given["on_error"], ("raise", "replace"))
    _one_of("prepare", given["prepare"], PREPARE)
    _one_of("cache_form", given["cache_form"], CACHE_FORMS)
    most = given["max_bad_samples"]
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"max_bad_samples={most!r} is not a whole number")
    if most < 0:
        raise ValueError(f"max_bad_samples={most} is negative")
    if streams:
        for name in ("seed", "rank", "world_size"):
            if given[name] is not None:
                raise ValueError(
                    f"{name}= plans the order of a map-style dataset; an IterableDataset has an "
                    "order of its own"
                )
    engine = given["engine"]
    if engine is None:
        return
    if not isinstance(engine, Engine):
        raise TypeError(f"engine={engine!r} is not a forebay.Engine")
    for name in _OF_THE_ENGINE:
        if given[name] != defaults[name]:
            raise ValueError(f"{name}= is the engine's; hint: pass it to forebay.Engine()")


def choose_seed(
    seed: int | None,
    chosen: bool,
    generator: torch.Generator | None,
    rank: int | None,
    world_size: int | None,
) -> int | None:
    """The seed of a planned order, None for torch's own order; ``chosen``: by a sampler."""
    if seed is not None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ValueError(f"seed={seed!r} is not a seed; it is a whole number from 0 to 2**63-1")
        if chosen:
            raise ValueError(
                "seed= makes the order; it goes with neither sampler nor batch_sampler"
            )
        if generator is not None:
            raise ValueError("seed= and generator= both make the order; pass one of them")
        return seed
    if rank is None and world_size is None:
        return None
    if chosen:
        raise ValueError(
            "rank= and world_size= deal a planned order; with a sampler, the sampler deals"
        )
    if generator is not None:
        raise ValueError(
            "with several ranks the order must be the same on all of them, which a generator "
            "cannot promise; hint: pass seed= instead of generator="
        )
    return 0  # DistributedSampler's own default


def _one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")
