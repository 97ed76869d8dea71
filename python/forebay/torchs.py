"""Datasets that torch reads: its own iterator, in our order where there is one."""

from __future__ import annotations

import copy
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from forebay.handed import HandedOver, is_stateful
from forebay.iterators import Position, is_untouched, order_of_state
from forebay.orders import Streamed
from forebay.saving import base_generator, restore_here, resume_stream
from forebay.state import State
from forebay.tracked import Report, Tracker, is_tracked, seen_with, states_of, workers_of

if TYPE_CHECKING:
    from forebay.loader import DataLoader


class PlannedBatches:
    """The batch sampler of torch's loader: our order, asked for as torch asks."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        # torch's iterator has this, and the loader has that: a circle would keep its workers.
        self._loader = weakref.proxy(loader)
        self._batched = loader._batched
        self.position: Position | None = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        # Looked up now, not at the first batch: by then there may be another iterator.
        assert self.position is not None
        if isinstance(self.position.order, HandedOver):
            # torch makes it before it draws anything else.
            goes_on = self.position.order.open(order_of_state(self.position.loaded))
            return islice(self.position.order, 0 if goes_on else self.position.before, None)
        return self._batches_of(self.position)

    def _batches_of(self, position: Position) -> Iterator[Any]:
        order = position.order
        assert not isinstance(order, HandedOver)
        assert not isinstance(order, Streamed)
        position.begin()
        drawn, rest = position.drawn, position.rest
        assert drawn is not None
        assert rest is not None
        count = rest.batches(drawn.rank)
        for index in range(count):
            order.requested(position.asked_before + index + 1)
            batch = rest.batch(drawn.rank, index)
            yield batch if self._batched else batch[0]
        order.requested(position.asked_before + count + 1)


class TorchIterator(Iterator[Any]):
    """Batches of any other dataset: torch's own iterator, in our order where there is one."""

    def __init__(self, loader: DataLoader[Any], epoch: int, resume: State | None) -> None:
        self._loader = loader
        self._warned_at = -1
        self.position = Position(loader, epoch, resume)
        self._open()

    def _open(self) -> None:
        position, loader = self.position, self._loader
        self._ready: deque[Report] = deque()
        self._inner = self._begin()
        here = position.tracker is None and isinstance(position.order, Streamed)
        if here and not resume_stream(self._inner, position.loaded):
            for _ in range(position.before):
                next(self._inner, None)
        if position.tracker is not None and is_stateful(loader.dataset):
            self.settle()  # what a worker says against its beginning is heard now

    def _begin(self) -> Any:
        """torch's iterator: a new one, or that of the workers which persist."""
        loader, position = self._loader, self.position
        state = position.loaded
        if state is not None:
            loader._iterator = None  # its workers are where they are
        persists = bool(loader.persistent_workers and loader.num_workers)
        if persists and loader._iterator is not None:
            inner = loader._torchs_iterator(position, None)
            if is_tracked(loader):
                self._track(Tracker(loader.num_workers, {}, loader.streams))
                inner._IterableDataset_len_called = None
            position.base_seed = loader.base_seed
            return inner
        # The dataset may keep the generator's state as its own: between epochs from before torch's
        # draw, else from after it.
        own = state if state is not None and state.own and not loader.num_workers else None
        if own is not None and is_untouched(own):
            restore_here(loader, own)
            loader.draws.follow(own)
            own = None
        if not (own or loader.num_workers or loader.streams) and is_stateful(loader.dataset):
            position.told_before = copy.deepcopy(states_of(loader.dataset, None, ended=False))
        generator = base_generator(loader, position)
        if is_tracked(loader):
            inner = self._tracked_workers(state, generator)
        else:
            if own is not None:
                source = generator or loader.generator
                torch.empty((), dtype=torch.int64).random_(generator=source)
                generator = torch.Generator()
                restore_here(loader, own)
                loader.draws.follow(own)
            inner = loader._torchs_iterator(position, seen_with(loader, generator))
            self._ask_here(inner)
        if persists:
            loader._iterator = inner
        if loader.num_workers and loader.seed is None and position.base_seed is None:
            position.base_seed = loader.base_seed = inner._base_seed
        return inner

    def _tracked_workers(self, state: State | None, generator: Any) -> Any:
        loader, position = self._loader, self.position
        order = order_of_state(state)
        early = [number - position.before for number in order.get("early", {}).get("batches", [])]
        own = {} if state is None else state.own
        tracker = Tracker(loader.num_workers, own, loader.streams, early)
        renewed = state is not None and not state.batches and not early
        if renewed:
            tracker.renew()
        self._track(tracker)
        loader._plan_batches(position)
        return workers_of(loader, tracker, generator, renewed)

    def _track(self, tracker: Tracker) -> None:
        self.position.tracker = tracker
        if tracker.streams or is_stateful(self._loader.dataset):
            self.position.told = tracker.snapshot

    def _ask_here(self, inner: Any) -> None:
        """Let the dataset of this process be asked what it says of itself."""
        loader = self._loader
        fetcher = getattr(inner, "_dataset_fetcher", None)
        if fetcher is None:
            return
        if loader.streams:
            self.position.told = lambda: copy.deepcopy(
                states_of(fetcher.dataset, fetcher.dataset_iter, fetcher.ended)
            )
        elif is_stateful(loader.dataset):
            self.position.told = lambda: copy.deepcopy(
                states_of(fetcher.dataset, None, ended=False)
            )

    def settle(self) -> None:
        """Hear from each worker where its dataset is, if there is one that has not told."""
        tracker = self.position.tracker
        while tracker is not None and tracker.silent and not self._ready:
            report = next(self._inner, None)
            if report is None:
                return
            if report.empty:
                tracker.note(report)
            else:
                self._ready.append(report)

    def __next__(self) -> Any:
        if not self.position.started and self._loader._start(self):
            self._open()
        started = time.perf_counter()
        try:
            batch = self._next()
            if isinstance(self.position.order, HandedOver):
                self.position.order.forget(self.position.yielded)
        except StopIteration:
            self.position.ended = True
            raise
        finally:
            self._loader.torch_figures["waited_seconds"] += time.perf_counter() - started
        self._loader.torch_figures["batches"] += 1
        return batch

    def _next(self) -> Any:
        position, tracker = self.position, self.position.tracker
        if tracker is None:
            batch = next(self._inner)
            position.yielded += 1
            return batch
        while True:
            report = self._ready.popleft() if self._ready else next(self._inner)
            if not report.empty and self._is_over_long():
                self._ready.appendleft(report)  # the warning may be an error
                self._warn_of_length()
                continue
            tracker.note(report)
            if not report.empty:
                position.yielded = tracker.in_turn if not tracker.streams else position.yielded + 1
                return report.batch

    def _is_over_long(self) -> bool:
        told = self._loader._IterableDataset_len_called
        yielded = self.position.before + self.position.yielded
        return told is not None and yielded >= told and self._warned_at != yielded

    def _warn_of_length(self) -> None:
        """torch's warning, which its iterator would give for empty reports as well.

        It begins as torch's does, for who filters it by its text.
        """
        self._warned_at = self.position.before + self.position.yielded
        warnings.warn(
            f"Length of IterableDataset {self._loader.dataset} was reported to be "
            f"{self._loader._IterableDataset_len_called} (when accessing len(dataloader)), but "
            f"{self._warned_at + 1} samples have been fetched. For multiprocessing data-loading, "
            "this may be since each worker gives the whole dataset; hint: let get_worker_info() "
            "tell it which part to give",
            stacklevel=4,
        )

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        # Frameworks and debuggers look at torch's iterator.
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)
