"""Worker processes that tell where their dataset is.

A dataset with a state of its own (``state_dict`` and ``load_state_dict``) changes in the process
that reads it, and that is ahead of what the user has seen. So its state comes with each batch,
by the way that torch brings the batch, and what counts is the state of the last batch that was
handed over. Any ``IterableDataset`` is followed like this, since only its worker knows how far it
is; so are workers that may hand over out of order, since then counting tells nothing.

    worker 0   hello   batch 0   batch 3   last words      each with the dataset's state
    worker 1   hello   batch 1   batch 4   ...
    worker 2   hello   batch 2   ...

Each worker's first report is empty: the state before any batch. torch gives the first batch to
worker 0; a resumed epoch goes on after the worker whose turn was last, so the workers up to that
one report twice. A stream's last report is empty too: what it says of itself after its end.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from forebay import _forebay
from forebay.handed import is_stateful

NO_STATE: dict[str, Any] = {"dataset_state": None, "fetcher_state": None, "batches": 0}


def is_tracked(loader: Any) -> bool:
    """Whether this loader's workers report."""
    if not loader.num_workers or isinstance(loader.dataset, IterDataPipe | MapDataPipe):
        return False
    streams = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    return streams or is_stateful(loader.dataset) or not loader.in_order


@dataclass
class Report:
    """What a worker sends: a batch, unless it is empty, and where its dataset is then."""

    worker: int
    state: bytes | None
    empty: bool = True
    batch: Any = None
    # The batch's place among those that were asked for.
    number: int | None = None

    def pin_memory(self) -> Report:
        """Called by torch's thread for that: only the batch is the user's."""
        self.batch = torch.utils.data._utils.pin_memory.pin_memory(self.batch)  # type: ignore[no-untyped-call]
        return self


class Tracker:
    """What the workers of one epoch have told so far."""

    def __init__(
        self, workers: int, saved: dict[str, Any], streams: bool, early: Iterable[int] = ()
    ) -> None:
        snapshot = saved.get("_snapshot", {})
        old = list(snapshot.get("_worker_snapshots", {}).values())
        self.last = -1
        self.streams = streams
        if len(old) == workers:
            self.last = snapshot["_last_yielded_worker_id"]
            self.given = old
        elif old:  # each takes over from one of those that there were
            self.given = [old[worker % len(old)] for worker in range(workers)]
        else:
            state = {**NO_STATE, "dataset_state": saved.get("dataset_state")}
            self.given = [state] * workers
        self._states: list[bytes | dict[str, Any]] = list(self.given)
        self._batches = [int(state["batches"]) for state in self.given]
        self.silent = set(range(workers))
        # Batches that came before their turn, and how many came that are not.
        self.early: set[int] = set(early)
        self.in_turn = 0

    def renew(self) -> None:
        """Begin an epoch: what the states were of is over."""
        self.last = -1
        self.given = [{**state, "batches": 0} for state in self.given]
        self._states = list(self.given)
        self._batches = [0] * len(self.given)

    def note(self, report: Report) -> None:
        """Taken in when its batch is handed over, and not before."""
        self.silent.discard(report.worker)
        if report.state is not None:
            self._states[report.worker] = report.state
        if report.empty:
            return
        self.last = report.worker
        self._batches[report.worker] += 1
        if report.number is not None:
            self.early.add(report.number)
            while self.in_turn in self.early:
                self.early.discard(self.in_turn)
                self.in_turn += 1

    def snapshot(self) -> dict[str, Any]:
        """As it is in a state."""
        snapshots = {}
        for worker, state in enumerate(self._states):
            told = pickle.loads(state) if isinstance(state, bytes) else copy.deepcopy(state)
            told |= {"worker_id": worker, "batches": self._batches[worker]}
            snapshots[f"worker_{worker}"] = told
        return {"_snapshot": {"_last_yielded_worker_id": self.last, "_worker_snapshots": snapshots}}


def no_snapshot(workers: int) -> dict[str, Any]:
    """Of workers that have not begun: each starts with the dataset as it was made."""
    return Tracker(workers, {}, streams=False).snapshot()


