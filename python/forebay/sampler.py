"""The sampler of a loader that plans its order: torch's interface, this rank's samples.

Frameworks look at ``loader.sampler`` to learn whether ranks are dealt to. This one is a
``DistributedSampler``, so Lightning, Fabric and Ray leave it in place, and who it deals to is
looked up when it is asked, not when it is made: many scripts make their loaders before the
process group exists.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from forebay import _forebay
from forebay.orders import Batching, Planned, Share
from forebay.ranks import find_rank
from forebay.state import State


class PlanSampler(DistributedSampler[int]):
    """This rank's samples of the coming epoch, of an order that is known for all epochs."""

    def __init__(
        self,
        dataset: Any,
        seed: int,
        *,
        shuffle: bool,
        batching: Batching,
        even: bool,
        deal: str,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        # torch's own would ask the process group now.
        self.dataset = dataset
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = batching.drop_last
        self.epoch = 0
        self.resume: State | None = None
        self._batching = batching
        self._deal = deal
        self._uneven = "keep" if not even else "drop" if batching.drop_last else "pad"
        self._given = rank, world_size
        self._whole = False
        self._made: tuple[Share, int, Planned] | None = None
        self._counted: tuple[Share, int, _forebay.Epoch] | None = None
        self.share()  # what is wrong with a rank is told now

    # -- who is dealt to ----------------------------------------------------------------

    def share(self) -> Share:
        """This process's part: as given, else of the process group, else of the environment."""
        rank, world = (0, 1) if self._whole else find_rank(*self._given)
        return Share(rank, world, self._deal, self._uneven)

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This process, of ``num_replicas``."""
        return self.share().rank

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """How many processes the order is dealt to."""
        return self.share().world

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Samples of this rank in an epoch."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Samples of all ranks in an epoch, padding included."""
        share, counts = self._counts()
        return sum(counts.len(rank) for rank in range(share.world))

    def whole(self) -> PlanSampler:
        """The same order for somebody who deals it out himself."""
        other = copy.copy(self)
        other._whole = True
        other._made = other._counted = None
        return other

    # -- the order ----------------------------------------------------------------------

    def planned(self) -> Planned:
        """The order, dealt to whatever ranks there are now."""
        # A dataset may have got more or fewer samples since the last epoch.
        share, samples = self.share(), len(self.dataset)  # type: ignore[arg-type]
        if self._made is None or self._made[:2] != (share, samples):
            seed = self.seed if self.shuffle else None
            self._made = share, samples, Planned(samples, seed, self._batching, share)
        return self._made[2]

    def planned_in(self, batching: Batching, share: Share | None = None) -> Planned:
        """The same in the batches of a sampler that has this one in it, and may deal them."""
        samples = len(self.dataset)  # type: ignore[arg-type]
        seed = self.seed if self.shuffle else None
        return Planned(samples, seed, batching, share or self.share())

    def _counts(self) -> tuple[Share, _forebay.Epoch]:
        """An epoch as long as any: counting needs no permutation."""
        share, samples = self.share(), len(self.dataset)  # type: ignore[arg-type]
        if self._counted is None or self._counted[:2] != (share, samples):
            sequential = Planned(samples, None, self._batching, share)
            self._counted = share, samples, sequential.begin(0).epoch
        return share, self._counted[2]

    @property
    def batches(self) -> int:
        """Batches of this rank in an epoch."""
        share, counts = self._counts()
        return counts.batches(share.rank)

    def __len__(self) -> int:
        share, counts = self._counts()
        return counts.len(share.rank)

    def __iter__(self) -> Iterator[int]:
        drawn = self.planned().begin(self.epoch)
        return iter(drawn.epoch.samples(drawn.rank).tolist())

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one, as frameworks call it before each."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch={epoch!r} is not an epoch; epochs are numbered from 0")
        if self.resume is not None and self.resume.epoch != epoch:
            if 0 < self.resume.consumed < (self.resume.samples or 0) and (
                self.resume.batches < self.batches
            ):
                warnings.warn(
                    f"set_epoch({epoch}) gives up the position in epoch {self.resume.epoch} "
                    "that load_state_dict() set",
                    stacklevel=2,
                )
            self.resume = None
        self.epoch = epoch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None, "_counted": None}


def plan_under(sampler: Any, batch_sampler: Any) -> PlanSampler | None:
    """The ``PlanSampler`` that a framework has wrapped in samplers of its own, if there is one."""
    for outer in (sampler, batch_sampler):
        for _ in range(8):  # wrappers hold what they wrap under one of these names
            if outer is None or isinstance(outer, PlanSampler):
                break
            outer = getattr(outer, "batch_sampler", None) or getattr(outer, "sampler", None)
        if isinstance(outer, PlanSampler):
            return outer
    return None


def set_epoch_of(sampler: Any, batch_sampler: Any, epoch: int) -> None:
    """Pass the number of an epoch on to the sampler that knows epochs, if there is one."""
    samplers: tuple[Any, ...] = (sampler, getattr(batch_sampler, "sampler", None))
    for one in samplers:
        if hasattr(one, "set_epoch"):
            one.set_epoch(epoch)
            break


def undealt(batch_sampler: Any) -> Any:
    """The same batch sampler, of a ``PlanSampler`` that leaves dealing to who calls this."""
    if isinstance(batch_sampler, PlanSampler):
        return batch_sampler.whole()
    for name in ("batch_sampler", "sampler"):
        inner = getattr(batch_sampler, name, None)
        if isinstance(inner, PlanSampler | BatchSampler) and plan_under(inner, None) is not None:
            other = copy.copy(batch_sampler)
            setattr(other, name, undealt(inner))
            return other
    return batch_sampler
