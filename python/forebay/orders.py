"""Where a loader's order comes from, and torch's draws made in torch's place.

Each order answers the same four questions: what is this epoch's order (``begin``),
what would torch have drawn by now (``requested``), what will the coming epoch be if
nobody else draws (``coming``), and how is a saved epoch found again (``restore``).

Known samplers are computed in Rust from the generator's state, and the state is put
back as torch would have left it. A sampler of any other class runs as it is and hands
its batches over (``HandedOver``), no further ahead than torch's workers would be.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from forebay import _forebay, generators
from forebay.draws import Draws
from forebay.handed import HandedOver
from forebay.state import State

_INT64_DRAWS = 2


@dataclass(frozen=True)
class Batching:
    """How samples become batches; a size of None turns batching off."""

    size: int | None
    drop_last: bool

    def __post_init__(self) -> None:
        # A dataset has fewer samples than this: a larger batch is the same batch.
        if isinstance(self.size, int):
            object.__setattr__(self, "size", min(self.size, 2**32 - 1))


@dataclass(frozen=True)
class Share:
    """Which part of the order is this process's."""

    rank: int = 0
    world: int = 1
    deal: str = "strided"
    uneven: str = "pad"


@dataclass(frozen=True)
class Drawn:
    """One epoch's order. Equal tags mean equal orders."""

    tag: str
    epoch: _forebay.Epoch
    rank: int
    saved: dict[str, Any]


class Order(Protocol):
    """See the module's text."""

    kind: str
    size: int

    def begin(self, epoch: int) -> Drawn:
        """Draw this epoch's order as torch would, from the user's generators."""

    def requested(self, batches: int) -> None:
        """Draw what torch draws by the time it has asked for so many batches."""

    def coming(self, epoch: int, late: bool) -> Drawn | None:
        """The epoch after ``epoch``; orders drawn from a generator answer only when late."""

    def restore(self, saved: dict[str, Any]) -> Drawn:
        """The order of an epoch that was saved, with the generators put back."""

    def check(self, state: State) -> None:
        """Refuse a state that no epoch of this order can have had."""


def _plan(samples: int, batching: Batching, share: Share, **order: Any) -> _forebay.Plan:
    return _forebay.Plan(
        samples,
        world=share.world,
        deal=share.deal,
        uneven=share.uneven,
        batch_size=batching.size,
        drop_last=batching.drop_last,
        **order,
    )


class Planned:
    """Known for all epochs: sequential, or a permutation of ``seed + epoch``."""

    kind = "planned"

    def __init__(self, samples: int, seed: int | None, batching: Batching, share: Share) -> None:
        self.size = batching.size or 1
        # The epoch that was computed ahead, so that it is not computed again when it begins.
        self._ahead: dict[int, _forebay.Epoch] = {}
        self._what = f"{samples} {seed} {batching} {share}"
        self._seed = seed
        self._share = share
        self._batching = batching
        self._samples = samples
        self._plan = _plan(samples, batching, share, seed=seed)

    def plan(self, batch_size: int | None, world: int) -> _forebay.Plan:
        """The same order in other batches, or dealt to other ranks."""
        batching = replace(self._batching, size=batch_size)
        return _plan(self._samples, batching, replace(self._share, world=world), seed=self._seed)

    def begin(self, epoch: int) -> Drawn:
        saved = {"kind": "planned", "seed": self._seed, "epoch": epoch}
        # A sequential order is the same in every epoch, but each is an epoch of its own.
        tag = f"planned {epoch} of {self._what}"
        order = self._ahead.get(epoch) or self._plan.epoch(epoch)
        return Drawn(tag, order, self._share.rank, saved)

    def requested(self, batches: int) -> None:
        pass

    def coming(self, epoch: int, late: bool) -> Drawn | None:
        if late:
            return None
        drawn = self.begin(epoch + 1)
        self._ahead.clear()
        self._ahead[epoch + 1] = drawn.epoch
        return drawn

    def restore(self, saved: dict[str, Any]) -> Drawn:
        self._check_seed(saved)
        return self.begin(saved["epoch"])

    def check(self, state: State) -> None:
        state.check_length(self._samples)
        if state.order is not None and "seed" in state.order:
            self._check_seed(state.order)

    def _check_seed(self, saved: dict[str, Any]) -> None:
        if saved["seed"] != self._seed:
            theirs, ours = (
                "an order that is not shuffled" if seed is None else f"seed {seed}"
                for seed in (saved["seed"], self._seed)
            )
            raise _forebay.InvalidError(
                f"the state is of {theirs}, this loader has {ours}; "
                "hint: make the loader with the same seed= and shuffle="
            )


