"""``forebay.DataLoader``: torch's arguments, torch's order, the engine underneath."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
import torch.utils.data
from torch.utils.data import default_collate, default_convert

from forebay import _forebay
from forebay.datasets import Dataset, ImageFolder
from forebay.disk import CacheDir, disk_settings
from forebay.engine import Engine, engine_settings, threads_of
from forebay.images import CACHE_FORMS, MAX_PIXELS, PREPARE, Preparation, preparation_of
from forebay.iterators import EngineIterator, PlannedBatches, Position, TorchIterator
from forebay.orders import (
    Batching,
    FromGenerator,
    HandedOver,
    Order,
    Planned,
    Streamed,
    Watched,
    order_of,
)
from forebay.ranks import dealt_to, surroundings
from forebay.rebuild import NumWorkers, teach
from forebay.sampler import PlanSampler, plan_under
from forebay.state import State
from forebay.transforms import explain
from forebay.what_if import what_if
from forebay.workers import Crew

_log = logging.getLogger("forebay")

_MOST_BATCHES_AHEAD = 1024

T_co = TypeVar("T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """A drop-in for ``torch.utils.data.DataLoader``; see the README for what it adds.

    All of torch's arguments come first, in torch's order. ``num_workers`` is the number of threads
    (those that would only crowd the cores rest), and of processes where Python steps need them;
    ``"auto"``: as many threads as are of use, no processes. Then, by keyword:

    - ``seed``: the order of epoch e is, if shuffled, ``torch.randperm(n)`` under
      ``manual_seed(seed + e)``, dealt to ranks as ``DistributedSampler`` does; known ahead.
    - ``rank``, ``world_size``: with ``seed=`` they are found from the process group or RANK and
      WORLD_SIZE. Without any of the three the loader deals to nobody, as torch's does.
    - ``even``: False for evaluation: no sample twice, ranks may differ by one.
    - ``memory``: budget of the memory tier; ``readahead``: most bytes fetched ahead.
    - ``policy``: what stays in memory: farthest, reuse, lru, lfu, minio or none.
    - ``cache_dir``: a directory, or several, for samples on disk; ``disk``: their most bytes, 0
      for none; ``layout``: ``"packed"``, ``"reorder"`` or ``"auto"``; ``chunk``: bytes that are
      written and read at a time, 4 MiB or a batch by default. By default datasets behind a network
      are kept on disk, local files are not.
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

    # What is set by name, from the arguments.
    dataset: Any
    seed: int | None
    even: bool
    deal: str
    memory: int | str
    readahead: int | str
    policy: str
    cache_dir: CacheDir | None
    disk: int | str | None
    layout: str
    chunk: int | str | None
    on_error: str
    max_bad_samples: int
    return_index: bool
    prepare: str
    decode: str
    cache_form: str
    channels_last: bool
    orient: bool
    max_pixels: int
    engine: Engine | None
    split: tuple[int, int] | None

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[T_co],
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
        chunk: int | str | None = None,
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
        given = {name: value for name, value in locals().items() if name in _OPTIONS}
        self._streams = isinstance(dataset, torch.utils.data.IterableDataset)
        self.native = _reads_natively(dataset)
        self._check_options(given)
        # torch itself says what is wrong with a number.
        processes = threads_of(num_workers) if isinstance(num_workers, str) else num_workers
        chosen = sampler is not None or batch_sampler is not None
        self._plan_sampler = plan_under(sampler, batch_sampler) if chosen else None
        if self._plan_sampler is None:
            seed = _choose_seed(seed, chosen, generator, rank, world_size)
        if seed is not None and self._plan_sampler is None:
            if batch_size is not None:
                torch.utils.data.BatchSampler([], batch_size, drop_last)  # only for its checks
            sampler = self._plan_sampler = PlanSampler(
                dataset,
                seed,
                shuffle=bool(shuffle),
                batching=Batching(batch_size, drop_last),
                even=even,
                deal=deal,
                rank=rank,
                world_size=world_size,
            )
            shuffle = None
        options = {
            name: value for name, value in given.items() if value is not _OPTIONS[name].default
        }
        batched = batch_sampler is not None or batch_size is not None
        if collate_fn is None and self.native and batched:
            assert isinstance(dataset, Dataset)
            collate_fn = dataset.collate
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            _with_options(processes, options),
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
        # Named as the arguments are: that is how frameworks make another loader of this one.
        for name, value in given.items():
            setattr(self, name, value)
        # A sampler of ours that the framework wrapped runs as theirs; else the plan is read.
        self._plans = self._plan_sampler is self.sampler and batch_sampler is None
        self.seed = seed if self._plan_sampler is None else self._plan_sampler.seed
        self.max_bad_samples = min(max_bad_samples, 2**32)
        self._epoch = 0
        self._resume: State | None = None
        self.base_seed: int | None = None
        # What native augmentation is drawn from: for the life of a loader, so that the coming
        # epoch can be made ahead.
        self.augment_seed = self.seed
        settings = engine_settings(memory, readahead, policy, num_workers, split)
        settings["epoch"] = _length(self.sampler)
        settings |= disk_settings(
            dataset if self.native and isinstance(dataset, Dataset) else None,
            cache_dir,
            disk,
            layout,
            chunk,
            memory=settings["memory"],
            known_ahead=self._is_known_ahead(),
        )
        self._set_up(settings)
        teach(type(self))
        self._say_who_is_dealt_to()

    def _check_options(self, given: dict[str, Any]) -> None:
        """Refuse options that are wrong, or that this kind of dataset cannot have."""
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
        if self._streams:
            for name in ("seed", "rank", "world_size"):
                if given[name] is not None:
                    raise ValueError(
                        f"{name}= plans the order of a map-style dataset; an IterableDataset has "
                        "an order of its own"
                    )
        if not self.native and (given["return_index"] or given["on_error"] == "replace"):
            name = "return_index=True" if given["return_index"] else 'on_error="replace"'
            raise ValueError(f"{name} needs a dataset of forebay's, as it is")
        engine = given["engine"]
        if engine is None:
            return
        if not isinstance(engine, Engine):
            raise TypeError(f"engine={engine!r} is not a forebay.Engine")
        if not self.native:
            raise ValueError("engine= needs a dataset of forebay's, as it is")
        for name in _ENGINES_OPTIONS:
            if given[name] != _OPTIONS[name].default:
                raise ValueError(f"{name}= is the engine's; hint: pass it to forebay.Engine()")

    def _set_up(self, settings: dict[str, Any]) -> None:
        """What belongs to this process: made by the constructor, and after unpickling."""
        self.preparation = self._prepare(settings["memory"])
        # Worker processes read lent images in the memory tier itself.
        settings["shared"] = bool(self.preparation.lends and self.num_workers)
        if self.engine is not None and settings["shared"]:
            # Nobody else maps the memory of an engine that is shared.
            self.preparation = dataclasses.replace(self.preparation, lends=0)
        self._engine = Engine.of(settings) if self.engine is None else self.engine
        self._spare: list[tuple[_forebay.Engine, _forebay.Job]] = []
        self.spare_crews: list[Crew] = []
        self._live: weakref.ref[Any] | None = None
        self._position: Position | None = None
        self._planned_batches: PlannedBatches | None = None
        self.torch_figures: dict[str, Any] = {"batches": 0, "waited_seconds": 0.0}
        self.warned_of_slabs = False

    def _prepare(self, memory: int) -> Preparation:
        return preparation_of(
            self.dataset if self.native else None,
            prepare=self.prepare,
            decode=self.decode,
            cache_form=self.cache_form,
            channels_last=self.channels_last,
            orient=self.orient,
            max_pixels=self.max_pixels,
            memory=memory if self.engine is None else self.engine.memory,
        )

    def __getstate__(self) -> dict[str, Any]:
        # What runs belongs to its process, and is made anew on the other side.
        state = {name: value for name, value in self.__dict__.items() if name not in _OF_A_PROCESS}
        return {**state, "_iterator": None, "_settings": self._engine.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        settings = state.pop("_settings")
        self.__dict__.update(state)
        self._set_up(settings)

    # -- torch's attributes -----------------------------------------------------------

    def check_worker_number_rationality(self) -> None:
        """torch's advice on the number of processes; ours are threads, which it does not fit."""
        if not self.native:
            super().check_worker_number_rationality()

    @property
    def _index_sampler(self) -> Any:
        # Asked by torch's own iterators, which read our order where we know it.
        planned = self.__dict__.get("_planned_batches")
        return super()._index_sampler if planned is None else planned

    def __len__(self) -> int:
        if self._plans:
            return self._plan.batches
        if self._streams:
            return super().__len__()
        source: Any = self.batch_sampler if self.batched else self.sampler
        return len(source)

    def __repr__(self) -> str:
        return f"forebay.DataLoader({self.dataset!r}, batch_size={self.batch_size})"

    @property
    def _is_accelerate_prepared(self) -> bool:
        # accelerate asks right before it makes a loader of this one's arguments.
        teach(type(self))
        return False

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Any:
        kind = EngineIterator if self.native else TorchIterator
        resume = self._pending()
        iterator = kind(self, self._next_epoch() if resume is None else resume.epoch, resume)
        self._live = weakref.ref(iterator)
        if not self._plans:
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
        return self._plan.epoch if self._plans else self._epoch

    def _set_next_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if self._plans:
            self._plan.epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one; passed on to a sampler that knows epochs."""
        samplers: tuple[Any, ...] = (self.sampler, getattr(self.batch_sampler, "sampler", None))
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
                break
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

    # -- who is dealt to --------------------------------------------------------------

    @property
    def _plan(self) -> PlanSampler:
        assert self._plan_sampler is not None
        return self._plan_sampler

    @property
    def rank(self) -> int:
        """The rank whose samples this loader gives; 0 if its order is dealt to nobody."""
        return dealt_to(self.sampler, self.batch_sampler)[0]

    @rank.setter
    def rank(self, given: int | None) -> None:
        pass  # the sampler has it

    @property
    def world_size(self) -> int:
        """How many ranks this loader's order is dealt to; 1 if to nobody."""
        return dealt_to(self.sampler, self.batch_sampler)[1]

    @world_size.setter
    def world_size(self, given: int | None) -> None:
        pass

    def _is_known_ahead(self) -> bool:
        return self.world_size == 1 and not isinstance(self.order_source, HandedOver | Streamed)

    def _say_who_is_dealt_to(self) -> None:
        if surroundings()[1] > 1:
            _log.info("%s", self._dealing())

    def _dealing(self) -> str:
        """Who gets which samples, in a sentence."""
        rank, world = self.rank, self.world_size
        _, there = surroundings()
        if self._streams:
            return "order: the IterableDataset's own; sharing it out to ranks is up to the dataset"
        if world > 1:
            by = "forebay" if self._plans else type(self.sampler).__name__
            return f"order: dealt to {world} ranks by {by}; this loader gives those of rank {rank}"
        if there > 1:
            return (
                f"order: not dealt, so each of the {there} ranks gets every sample, as with "
                "torch; hint: pass seed= or a DistributedSampler to deal it"
            )
        return "order: of one rank; every sample is this loader's"

    # -- state ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: what was yielded, not what was fetched ahead.

        An epoch that was left by ``break`` counts until the next one begins.
        """
        position = self._position
        if position is not None and not position.ended:
            return position.state().to_dict()
        epoch = self._next_epoch()
        if position is not None and not self._plans:
            epoch = position.epoch + 1
        return (self._pending() or self.make_state(epoch)).to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state`` at the next ``iter``; an empty one changes nothing."""
        if isinstance(state, dict) and not state:
            return
        read = State.of_dict(state)
        read.check(_length(self.dataset), self._fingerprint())
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
        return self._plan.resume if self._plans else self._resume

    def _set_pending(self, state: State | None) -> None:
        if self._plans:
            self._plan.resume = state
        else:
            self._resume = state

    def make_state(self, epoch: int) -> State:
        """The beginning of an epoch, as a state."""
        source = self.order_source
        order = source.between() if isinstance(source, FromGenerator) else None
        drawn = None if self.seed is not None else self.augment_seed
        return State(_length(self.dataset), self._fingerprint(), epoch, 0, 0, order, drawn)

    @property
    def order_source(self) -> Order | HandedOver | Streamed:
        """Where the order comes from; the sampler is looked at anew, as torch does."""
        if self._streams:
            return Streamed()
        if self._plans:
            return self._plan.planned()
        batching = Batching(None, False)
        if self.batch_sampler is not None:
            size = getattr(self.batch_sampler, "batch_size", None) or 0
            batching = Batching(size, getattr(self.batch_sampler, "drop_last", False))
        return order_of(self.sampler, self.batch_sampler, batching, self.generator)

    def fresh_order(self) -> Order | HandedOver | Streamed:
        """The order for one epoch's use."""
        return copy.copy(self.order_source)

    def _fingerprint(self) -> str | None:
        return self.dataset.native.fingerprint if isinstance(self.dataset, Dataset) else None

    # -- figures and the end ----------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Figures so far: batches, samples, bytes, hits, seconds waited, bad samples, ..."""
        if not self.native:
            # The samples are torch's own affair.
            return {"read_by": "torch", **self.torch_figures}
        live = None if self._live is None else self._live()
        figures: dict[str, Any] = {} if live is None else live.stats()
        if not figures and self._spare:
            figures = self._spare[-1][1].stats()
        return {"read_by": "forebay", **figures, **self._engine.stats()}

    what_if = what_if

    def explain(self) -> str:
        """Who reads and prepares the samples, for which ranks, and why."""
        return f"{self._dealing()}\n{self._reading()}"

    def _reading(self) -> str:
        if self.native:
            return explain(self.preparation.translation)
        kind = type(self.dataset).__name__
        return f"samples: read by torch, since {kind} is not a dataset that forebay reads"

    def close(self) -> None:
        """End threads, idle workers and network now, rather than when the loader is dropped.

        An engine that was passed in goes on: others may use it.
        """
        self._spare = []
        self.spare_crews = []
        if self.owns_engine:
            self._engine.close()

    # -- what the iterators need ------------------------------------------------------

    @property
    def owns_engine(self) -> bool:
        """Whether the engine is this loader's alone."""
        return self.engine is None

    @property
    def its_engine(self) -> Engine:
        """The engine at work, whether its own or one that was passed in."""
        return self._engine

    @property
    def depth(self) -> int:
        """Batches whose memory is laid out ahead."""
        return min(max(2, self.prefetch_factor or 2), _MOST_BATCHES_AHEAD) + 1

    @property
    def user_collate_fn(self) -> Callable[[list[Any]], Any] | None:
        """What the user wants done with single samples; None for what is done anyway."""
        usual = default_collate if self.batched else default_convert
        if self.batched and isinstance(self.dataset, Dataset):
            usual = self.dataset.collate
        return None if self.collate_fn == usual else self.collate_fn

    def borrow_job(self, gaps: bool = False) -> tuple[_forebay.Engine, _forebay.Job]:
        """A job of this process's engine: a spare one, or a new one.

        The borrower holds the engine too: without it, nobody works for the job. ``gaps``: raw
        samples may lie apart in their batch, which may save a copy of them.
        """
        if self.owns_engine and self.world_size > 1:
            self._engine.serve_several_ranks()
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

    def torchs_iterator(self, position: Position) -> Any:
        """torch's own iterator over this loader, in the order of ``position``."""
        if not self._streams:
            if self._planned_batches is None:
                self._planned_batches = PlannedBatches(self)
            self._planned_batches.position = position
        return super().__iter__()

    @property
    def batched(self) -> bool:
        """False if batching is off: the loader yields single samples."""
        return self.batch_sampler is not None

    @property
    def lookahead(self) -> int:
        """Batches that torch would have asked for ahead of what it yielded."""
        return self.num_workers * (self.prefetch_factor or 2) if self.num_workers else 0


def _own_options() -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(DataLoader.__init__).parameters
    torchs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in torchs}


