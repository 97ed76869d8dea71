"""``forebay.DataLoader``: torch's arguments, torch's order, the engine underneath."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.utils.data

from forebay import _forebay
from forebay.datasets import Dataset, ImageFolder
from forebay.disk import CacheDir, disk_settings
from forebay.engine import Engine, engine_settings, threads_of
from forebay.images import CACHE_FORMS, MAX_PIXELS, PREPARE, preparation_of
from forebay.iterators import EngineIterator, Position, TorchIterator
from forebay.orders import (
    Batching,
    FromGenerator,
    HandedOver,
    Order,
    Planned,
    Share,
    Watched,
    order_of,
)
from forebay.ranks import find_rank
from forebay.state import State
from forebay.transforms import explain
from forebay.what_if import what_if
from forebay.workers import Crew

_MOST_BATCHES_AHEAD = 1024


class PlanSampler(torch.utils.data.Sampler[int]):
    """The sampler of a loader with a seed: this rank's samples of the coming epoch."""

    def __init__(self, order: Planned, length: int, batches: int, rank: int) -> None:
        self._order = order
        self._length = length
        self._batches = batches
        self._rank = rank
        self.epoch = 0
        self.resume: State | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self._order.begin(self.epoch).epoch.samples(self._rank).tolist())

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one, as frameworks call it before each."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch={epoch!r} is not an epoch; epochs are numbered from 0")
        if self.resume is not None and self.resume.epoch != epoch:
            if 0 < self.resume.consumed < self.resume.samples and (
                self.resume.batches < self._batches
            ):
                warnings.warn(
                    f"set_epoch({epoch}) gives up the position in epoch {self.resume.epoch} "
                    "that load_state_dict() set",
                    stacklevel=2,
                )
            self.resume = None
        self.epoch = epoch


