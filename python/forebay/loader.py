"""``forebay.DataLoader``: torch's arguments, torch's order, the engine underneath."""

from __future__ import annotations

import copy
import inspect
import logging
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
import torch.utils.data

from forebay import _forebay
from forebay.disk import CacheDir, disk_settings
from forebay.draws import Draws
from forebay.engine import Engine, engine_settings, threads_of
from forebay.handed import HandedOver
from forebay.images import MAX_PIXELS
from forebay.iterators import EngineIterator, Position
from forebay.options import check_options, choose_seed
from forebay.orders import (
    Batching,
    Order,
    Streamed,
    known_length,
    order_ahead,
    order_of,
)
from forebay.ranks import dealt_to, explain_dealing, surroundings
from forebay.reading import Jobs, Reading, check_native
from forebay.rebuild import teach, with_options
from forebay.sampler import PlanSampler, plan_under, set_epoch_of
from forebay.saving import between_state, check, fresh_state
from forebay.state import State
from forebay.torchs import PlannedBatches, TorchIterator
from forebay.views import reads_natively
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
    - ``deal``: ``"strided"``, as torch deals samples to ranks; ``"batches"``: as accelerate does.
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
        given = {name: value for name, value in locals().items() if name in _DEFAULTS}
        self.streams = isinstance(dataset, torch.utils.data.IterableDataset)
        view, why_not = reads_natively(dataset)
        check_options(given, _DEFAULTS, self.streams)
        check_native(view, why_not, given)
        self._has_threads = view is not None
        # torch itself says what is wrong with a number.
        processes = threads_of(num_workers) if isinstance(num_workers, str) else num_workers
        chosen = sampler is not None or batch_sampler is not None
        self._plan_sampler = plan_under(sampler, batch_sampler) if chosen else None
        if self._plan_sampler is None:
            seed = choose_seed(seed, chosen, generator, rank, world_size)
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
        options = {name: value for name, value in given.items() if value is not _DEFAULTS[name]}
        batched = batch_sampler is not None or batch_size is not None
        if collate_fn is None and view is not None and batched:
            collate_fn = view.collate
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            with_options(processes, options),
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
        self.draws = Draws()
        self._epoch = 0
        self._resume: State | None = None
        self.base_seed: int | None = None
        # What native augmentation is drawn from: for the life of a loader, so that the coming
        # epoch can be made ahead.
        self.augment_seed = self.seed
        settings = engine_settings(memory, readahead, policy, num_workers, split)
        settings["epoch"] = known_length(self.sampler)
        settings |= disk_settings(
            view,
            cache_dir,
            disk,
            layout,
            chunk,
            memory=settings["memory"],
            known_ahead=self._is_known_ahead() and (view is None or view.is_whole),
        )
        self._set_up(settings)
        self._made = True
        teach(DataLoader)
        self._say_who_is_dealt_to()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__dict__.get("_made", False):
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    def _set_up(self, settings: dict[str, Any]) -> None:
        """What belongs to this process: made by the constructor, and after unpickling."""
        memory = settings["memory"] if self.engine is None else self.engine.memory
        # Worker processes read lent images in the memory tier itself; nobody else maps the memory
        # of an engine that is passed in.
        may_lend = self.engine is None or not self.num_workers
        self.reading = self._read(None, memory, may_lend)
        settings["shared"] = bool(self.reading.preparation.lends and self.num_workers)
        self._engine = Engine.of(settings) if self.engine is None else self.engine
        self._jobs = Jobs(self._engine)
        self.spare_crews: list[Crew] = []
        self._live: weakref.ref[Any] | None = None
        self._position: Position | None = None
        self._planned_batches: PlannedBatches | None = None
        self.torch_figures: dict[str, Any] = {"batches": 0, "waited_seconds": 0.0}
        self.warned_of_slabs = False

    @property
    def _native(self) -> bool:
        """Whether forebay reads the samples, rather than torch."""
        return self.reading.view is not None

    def _look_again(self) -> None:
        """Take what the user has changed in the dataset; before each epoch."""
        may_lend = self._engine.is_shared or not self.num_workers
        self.reading = self._read(self.reading, self._engine.memory, may_lend)

    def _read(self, before: Reading | None, memory: int, may_lend: bool) -> Reading:
        options = vars(self)
        return Reading.of(self.dataset, options, before, memory=memory, may_lend=may_lend)

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
        if not self._has_threads:
            super().check_worker_number_rationality()

    @property
    def _index_sampler(self) -> Any:
        # Asked by torch's own iterators, which read our order where we know it.
        planned = self.__dict__.get("_planned_batches")
        return super()._index_sampler if planned is None else planned

    def __len__(self) -> int:
        if self._plans:
            return self._plan.batches
        if self.streams:
            return super().__len__()
        source: Any = self.batch_sampler if self._batched else self.sampler
        return len(source)

    def __repr__(self) -> str:
        return f"forebay.DataLoader({self.dataset!r}, batch_size={self.batch_size})"

    @property
    def _is_accelerate_prepared(self) -> bool:
        # accelerate asks right before it makes a loader of this one's arguments.
        teach(DataLoader)
        return False

    # -- iteration --------------------------------------------------------------------

    def __iter__(self) -> Any:
        self._look_again()
        kind = EngineIterator if self._native else TorchIterator
        resume = self._pending()
        iterator = kind(self, self._next_epoch() if resume is None else resume.epoch, resume)
        self._live = weakref.ref(iterator)
        if not self._plans:
            # Its order is drawn now, so the epoch begins now.
            self._begun(iterator.position)
        return iterator

    def _start(self, iterator: EngineIterator | TorchIterator) -> bool:
        """Called at its first batch: whether that is of another epoch than at ``iter``.

        Frameworks call ``iter`` to see if they may, or before ``set_epoch``; what counts
        is the epoch that is set when the first batch is asked for.
        """
        position = iterator.position
        epoch, resume = self._next_epoch(), self._pending()
        moved = position.epoch != epoch or position.loaded is not resume
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
        set_epoch_of(self.sampler, self.batch_sampler, epoch)
        self._epoch = epoch

    def order(self, epoch: int) -> np.ndarray:
        """The sample numbers of this rank in ``epoch``, ahead of time."""
        return order_ahead(self._order_source, epoch)

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
        return self.world_size == 1 and not isinstance(self._order_source, HandedOver | Streamed)

    def _say_who_is_dealt_to(self) -> None:
        if surroundings()[1] > 1:
            _log.info("%s", self._dealing())

    def _dealing(self) -> str:
        by = None if self._plans else type(self.sampler).__name__
        return explain_dealing(self.rank, self.world_size, by, self.streams)

    # -- state ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: what was yielded, not what was fetched ahead.

        An epoch that was left by ``break`` counts until the next one begins.
        """
        position = self._position
        live = None if self._live is None else self._live()
        if isinstance(live, TorchIterator) and live.position is position:
            live.settle()
        if position is not None and not position.ended:
            return position.state().to_dict()
        epoch = self._next_epoch()
        if position is not None and not self._plans:
            epoch = position.epoch + 1
        return (self._pending() or between_state(self, epoch, position)).to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state`` at the next ``iter``; an empty one changes nothing."""
        if isinstance(state, dict) and not state:
            return
        self._look_again()
        read = State.of_dict(state)
        check(self, read)
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

    def _make_state(self, epoch: int) -> State:
        """The beginning of an epoch, as a state."""
        return fresh_state(self, epoch)

    @property
    def _order_source(self) -> Order | HandedOver | Streamed:
        """Where the order comes from; the sampler is looked at anew, as torch does."""
        if self.streams:
            return Streamed()
        if self._plans:
            return self._plan.planned()
        return order_of(self.sampler, self.batch_sampler, self.generator, self.draws)

    def _fresh_order(self) -> Order | HandedOver | Streamed:
        """The order for one epoch's use."""
        return copy.copy(self._order_source)

    # -- figures and the end ----------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Figures so far: batches, samples, bytes, hits, seconds waited, bad samples, ..."""
        if not self._native:
            # The samples are torch's own affair.
            return {"read_by": "torch", **self.torch_figures}
        live = None if self._live is None else self._live()
        figures = live.stats() if isinstance(live, EngineIterator) else self._jobs.stats()
        return {"read_by": "forebay", **figures, **self._engine.stats()}

    what_if = what_if

    def explain(self) -> str:
        """Who reads and prepares the samples, for which ranks, and why."""
        self._look_again()
        return f"{self._dealing()}\n{self.reading.explain()}"

    def close(self) -> None:
        """End threads, idle workers and network now, rather than when the loader is dropped.

        An engine that was passed in goes on: others may use it.
        """
        self._jobs.clear()
        self.spare_crews = []
        if self._owns_engine:
            self._engine.close()

    # -- what the iterators need ------------------------------------------------------

    @property
    def _owns_engine(self) -> bool:
        """Whether the engine is this loader's alone."""
        return self.engine is None

    @property
    def _its_engine(self) -> Engine:
        """The engine at work, whether its own or one that was passed in."""
        return self._engine

    @property
    def _depth(self) -> int:
        """Batches whose memory is laid out ahead."""
        return min(max(2, self.prefetch_factor or 2), _MOST_BATCHES_AHEAD) + 1

    @property
    def _user_collate_fn(self) -> Callable[[list[Any]], Any] | None:
        """What the user wants done with single samples; None for what is done anyway."""
        return self.reading.user_collate(self.collate_fn, self._batched)

    def _borrow_job(self, gaps: bool = False) -> tuple[_forebay.Engine, _forebay.Job]:
        """A job of this process's engine, and the engine; ``gaps``: raw samples may lie apart.

        Apart in their batch, that is, which may save a copy of them.
        """
        if self._owns_engine and self.world_size > 1:
            self._engine.serve_several_ranks()
        most = (self._depth + self._lookahead) * (self.batch_size or 1)
        settings = {
            "depth": self._depth,
            "on_error": self.on_error,
            "max_bad_samples": self.max_bad_samples,
            "rank": self.rank if self.world_size > 1 else None,
            "gaps": gaps,
            **self.reading.preparation.job_settings(most),
        }
        return self._jobs.borrow(self.reading, settings)

    def _return_job(self, engine: _forebay.Engine, job: _forebay.Job, reading: Reading) -> None:
        """Keep a job for the next epoch; called by ``__del__`` at any moment."""
        self._jobs.give_back(engine, job, reading)

    def _draw_base_seed(self) -> bool:
        """The draw that torch makes at each ``iter``, so that generators agree after it.

        False where torch makes none: persistent workers have theirs from the first epoch.
        """
        if self.persistent_workers and self.num_workers > 0 and self.base_seed is not None:
            return False
        self.base_seed = self.draws.seed(self.generator)
        if self.augment_seed is None and self.reading.preparation.recipe is not None:
            self.augment_seed = self.base_seed
        return True

    def _plan_batches(self, position: Position) -> None:
        """Let torch ask for the batches of ``position``."""
        if not self.streams:
            if self._planned_batches is None:
                self._planned_batches = PlannedBatches(self)
            self._planned_batches.position = position

    def _torchs_iterator(self, position: Position, seen: Any) -> Any:
        """torch's own iterator over this loader, or what it is to be ``seen`` as."""
        self._plan_batches(position)
        if seen is None or seen is self:
            return super().__iter__()
        return torch.utils.data.DataLoader._get_iterator(seen)

    @property
    def _batched(self) -> bool:
        """False if batching is off: the loader yields single samples."""
        return self.batch_sampler is not None

    @property
    def _lookahead(self) -> int:
        """Batches that torch would have asked for ahead of what it yielded."""
        return self.num_workers * (self.prefetch_factor or 2) if self.num_workers else 0


def _own_defaults() -> dict[str, Any]:
    """Our options and what they are if not given."""
    parameters = inspect.signature(DataLoader.__init__).parameters
    torchs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    return {name: its.default for name, its in parameters.items() if name not in torchs}


_DEFAULTS = _own_defaults()
# What the engine and the order were made with. The rest counts from the next epoch on.
_FIXED = frozenset(_DEFAULTS) - {"return_index"}
_OF_A_PROCESS = (
    "reading",
    "_engine",
    "_jobs",
    "spare_crews",
    "_live",
    "_position",
    "_planned_batches",
)