def restore(dataset: Any, saved: dict[str, Any]) -> None:
    """Let the dataset go on from what it said of itself."""
    if saved["dataset_state"] is not None:
        if not is_stateful(dataset):
            raise _forebay.InvalidError(
                "the state has a dataset_state, but this dataset has no load_state_dict(); "
                "hint: resume with the dataset the state was saved with"
            )
        dataset.load_state_dict(copy.deepcopy(saved["dataset_state"]))


def restore_iterator(iterator: Any, saved: dict[str, Any]) -> bool:
    """The same for what a stream iterates with; whether there was such a state."""
    fetcher = saved["fetcher_state"]
    if fetcher is None or fetcher["dataset_iter_state"] is None or not is_stateful(iterator):
        return False
    iterator.load_state_dict(copy.deepcopy(fetcher["dataset_iter_state"]))
    return True


def next_epoch_of(dataset: Any, iterator: Any, saved: dict[str, Any]) -> Any:
    """What a stream iterates with in the epoch after the one that it was put back to the end of.

    Some say at their end that all was given, and notice it when they are asked once more; some are
    at their next beginning then, and what they give is theirs to give again.
    """
    with torch.random.fork_rng(devices=[]):
        over = next(iterator, dataset) is dataset
    if not over:
        restore(dataset, saved)
        restore_iterator(iterator, saved)
    return iter(dataset)


def states_of(dataset: Any, iterator: Any, ended: bool) -> dict[str, Any]:
    """What a dataset says of itself, and what it iterates with, if that is something else."""
    inner = iterator.state_dict() if is_stateful(iterator) else None
    outer = dataset.state_dict() if dataset is not iterator and is_stateful(dataset) else None
    fetcher = None
    if iterator is not None:
        fetcher = {"dataset_iter_state": inner, "fetcher_ended": ended}
    return {"dataset_state": outer, "fetcher_state": fetcher}


# -- in the worker ------------------------------------------------------------------------


def _unchanged(report: Any) -> Any:
    return report


@dataclass(frozen=True)
class _Begin:
    """The user's ``worker_init_fn``, who finds his own dataset in ``get_worker_info()``."""

    function: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        assert isinstance(info.dataset, _Reader)
        object.__setattr__(info, "dataset", info.dataset.dataset)
        if self.function is not None:
            self.function(worker)


class _Reader:
    """The user's dataset in a worker."""

    def __init__(self, loader: Any, tracker: Tracker, renewed: bool) -> None:
        self.dataset = loader.dataset
        self.batched = loader._batched
        self.size = loader.batch_size or 1
        self.drop_last = loader.drop_last
        self.collate_fn = loader.collate_fn
        self.given: list[dict[str, Any]] = tracker.given
        self.last = tracker.last
        # Of an epoch that was over: only what stays over epochs is restored.
        self.renewed = renewed
        self.begun = False

    def saved(self) -> tuple[int, dict[str, Any]]:
        """This worker's number, and what it goes on from: once, when it begins."""
        info = torch.utils.data.get_worker_info()
        assert info is not None
        first, self.begun = not self.begun, True
        return info.id, self.given[info.id] if first else NO_STATE


class _Stream(_Reader, torch.utils.data.IterableDataset[Any]):
    """What torch takes for the dataset, of an ``IterableDataset``."""

    def __iter__(self) -> Iterator[Report]:
        again = not self.begun
        worker, saved = self.saved()
        restore(self.dataset, saved)
        iterator = iter(self.dataset)
        own = restore_iterator(iterator, saved) or saved["dataset_state"] is not None
        ended = bool(saved["fetcher_state"] and saved["fetcher_state"]["fetcher_ended"])
        if self.renewed and again and ended:
            iterator = next_epoch_of(self.dataset, iterator, saved) if own else iterator
            ended = False
        hellos = 2 if again and worker <= self.last else 1
        return _Reports(self, worker, iterator, hellos, ended, 0 if own else saved["batches"])