class DataLoader:
    """A drop-in for ``torch.utils.data.DataLoader``; see the README for what it adds.

    All of torch's arguments come first, in torch's order. ``num_workers`` is the number of threads
    (those that would only crowd the cores rest), and of processes where Python steps need them;
    ``"auto"``: as many threads as are of use, no processes. Then, by keyword:

    - ``seed``: the order of epoch e is, if shuffled, ``torch.randperm(n)`` under
      ``manual_seed(seed + e)``, dealt to ranks as ``DistributedSampler`` does; known ahead.
    - ``rank``, ``world_size``: found from the process group or RANK and WORLD_SIZE.
    - ``even``: False for evaluation: no sample twice, ranks may differ by one.
    - ``memory``: budget of the memory tier; ``readahead``: most bytes fetched ahead.
    - ``policy``: what stays in memory: farthest, reuse, lru, lfu, minio or none.
    - ``cache_dir``: a directory, or several, for samples on disk; ``disk``: their most bytes, 0
      for none; ``layout``: ``"packed"``, ``"reorder"`` or ``"auto"``. By default datasets behind
      a network are kept on disk, local files are not.
    - ``engine``: one that several loaders share, in place of the settings above from ``memory`` on.
    - ``split``: (loading, preparing) threads, fixed; by default found, and changed as the run goes.
    - ``on_error``: ``"raise"``, or ``"replace"`` with at most ``max_bad_samples`` bad ones.
    - ``return_index``: batches carry the samples' numbers as well.

    For images, whose transform runs natively as far as it is known (``explain()`` tells):

    - ``decode``: ``"exact"``, Pillow's pixels, or ``"fast"``.
    - ``cache_form``: what stays in memory, ``"encoded"``, ``"decoded"``, or ``"auto"``: by cost.
    - ``channels_last``: that memory format; ``orient``: obey EXIF; ``max_pixels``: the largest.
    - ``prepare``: ``"python"`` to leave all of the transform to Python.
    """

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | str = "auto",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        even: bool = True,
        deal: str = "strided",
        memory: int | str = "2GiB",
        readahead: int | str = "256MiB",
        policy: str = "farthest",
        cache_dir: CacheDir | None = None,
        disk: int | str | None = None,
        layout: str = "auto",
        on_error: str = "raise",
        max_bad_samples: int = 1000,
        return_index: bool = False,
        prepare: str = "auto",
        decode: str = "exact",
        cache_form: str = "auto",
        channels_last: bool = False,
        orient: bool = False,
        max_pixels: int = MAX_PIXELS,
        engine: Engine | None = None,
        split: tuple[int, int] | None = None,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name != "self"}
        if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__len__"):
            raise TypeError(
                "forebay.DataLoader plans the order of a map-style dataset (with __getitem__ and "
                "__len__); an IterableDataset has an order of its own"
            )
        _one_of("deal", deal, ("strided", "batches"))
        if deal == "batches" and not even:
            raise ValueError('even=False goes with deal="strided" only: batches are dealt evenly')
        # torch itself says what is wrong with a number.
        processes = threads_of(num_workers) if isinstance(num_workers, str) else num_workers
        chosen = sampler is not None or batch_sampler is not None
        self.rank, self.world_size = find_rank(rank, world_size)
        seed = _choose_seed(seed, chosen, generator, self.world_size, rank, world_size)
        batching = Batching(batch_size, drop_last)
        order: Order | HandedOver | None = None
        if seed is not None:
            uneven = "keep" if not even else "drop" if drop_last else "pad"
            share = Share(self.rank, self.world_size, deal, uneven)
            if batch_size is not None:
                torch.utils.data.BatchSampler([], batch_size, drop_last)  # only for its checks
            order = Planned(len(dataset), seed if shuffle else None, batching, share)
            sequential = Planned(len(dataset), None, batching, share).begin(0).epoch
            self._batches = sequential.batches(self.rank)
            sampler = PlanSampler(order, sequential.len(self.rank), self._batches, self.rank)
            self._plan_sampler: PlanSampler | None = sampler
            shuffle = None
        else:
            self._plan_sampler = None
        # torch's own object checks the arguments, in torch's words, and makes its samplers.
        with warnings.catch_warnings():
            # Ours are threads, which torch's advice on processes does not fit.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            self._torch = torch.utils.data.DataLoader(
                dataset,
                batch_size,
                shuffle,
                sampler,
                batch_sampler,
                processes,
                collate_fn,
                pin_memory,
                drop_last,
                timeout,
                worker_init_fn,
                multiprocessing_context,
                generator,
                prefetch_factor=prefetch_factor,
                persistent_workers=persistent_workers,
                pin_memory_device=pin_memory_device,
                in_order=in_order,
            )
        self.seed = seed
        if order is None:
            order = self._order_of_sampler()
            self._batches = -1
        self.order_source = order
        self.return_index = return_index
        self.user_collate_fn = collate_fn
        self.on_error = _one_of("on_error", on_error, ("raise", "replace"))
        if isinstance(max_bad_samples, bool) or not isinstance(max_bad_samples, int):
            raise TypeError(f"max_bad_samples={max_bad_samples!r} is not a whole number")
        if max_bad_samples < 0:
            raise ValueError(f"max_bad_samples={max_bad_samples} is negative")
        self.max_bad_samples = min(max_bad_samples, 2**32)
        settings = engine_settings(memory, readahead, policy, num_workers, split)
        settings["epoch"] = _length(self._torch.sampler)
        self.depth = min(max(2, prefetch_factor or 2), _MOST_BATCHES_AHEAD) + 1
        self.native = _reads_natively(dataset)
        if engine is not None:
            self._check_engine(engine)
        if not self.native and (return_index or on_error == "replace"):
            name = "return_index=True" if return_index else 'on_error="replace"'
            raise ValueError(f"{name} needs a dataset of forebay's, as it is")
        settings |= disk_settings(
            dataset if self.native and isinstance(dataset, Dataset) else None,
            cache_dir,
            disk,
            layout,
            memory=settings["memory"],
            known_ahead=self.world_size == 1 and not isinstance(order, HandedOver),
        )
        self.preparation = preparation_of(
            dataset if self.native else None,
            prepare=_one_of("prepare", prepare, PREPARE),
            decode=decode,
            cache_form=_one_of("cache_form", cache_form, CACHE_FORMS),
            channels_last=channels_last,
            orient=orient,
            max_pixels=max_pixels,
            memory=settings["memory"] if engine is None else engine.memory,
        )
        # Worker processes read lent images in the memory tier itself.
        settings["shared"] = bool(self.preparation.lends and processes)
        if engine is not None and settings["shared"]:
            # Nobody else maps the memory of an engine that is shared.
            self.preparation = dataclasses.replace(self.preparation, lends=0)
        self._engine = Engine.of(settings) if engine is None else engine
        self.owns_engine = engine is None
        self._spare: list[tuple[_forebay.Engine, _forebay.Job]] = []
        self.spare_crews: list[Crew] = []
        self._epoch = 0
        self._resume: State | None = None
        self._live: weakref.ref[Any] | None = None
        self._position: Position | None = None
        self._planned_torch: tuple[Any, Any] | None = None
        self.base_seed: int | None = None
        # What native augmentation is drawn from: for the life of a loader, so that the coming
        # epoch can be made ahead.
        self.augment_seed = seed
        self.torch_figures: dict[str, Any] = {"batches": 0, "waited_seconds": 0.0}
        self.warned_of_slabs = False

    def _check_engine(self, engine: Engine) -> None:
        if not isinstance(engine, Engine):
            raise TypeError(f"engine={engine!r} is not a forebay.Engine")
        if not self.native:
            raise ValueError("engine= needs a dataset of forebay's, as it is")
        own = ("memory", "readahead", "policy", "cache_dir", "disk", "layout", "split")
        given = [name for name in own if self._arguments[name] != _DEFAULTS[name]]
        if given:
            raise ValueError(f"{given[0]}= is the engine's; hint: pass it to forebay.Engine()")

    # -- torch's attributes -----------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # dataset, sampler, batch_sampler, batch_size, num_workers, ... are torch's own.
        if name.startswith("_") or "_torch" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._torch, name)

    def __len__(self) -> int:
        return self._batches if self._batches >= 0 else len(self._torch)

    def __repr__(self) -> str:
        return f"forebay.DataLoader({self.dataset!r}, batch_size={self.batch_size})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew on the other side: an engine belongs to its process.
        return _rebuild, (self._arguments, self._next_epoch(), self._pending())

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        kind = EngineIterator if self.native else TorchIterator
        resume = self._pending()
        iterator = kind(self, self._next_epoch() if resume is None else resume.epoch, resume)
        self._live = weakref.ref(iterator)
        if self._plan_sampler is None:
            # Its order is drawn now, so the epoch begins now.
            self._begun(iterator.position)
        return iterator

    def start(self, iterator: EngineIterator | TorchIterator) -> bool:
        """Called at its first batch: whether that is of another epoch than at ``iter``.

        Frameworks call ``iter`` to see if they may, or before ``set_epoch``; what counts
        is the epoch that is set when the first batch is asked for.
        """
        position = iterator.position
        epoch, resume = self._next_epoch(), self._pending()
        moved = position.epoch != epoch or position.resume is not resume
        if moved:
            iterator.position = position = Position(self, epoch, resume)
        self._begun(position)
        return moved

    def _begun(self, position: Position) -> None:
        position.started = True
        self._position = position
        self._set_pending(None)
        self._set_next_epoch(position.epoch + 1)

    def _next_epoch(self) -> int:
        return self._epoch if self._plan_sampler is None else self._plan_sampler.epoch

    def _set_next_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if self._plan_sampler is not None:
            self._plan_sampler.epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one; passed on to a sampler that knows epochs."""
        if self._plan_sampler is None and hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        if self._plan_sampler is not None:
            self._plan_sampler.set_epoch(epoch)
        self._epoch = epoch

    def order(self, epoch: int) -> np.ndarray:
        """The sample numbers of this rank in ``epoch``, ahead of time."""
        source = self.order_source
        planned = source.planned if isinstance(source, Watched) else source
        if not isinstance(planned, Planned):
            raise _forebay.InvalidError(
                "this loader's order is drawn from a generator when its epoch begins; "
                "hint: pass seed= for an order that is known ahead"
            )
        drawn = planned.begin(epoch)
        return drawn.epoch.samples(drawn.rank)

    # -- state ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: what was yielded, not what was fetched ahead.

        An epoch that was left by ``break`` counts until the next one begins.
        """
        position = self._position
        if position is not None and not position.ended:
            return position.state().to_dict()
        epoch = self._next_epoch()
        if position is not None and self._plan_sampler is None:
            epoch = position.epoch + 1
        return (self._pending() or self.make_state(epoch)).to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state`` at the next ``iter``; an empty one changes nothing."""
        if isinstance(state, dict) and not state:
            return
        read = State.of_dict(state)
        read.check(len(self.dataset), self._fingerprint())
        kind = None if read.order is None else read.order.get("kind")
        if kind not in (None, self.order_source.kind):
            raise _forebay.InvalidError(
                f"the state is of an order of kind {kind!r}, this loader's is of kind "
                f"{self.order_source.kind!r}; hint: make the loader with the same seed=, sampler= "
                "and generator= as the one that was saved"
            )
        self.order_source.check(read)
        if self.seed is None and read.augment_seed is not None:
            self.augment_seed = read.augment_seed
        self._set_next_epoch(read.epoch)
        self._set_pending(read)
        # What is being iterated now is no longer where the loader is.
        self._position = None

    def _pending(self) -> State | None:
        return self._resume if self._plan_sampler is None else self._plan_sampler.resume

    def _set_pending(self, state: State | None) -> None:
        if self._plan_sampler is None:
            self._resume = state
        else:
            self._plan_sampler.resume = state

    def make_state(self, epoch: int) -> State:
        """The beginning of an epoch, as a state."""
        source = self.order_source
        order = source.between() if isinstance(source, FromGenerator) else None
        drawn = None if self.seed is not None else self.augment_seed
        return State(len(self.dataset), self._fingerprint(), epoch, 0, 0, order, drawn)

    def fresh_order(self) -> Order | HandedOver:
        """The order for one epoch's use; a sampler is looked at anew, as torch does."""
        if self._plan_sampler is not None:
            return copy.copy(self.order_source)
        return self._order_of_sampler()

    def _order_of_sampler(self) -> Order | HandedOver:
        inner = self._torch
        batching = Batching(None, False)
        if inner.batch_sampler is not None:
            size = getattr(inner.batch_sampler, "batch_size", None) or 0
            batching = Batching(size, getattr(inner.batch_sampler, "drop_last", False))
        return order_of(inner.sampler, inner.batch_sampler, batching, inner.generator)

    def _fingerprint(self) -> str | None:
        return self.dataset.native.fingerprint if isinstance(self.dataset, Dataset) else None

    # -- figures and the end ----------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Figures so far: batches, samples, bytes, hits, seconds waited, bad samples, ..."""
        if not self.native:
            return dict(self.torch_figures)  # the samples are torch's own affair
        live = None if self._live is None else self._live()
        figures: dict[str, Any] = {} if live is None else live.stats()
        if not figures and self._spare:
            figures = self._spare[-1][1].stats()
        return {**figures, **self._engine.stats()}

    what_if = what_if

    def explain(self) -> str:
        """Which steps of the images' transform are native, which are Python, and why."""
        return explain(self.preparation.translation)

    def close(self) -> None:
        """End threads, idle workers and network now, rather than when the loader is dropped.

        An engine that was passed in goes on: others may use it.
        """
        self._spare = []
        self.spare_crews = []
        if self.owns_engine:
            self._engine.close()

    # -- what the iterators need ------------------------------------------------------

    def borrow_job(self, gaps: bool = False) -> tuple[_forebay.Engine, _forebay.Job]:
        """A job of this process's engine: a spare one, or a new one.

        The borrower holds the engine too: without it, nobody works for the job. ``gaps``: raw
        samples may lie apart in their batch, which may save a copy of them.
        """
        engine = self._engine.start()
        while True:
            try:
                made_by, job = self._spare.pop()
            except IndexError:
                break
            if made_by is engine:
                return engine, job
        return engine, engine.job(
            self.dataset.native,
            depth=self.depth,
            on_error=self.on_error,
            max_bad_samples=self.max_bad_samples,
            rank=self.rank if self.world_size > 1 else None,
            gaps=gaps,
            **self.preparation.job_settings((self.depth + self.lookahead) * (self.batch_size or 1)),
        )

    def return_job(self, engine: _forebay.Engine, job: _forebay.Job) -> None:
        """Keep a job for the next epoch, unless its engine was closed or is another process's.

        Called by `__del__` at any moment, so it takes no lock.
        """
        if engine is self._engine.native:
            self._spare.append((engine, job))

    def draw_base_seed(self) -> bool:
        """The draw that torch makes at each ``iter``, so that generators agree after it.

        False where torch makes none: persistent workers have theirs from the first epoch.
        """
        if self.persistent_workers and self.num_workers > 0 and self.base_seed is not None:
            return False
        drawn = torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        self.base_seed = int(drawn.item())
        if self.augment_seed is None and self.preparation.recipe is not None:
            self.augment_seed = self.base_seed
        return True

    @property
    def engine(self) -> Engine:
        """Its memory, threads and network; others' too unless ``owns_engine``."""
        return self._engine

    def planned_torch(self, make_batches: Callable[[DataLoader], Any]) -> tuple[Any, Any]:
        """torch's loader on our order, and the batch sampler that it asks."""
        if self._planned_torch is None:
            planned = make_batches(self)
            batching: dict[str, Any] = (
                {"batch_sampler": planned}
                if self.batched
                else {"batch_size": None, "sampler": planned}
            )
            inner = torch.utils.data.DataLoader(
                self.dataset,
                **batching,
                num_workers=self.num_workers,
                collate_fn=self.user_collate_fn,
                pin_memory=self.pin_memory,
                timeout=self.timeout,
                worker_init_fn=self.worker_init_fn,
                multiprocessing_context=self.multiprocessing_context,
                generator=self.generator,
                prefetch_factor=self.prefetch_factor,
                persistent_workers=self.persistent_workers,
                pin_memory_device=self.pin_memory_device,
                in_order=self.in_order,
            )
            self._planned_torch = planned, inner
        return self._planned_torch

    @property
    def batched(self) -> bool:
        """False if batching is off: the loader yields single samples."""
        return self._torch.batch_sampler is not None

    @property
    def lookahead(self) -> int:
        """Batches that torch would have asked for ahead of what it yielded."""
        return self.num_workers * (self.prefetch_factor or 2) if self.num_workers else 0


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(DataLoader.__init__).parameters.items()
}


