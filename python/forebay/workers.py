"""The user's functions in worker processes: torch's own, fed with the engine's bytes.

The engine reads and caches; what is written in Python (a transform, a collate_fn) would
run under one GIL in the user's thread, so it runs in processes instead:

    engine -> slab -> slot of a shared file -> worker: items, collate_fn -> torch -> user
              (one copy)                (one copy a sample)        (shared memory)
    engine: decoded image in its memory tier -> worker (``pixels.py``; no copy before PIL's own)

The processes are those of a ``torch.utils.data.DataLoader``, with its order, timeout,
signals and detection of the dead. Its "indices" are parcels: where a batch lies in the
file, and the key of its randomness.

The file is made before the processes, which inherit it, and its slots are used again and
again. A shared tensor for each batch would be sent as a descriptor that stays open here for
good if the worker ends before it unpacks it, as it does whenever a user leaves an epoch.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from torch._utils import ExceptionWrapper

from forebay import _forebay
from forebay.pixels import Decoded, Pieces, SharedTier
from forebay.randomness import seeded

if TYPE_CHECKING:
    from forebay.loader import DataLoader
    from forebay.reading import Reading

# Slots are this far apart; what is not written takes no memory.
_STRIDE = 1 << 40

Note = Callable[[int, str], None]
Raw = torch.Tensor | Decoded


@dataclass(frozen=True)
class Maker:
    """Makes a batch of samples' bytes by the user's functions, in whichever process."""

    # The user's own.
    dataset: Any
    # From a sample's bytes, its label and its number to what the user's functions made of it.
    item: Callable[[Any, int, int], Any]
    collate_fn: Callable[[Any], Any]
    batched: bool
    replaces: bool

    def make(
        self, samples: Iterable[Raw], labels: Sequence[int], ids: list[int], note: Note
    ) -> Any:
        """The batch; where a stand-in came for a bad sample, ``ids`` has its number then."""
        items = []
        for at, (raw, label, number) in enumerate(zip(samples, labels, ids, strict=True)):
            try:
                items.append(self.item(raw, label, number))
            except _forebay.CorruptError as error:
                if not self.replaces:
                    raise
                note(number, str(error))
                item, ids[at] = self._stand_in(number, error)
                items.append(item)
        return self.collate_fn(items if self.batched else items[0])

    def _stand_in(self, number: int, error: Exception) -> tuple[Any, int]:
        """What takes the place of a sample that cannot be decoded: the same everywhere."""
        for other in _forebay.stand_ins(number, len(self.dataset)):
            try:
                return self.dataset[other], other
            except _forebay.CorruptError:
                continue
        raise error


class SharedFile:
    """A file in memory without a name, for this process and those started with it."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("forebay")
        else:
            with tempfile.TemporaryFile() as file:
                self._fd = os.dup(file.fileno())

    def write(self, data: torch.Tensor, offset: int) -> None:
        """The tensor's bytes at ``offset``; the file grows as need be."""
        left = data.numpy().data
        while left:
            written = os.pwrite(self._fd, left, offset)
            left, offset = left[written:], offset + written

    def read(self, length: int, offset: int) -> torch.Tensor:
        """A copy, in memory of its own: a user may keep it."""
        data = torch.empty(length, dtype=torch.uint8)
        left = data.numpy().data
        while left:
            count = os.preadv(self._fd, [left], offset)
            if count == 0:
                raise EOFError(f"the shared file ends at {offset}")
            left, offset = left[count:], offset + count
        return data

    def __getstate__(self) -> Any:
        return DupFd(self._fd)  # to a process that is being spawned

    def __setstate__(self, duplicate: Any) -> None:
        self._fd = duplicate.detach()

    def __del__(self) -> None:
        if "_fd" in self.__dict__:
            os.close(self._fd)


@dataclass(frozen=True)
class Parcel:
    """A batch on its way to a worker."""

    number: int
    offset: int
    lengths: list[int]
    labels: list[int]
    ids: list[int]
    key: tuple[object, ...]
    # Samples that are not in the file but lent as images, by their place in the batch.
    lent: dict[int, Pieces]