class FromSeedDraw:
    """``RandomSampler`` without a generator: a fresh engine, its seed from the default one."""

    kind = "drawn"

    def __init__(
        self, sampler: RandomSampler, batching: Batching, draws_before: int, draws: Draws
    ) -> None:
        self.size = batching.size or 1
        self._draws = draws
        self._samples = len(sampler.data_source)
        self._plain = not sampler.replacement and sampler.num_samples == self._samples
        self._stream = _forebay.Sampler.random(
            self._samples, sampler.num_samples, sampler.replacement
        )
        self._batching = batching
        self._what = f"{self._samples} {sampler.num_samples} {sampler.replacement} {batching}"
        self._draws_before = draws_before
        self._left: np.ndarray | None = None

    def begin(self, epoch: int) -> Drawn:
        seed = self._draws.seed()
        self._left = self._draws.default.get_state().numpy()
        return self._of(seed)

    def _of(self, seed: int) -> Drawn:
        order = {"seed": seed} if self._plain else {"indices": self._stream.indices_of_seed(seed)}
        plan = _plan(self._samples, self._batching, Share(), **order)
        return Drawn(
            f"drawn {seed} of {self._what}", plan.epoch(0), 0, {"kind": "drawn", "seed": seed}
        )

    def requested(self, batches: int) -> None:
        pass

    def coming(self, epoch: int, late: bool) -> Drawn | None:
        state = self._draws.default.get_state().numpy()
        if not late or self._left is None or not np.array_equal(state, self._left):
            return None
        return self._of(_forebay.peek(state, self._draws_before))

    def restore(self, saved: dict[str, Any]) -> Drawn:
        self._left = self._draws.default.get_state().numpy()
        return self._of(saved["seed"])

    def check(self, state: State) -> None:
        state.check_length(len(self._stream))


class FromGenerator:
    """A sampler that draws its indices from a generator itself."""

    kind = "generator"

    def __init__(
        self,
        stream: _forebay.Sampler,
        samples: int,
        generator: torch.Generator | None,
        batching: Batching,
        draws_before: int,
        draws: Draws,
    ) -> None:
        self.size = batching.size or 1
        self.own = generator
        self._stream = stream
        self._samples = samples
        self._draws = draws
        self._generator = self._where()
        self._batching = batching
        self._draws_before = draws_before
        self._drawn = 0
        self._left: np.ndarray | None = None

    def _where(self) -> torch.Generator:
        return self._draws.default if self.own is None else self.own

    def begin(self, epoch: int) -> Drawn:
        self._generator = self._where()  # a state that was loaded since may have settled it
        state = self._generator.get_state().numpy()
        self._drawn = 0
        self.requested(1)
        return self._of(state)

    def _of(self, state: np.ndarray) -> Drawn:
        indices = self._stream.indices(state)
        plan = _plan(self._samples, self._batching, Share(), indices=indices)
        # Of the indices themselves: the user may have changed the sampler's weights.
        digest = hashlib.blake2b(indices.tobytes(), digest_size=16).hexdigest()
        saved = {"kind": self.kind, "state": generators.packed(state)}
        return Drawn(f"indices {digest} {self._batching}", plan.epoch(0), 0, saved)

    def requested(self, batches: int) -> None:
        draws = self._stream.draws(batches, self._batching.size)
        if draws > self._drawn:
            state = self._generator.get_state().numpy()
            self._left = _forebay.skip(state, draws - self._drawn)
            self._generator.set_state(torch.from_numpy(self._left))
            self._drawn = draws

    def coming(self, epoch: int, late: bool) -> Drawn | None:
        state = self._generator.get_state().numpy()
        if not late or self._left is None or not np.array_equal(state, self._left):
            return None
        everything = self._stream.draws(2**62, self._batching.size)
        return self._of(_forebay.skip(state, everything - self._drawn + self._draws_before))

    def restore(self, saved: dict[str, Any]) -> Drawn:
        generators.put_back(self._where(), saved["state"], "order.state")
        return self.begin(0)

    def check(self, state: State) -> None:
        state.check_length(len(self._stream))