def _reads_natively(dataset: Any) -> bool:
    """Whether samples are what the engine reads: not those of a loader or class of the user's."""
    if not isinstance(dataset, Dataset) or getattr(dataset, "loader", None) is not None:
        return False
    return type(dataset).__getitem__ in (Dataset.__getitem__, ImageFolder.__getitem__)


def _length(sampler: Any) -> int | None:
    """How many samples an epoch has, where the sampler knows."""
    return len(sampler) if hasattr(sampler, "__len__") else None


def _rebuild(arguments: dict[str, Any], epoch: int, pending: State | None) -> DataLoader:
    loader = DataLoader(**arguments)
    loader._set_next_epoch(epoch)
    loader._set_pending(pending)
    return loader


def _choose_seed(
    seed: int | None,
    chosen: bool,
    generator: torch.Generator | None,
    world: int,
    rank: int | None,
    world_size: int | None,
) -> int | None:
    """The seed of a planned order, None for torch's own order."""
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
    if chosen:
        if rank is not None or world_size is not None:
            raise ValueError(
                "rank= and world_size= deal a planned order; with a sampler, the sampler deals"
            )
        return None
    if world > 1:
        if generator is not None:
            raise ValueError(
                "with several ranks the order must be the same on all of them, which a generator "
                "cannot promise; hint: pass seed= instead of generator="
            )
        return 0  # DistributedSampler's own default
    return None


def _one_of(name: str, value: str, allowed: Any) -> str:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")
    return value