_OPTIONS = _own_options()
# Those that are an Engine's where loaders share one.
_ENGINES_OPTIONS = (
    *("memory", "readahead", "policy", "split"),
    *("cache_dir", "disk", "layout", "chunk"),
)
_OF_A_PROCESS = (
    "preparation",
    "_engine",
    "_spare",
    "spare_crews",
    "_live",
    "_position",
    "_planned_batches",
)


def _with_options(number: int, options: dict[str, Any]) -> int:
    """The number, for frameworks that hand nothing else of ours on."""
    whole = isinstance(number, int) and not isinstance(number, bool)
    return NumWorkers.of(number, options) if whole else number


def _reads_natively(dataset: Any) -> bool:
    """Whether samples are what the engine reads: not those of a loader or class of the user's."""
    if not isinstance(dataset, Dataset) or getattr(dataset, "loader", None) is not None:
        return False
    return type(dataset).__getitem__ in (Dataset.__getitem__, ImageFolder.__getitem__)


def _length(of: Any) -> int | None:
    """How many there are, where that is known."""
    try:
        return len(of)
    except (TypeError, NotImplementedError):
        return None


def _choose_seed(
    seed: int | None,
    chosen: bool,
    generator: torch.Generator | None,
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


def _one_of(name: str, value: str, allowed: Any) -> str:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")
    return value