class Streamed:
    """The order of an ``IterableDataset``: its own, and only torch's machinery asks for it."""

    kind = "stream"

    def check(self, state: State) -> None:
        """Any number of batches may have been taken."""


class Watched:
    """``DistributedSampler`` and its like: planned, the epoch being the sampler's own."""

    kind = "planned"

    def __init__(self, sampler: Any, planned: Planned, ends_at: int | None = None) -> None:
        self.size = planned.size
        self._sampler = sampler
        self.planned = planned
        # The request at which a sampler that counts epochs by itself finds its end.
        self._ends_at = ends_at
        self._ended = False
        self._begun = 0

    def begin(self, epoch: int) -> Drawn:
        self._ended = False
        self._begun = self._sampler.epoch
        return self.planned.begin(self._begun)

    def requested(self, batches: int) -> None:
        if self._ends_at is not None and batches >= self._ends_at and not self._ended:
            self._ended = True
            self._sampler.set_epoch(self._sampler.epoch + 1)

    def coming(self, epoch: int, late: bool) -> Drawn | None:
        # Meant is the sampler's own epoch, which the user sets before each.
        return self.planned.coming(self._begun, late)

    def is_past(self, saved: dict[str, Any]) -> bool:
        """Whether the user has set the sampler to another epoch than the saved one."""
        return bool(self._sampler.epoch != saved["epoch"])

    def restore(self, saved: dict[str, Any]) -> Drawn:
        epoch = saved["epoch"]
        if self._sampler.epoch not in (0, epoch):
            raise _forebay.InvalidError(
                f"the state is of epoch {epoch}, but the sampler was set to epoch "
                f"{self._sampler.epoch}; hint: sampler.set_epoch({epoch})"
            )
        self._sampler.set_epoch(epoch)
        self._ended = False
        self._begun = epoch
        return self.planned.restore(saved)

    def check(self, state: State) -> None:
        self.planned.check(state)


def order_of(
    sampler: Any, batch_sampler: Any, draws_base_seed_from: Any, draws: Draws
) -> Order | HandedOver:
    """The order behind torch's sampler objects; ``HandedOver`` for what is not known."""
    batching = Batching(None, False)
    if batch_sampler is not None:
        size = getattr(batch_sampler, "batch_size", None) or 0
        batching = Batching(size, getattr(batch_sampler, "drop_last", False))
        if type(batch_sampler).__name__ == "BatchSamplerShard":
            return _of_shard(batch_sampler) or HandedOver(batch_sampler, batching)
        if type(batch_sampler) is not BatchSampler:
            return HandedOver(batch_sampler, batching)
        sampler = batch_sampler.sampler
    known = _known(sampler, batching, draws_base_seed_from, draws)
    return known or HandedOver(sampler if batch_sampler is None else batch_sampler, batching)


def order_ahead(order: Order | HandedOver | Streamed, epoch: int) -> np.ndarray:
    """This rank's samples of any epoch, of an order that is known ahead."""
    planned = order.planned if isinstance(order, Watched) else order
    if isinstance(planned, HandedOver | Streamed):
        raise _forebay.InvalidError(
            "this loader's order is known to its sampler or dataset alone; hint: pass seed= and no "
            "sampler for an order that is known ahead"
        )
    if not isinstance(planned, Planned):
        raise _forebay.InvalidError(
            "this loader's order is drawn from a generator when its epoch begins; "
            "hint: pass seed= for an order that is known ahead"
        )
    if epoch < 0:
        raise ValueError(f"epoch={epoch} is negative; epochs count from 0")
    drawn = planned.begin(epoch)
    return drawn.epoch.samples(drawn.rank)