class _Reports(Iterator[Report]):
    """A stream's reports. Not a generator: one that raised would be over."""

    def __init__(
        self,
        stream: _Stream,
        worker: int,
        iterator: Iterator[Any],
        hellos: int,
        ended: bool,
        passed: int,
    ) -> None:
        self._stream = stream
        self._worker = worker
        self._iterator = iterator
        self._hellos = hellos
        self._ended = ended
        self._passed = passed

    def __next__(self) -> Report:
        while self._passed and not self._ended:
            self._passed -= 1
            self._batch()
        if self._hellos:
            self._hellos -= 1
            return Report(self._worker, self._told())
        if self._ended:
            raise StopIteration
        batch = self._batch()
        return Report(
            self._worker, self._told(), batch is self, batch if batch is not self else None
        )

    def _told(self) -> bytes:
        return pickle.dumps(states_of(self._stream.dataset, self._iterator, self._ended))

    def _batch(self) -> Any:
        """A batch as torch makes it of a stream; this very object if there is none."""
        stream = self._stream
        taken: list[Any] = []
        wanted = stream.size if stream.batched else 1
        while len(taken) < wanted and not self._ended:
            try:
                taken.append(next(self._iterator))
            except StopIteration:
                self._ended = True
        if not taken or (stream.batched and stream.drop_last and len(taken) < wanted):
            return self
        return stream.collate_fn(taken if stream.batched else taken[0])


class _Map(_Reader, torch.utils.data.Dataset[Any]):
    """What torch takes for the dataset, of a map-style one: numbered batches in, reports out."""

    def __getitem__(self, task: tuple[int, Any] | None) -> Report:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        if not self.begun:
            restore(self.dataset, self.saved()[1])
        if task is None:
            return Report(info.id, self._told())
        number, index = task
        data: Any
        if not self.batched:
            data = self.dataset[index]
        elif getattr(self.dataset, "__getitems__", None):
            data = self.dataset.__getitems__(index)
        else:
            data = [self.dataset[at] for at in index]
        batch = self.collate_fn(data)
        return Report(info.id, self._told(), False, batch, number)

    def _told(self) -> bytes | None:
        if not is_stateful(self.dataset):
            return None
        return pickle.dumps(states_of(self.dataset, None, ended=False))


# -- beside torch's iterator ----------------------------------------------------------------


class _Tasks:
    """The batch sampler that torch asks: ours, each batch with its number."""

    def __init__(self, batches: Any, tracker: Tracker, workers: int) -> None:
        self._batches = batches
        self._workers = workers
        self._extra = tracker.last + 1
        self._early = set(tracker.early)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return self._numbered(iter(self._batches))  # now: an eager sampler would notice

    def _numbered(self, batches: Iterator[Any]) -> Iterator[Any]:
        for _ in range(self._workers + self._extra):
            yield None
        early, self._extra, self._early = self._early, 0, set()
        for number, batch in enumerate(batches):
            if number not in early:
                yield number, batch


class _View:
    """A loader as torch's iterator sees it, with some of it replaced."""

    def __init__(self, loader: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def seen_with(loader: Any, generator: torch.Generator | None) -> Any:
    """The loader, with another generator for the base seed."""
    return loader if generator is None else _View(loader, generator=generator)


def workers_of(
    loader: Any,
    tracker: Tracker,
    generator: torch.Generator | None,
    renewed: bool,
) -> Any:
    """torch's own iterator with worker processes, over a dataset that reports."""
    made = (_Stream if tracker.streams else _Map)(loader, tracker, renewed)
    replaced: dict[str, Any] = {
        "dataset": made,
        "collate_fn": _unchanged,
        "worker_init_fn": _Begin(loader.worker_init_fn),
        "_auto_collation": False,
        "_IterableDataset_len_called": None,  # it would count empty reports
    }
    if not tracker.streams:
        replaced["_index_sampler"] = _Tasks(loader._index_sampler, tracker, loader.num_workers)
    if generator is not None:
        replaced["generator"] = generator
    loader.check_worker_number_rationality()
    return _MultiProcessingDataLoaderIter(_View(loader, **replaced))