@dataclass
class Made:
    """A batch as it came back, or what went wrong with it."""

    number: int
    batch: Any
    ids: list[int]
    bad: list[tuple[int, str]]
    error: Exception | ExceptionWrapper | None = None

    def check(self) -> None:
        """Raise the error, if that is what it is; a worker's as torch raises it."""
        error, self.error = self.error, None
        if isinstance(error, ExceptionWrapper):
            error.reraise()  # type: ignore[no-untyped-call]
        try:
            if isinstance(error, Exception):
                raise error
        finally:
            del error  # it refers to this frame, and would keep the workers with it


class Station(torch.utils.data.Dataset[Any]):
    """What torch takes for the dataset: a parcel in, a batch out."""

    def __init__(
        self, maker: Maker, file: SharedFile, tier: SharedTier | None, packs: bool
    ) -> None:
        self.maker = maker
        self._file = file
        self._tier = tier
        self._packs = packs

    def __getitem__(self, parcel: Parcel) -> Any:
        ids, bad = list(parcel.ids), list[tuple[int, str]]()
        batch = error = None
        try:
            with seeded(*parcel.key):
                samples = self._samples(parcel)
                batch = self.maker.make(samples, parcel.labels, ids, lambda *it: bad.append(it))
        except Exception:
            # Not raised here: the bad samples before it are to be told too.
            error = _wrapped()
        made = (parcel.number, batch, ids, bad, error)
        if not self._packs:
            return made
        try:
            # By a thread of the queue it would fail unheard, and the user would wait for ever.
            return bytes(ForkingPickler.dumps(made))
        except Exception:
            return bytes(ForkingPickler.dumps((parcel.number, None, ids, bad, _wrapped())))

    def _samples(self, parcel: Parcel) -> Iterator[Raw]:
        offset = parcel.offset
        for at, length in enumerate(parcel.lengths):
            if at in parcel.lent:
                assert self._tier is not None
                yield self._tier.read(parcel.lent[at])
            else:
                yield self._file.read(length, offset)
            offset += length


def _stretches(lengths: list[int], left_out: Container[int]) -> Iterator[tuple[int, int]]:
    """Where the samples lie, end to end, that are not left out: from and to."""
    start = end = 0
    for at, length in enumerate(lengths):
        if at in left_out:
            if end > start:
                yield start, end
            start = end + length
        end += length
    if end > start:
        yield start, end


def _wrapped() -> ExceptionWrapper:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    where = f"in DataLoader worker process {info.id}"
    return ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class _Init:
    """The user's ``worker_init_fn``, who finds his own dataset in ``get_worker_info()``."""

    function: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        assert isinstance(info.dataset, Station)
        object.__setattr__(info, "dataset", info.dataset.maker.dataset)
        if self.function is not None:
            self.function(worker)


def _unchanged(made: Any) -> Any:
    return made


@contextlib.contextmanager
def _as_many_as_asked_for() -> Iterator[None]:
    """Without torch's advice on the number of workers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


class _Outbox(Iterator[Parcel]):
    """The "sampler" of torch's loader: gives what there is, and may have more later."""

    def __init__(self) -> None:
        self.parcels: deque[Parcel] = deque()

    def __next__(self) -> Parcel:
        if not self.parcels:
            raise StopIteration
        return self.parcels.popleft()