def known_length(of: Any) -> int | None:
    """How many there are, where that is known."""
    try:
        return len(of)
    except (TypeError, NotImplementedError):
        return None


def _of_shard(shard: Any) -> Order | None:
    """Whole batches dealt in turn, as accelerate does it, of an order that is known ahead."""
    inner = getattr(shard, "batch_sampler", None)
    if type(inner) is not BatchSampler or shard.split_batches or not shard.even_batches:
        return None
    batching = Batching(inner.batch_size, inner.drop_last)
    uneven = "drop" if inner.drop_last else "pad"
    share = Share(shard.process_index, shard.num_processes, "batches", uneven)
    sampler: Any = inner.sampler
    if hasattr(sampler, "planned_in"):
        return Watched(sampler, sampler.planned_in(batching, share))
    if type(sampler) is SequentialSampler and hasattr(sampler.data_source, "__len__"):
        return Planned(len(sampler.data_source), None, batching, share)
    if _is_seedable(sampler):
        planned = Planned(len(sampler.data_source), sampler.initial_seed, batching, share)
        batches = planned.begin(0).epoch.batches(share.rank)
        return Watched(sampler, planned, ends_at=batches + 1)
    return None


def _is_seedable(sampler: Any) -> bool:
    """Whether it is accelerate's: draws under initial_seed + epoch, and counts its epochs."""
    kind = type(sampler)
    if kind.__name__ != "SeedableRandomSampler" or not kind.__module__.startswith("accelerate"):
        return False
    if sampler.replacement or sampler.num_samples != len(sampler.data_source):
        return False
    return getattr(sampler, "initial_seed", None) is not None


def _known(
    sampler: Any, batching: Batching, base: torch.Generator | None, draws: Draws
) -> Order | None:
    kind = type(sampler)
    if hasattr(sampler, "planned_in"):  # ours, which a framework has put into a sampler of its own
        return Watched(sampler, sampler.planned_in(batching))

    def before(generator: torch.Generator | None) -> int:
        # The loader draws its base seed before the sampler draws, from this generator?
        return _INT64_DRAWS if (generator is base) else 0

    if kind is SequentialSampler and hasattr(sampler.data_source, "__len__"):
        return Planned(len(sampler.data_source), None, batching, Share())
    if kind is RandomSampler:
        if sampler.generator is None:
            return FromSeedDraw(sampler, batching, before(None), draws) if len(sampler) else None
        samples = len(sampler.data_source)
        if sampler.replacement or sampler.num_samples > samples:
            # Draws chunk by chunk from a generator that others may use in between.
            return None
        stream = _forebay.Sampler.random(samples, sampler.num_samples)
        own = sampler.generator
        return FromGenerator(stream, samples, own, batching, before(own), draws)
    if kind is SubsetRandomSampler:
        indices = np.asarray(sampler.indices)
        if indices.ndim != 1 or indices.size == 0 or indices.dtype.kind not in "iu":
            return None
        if indices.min() < 0 or indices.max() >= 2**32:
            return None
        stream = _forebay.Sampler.subset(indices.astype(np.uint32))
        samples = int(indices.max()) + 1
        own = sampler.generator
        return FromGenerator(stream, samples, own, batching, before(own), draws)
    if kind is WeightedRandomSampler and sampler.replacement and sampler.num_samples > 1:
        weights = np.ascontiguousarray(sampler.weights.numpy(), dtype=np.float64)
        stream = _forebay.Sampler.weighted(weights, sampler.num_samples)
        own = sampler.generator
        return FromGenerator(stream, len(weights), own, batching, before(own), draws)
    if kind is DistributedSampler:
        share = Share(
            rank=sampler.rank,
            world=sampler.num_replicas,
            uneven="drop" if sampler.drop_last else "pad",
        )
        seed = sampler.seed if sampler.shuffle else None
        planned = Planned(len(sampler.dataset), seed, batching, share)
        return Watched(sampler, planned)
    if _is_seedable(sampler):
        samples = len(sampler.data_source)
        planned = Planned(samples, sampler.initial_seed, batching, Share())
        return Watched(sampler, planned, ends_at=samples // (batching.size or 1) + 1)
    return None