class Crew:
    """Worker processes and the batches that they are at, in order."""

    def __init__(
        self,
        loader: DataLoader[Any],
        maker: Maker,
        pins: bool,
        engine: _forebay.Engine,
        reading: Reading,
    ) -> None:
        self._process = os.getpid()
        self._slots = loader._lookahead
        self._used = 0
        self._broken = False
        # Parcels that are out, and errors of the engine's in their turn.
        self._out: deque[Parcel | Made] = deque()
        # What is lent to the workers stays where it is until their batch came back.
        self._lent: dict[int, _forebay.Lent] = {}
        self._outbox = _Outbox()
        self._file = SharedFile()
        # Images lie in the engine's memory, and the processes have copies of the dataset and of
        # the user's functions.
        self._made_for = engine, reading, maker.collate_fn
        memory = engine.shared_memory
        tier = None if memory is None else SharedTier(memory)
        # Of its own: the user's generators must not notice this loader.
        generator = torch.Generator()
        generator.manual_seed(loader.base_seed or 0)
        with _as_many_as_asked_for():
            self._torch: Any = torch.utils.data.DataLoader(
                # torch's pinning thread must see the tensors.
                Station(maker, self._file, tier, packs=not pins),
                batch_size=None,
                sampler=self._outbox,
                num_workers=loader.num_workers,
                collate_fn=_unchanged,
                pin_memory=pins,
                timeout=loader.timeout,
                worker_init_fn=_Init(loader.worker_init_fn),
                multiprocessing_context=loader.multiprocessing_context,
                generator=generator,
                prefetch_factor=loader.prefetch_factor,
                persistent_workers=loader.persistent_workers,
            )
        self._iterator: Any = None

    def begin(self) -> None:
        """Start the processes, or have those of the last epoch let go of what is left of it."""
        self._outbox.parcels.clear()
        self._out.clear()
        with _as_many_as_asked_for():
            self._iterator = iter(self._torch)
        self._lent.clear()  # workers that go on have ended what they were at

    def end(self) -> None:
        """End the processes now, whoever still refers to this."""
        if self._process == os.getpid():
            self._iterator._shutdown_workers()
            self._lent.clear()

    @property
    def is_fit(self) -> bool:
        """Whether it can go on with another epoch."""
        ours = self._process == os.getpid() and not self._broken
        return ours and all(worker.is_alive() for worker in self._iterator._workers)

    def is_for(self, engine: _forebay.Engine, reading: Reading, maker: Maker) -> bool:
        """Whether the processes make of the samples what is wanted now."""
        before = self._made_for
        return before[0] is engine and before[1] is reading and before[2] == maker.collate_fn

    @property
    def out(self) -> int:
        """Batches that are with the workers, or wait to be taken."""
        return len(self._out)

    def put(
        self,
        number: int,
        raw: tuple[torch.Tensor, list[int], Any, Any, _forebay.Lent | None],
        key: tuple[object, ...],
    ) -> None:
        """Send a batch of the engine's to a worker. At most ``lookahead`` may be out."""
        data, lengths, labels, ids, lent = raw
        offset = self._used % self._slots * _STRIDE
        self._used += 1
        places = {} if lent is None else dict(lent.places())
        for start, end in _stretches(lengths, places):
            self._file.write(data[start:end], offset + start)
        if lent is not None:
            self._lent[number] = lent
        parcel = Parcel(number, offset, lengths, labels.tolist(), ids.tolist(), key, places)
        self._out.append(parcel)
        self._outbox.parcels.append(parcel)
        self._iterator._try_put_index()

    def put_error(self, number: int, error: Exception) -> None:
        """An error in the place of a batch, raised when it is its turn."""
        self._out.append(Made(number, None, [], [], error.with_traceback(None)))

    def take(self) -> Made:
        """The oldest batch that is out.

        Raises for what is no batch's fault, a timeout or a worker that died.
        """
        head = self._out[0]
        if isinstance(head, Made):
            self._out.popleft()
            return head
        if self._broken:
            raise RuntimeError("the worker processes have failed; hint: iterate the loader anew")
        try:
            made = self._next()
        except BaseException:
            self._broken = self._broken or not self.is_fit
            raise
        self._out.popleft()
        self._lent.pop(made.number, None)
        return made

    def _next(self) -> Made:
        came = next(self._iterator, None)
        if came is not None:
            made = Made(*(pickle.loads(came) if isinstance(came, bytes) else came))
            if made.number == self._out[0].number:
                return made
        # Batches of a worker that ended, torch passes over in silence.
        self._broken = True
        raise RuntimeError("a worker process ended and its batch is lost; hint: see stderr")
