"""One epoch of a loader: over the engine, or over torch's worker processes."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from torch.utils.dlpack import from_dlpack

from forebay import _forebay
from forebay.orders import Drawn, FromGenerator, FromSeedDraw, HandedOver, Watched
from forebay.randomness import seeded
from forebay.state import State

if TYPE_CHECKING:
    from forebay.loader import DataLoader

_KEPT_BATCHES = 32


class Position:
    """Where an epoch is: drawn or not, and how many batches were yielded.

    The loader keeps it after its iterator is gone, so it must not refer to either.
    """

    def __init__(self, loader: DataLoader, epoch: int, resume: State | None) -> None:
        # Of its own: another iterator of the same loader may be under way, and the user
        # may have changed the sampler since the last epoch.
        self.order = loader.fresh_order()
        if resume is not None and resume.order is not None and "between" in resume.order:
            assert isinstance(self.order, FromGenerator)  # load_state_dict() checked the kind
            self.order.put_back(resume.order["between"])
            resume = dataclasses.replace(resume, order=None)
        self._fresh = loader.make_state(epoch)
        self.epoch = epoch
        self.resume = resume
        self.drawn: Drawn | None = None
        self.rest: _forebay.Epoch | None = None
        self.before = 0 if resume is None else resume.batches
        # What torch would have asked for already, in batches of today's size.
        self.asked_before = (
            0
            if resume is None or isinstance(self.order, HandedOver)
            else resume.consumed // self.order.size
        )
        # What the randomness of the user's functions is made of, where it is not torch's.
        self.base_seed: int | None = None
        if resume is not None and resume.order is not None:
            self.base_seed = resume.order.get("base_seed")
        self.yielded = 0
        self.started = False
        self.ended = False

    def begin(self) -> str:
        """Draw the order, now; the tag of what remains of it."""
        order = self.order
        assert not isinstance(order, HandedOver)
        resume = self.resume
        if resume is not None and resume.order is not None and isinstance(order, Watched):
            over = resume.consumed >= resume.samples
            resume = None if over and order.is_past(resume.order) else resume
        if resume is not None and resume.order is not None:
            self.drawn = order.restore(resume.order)
        else:
            self.drawn = order.begin(self.epoch)
        self.epoch = self.drawn.saved.get("epoch", self.epoch)  # a DistributedSampler's own
        consumed = 0 if resume is None else resume.consumed
        self.rest = self.drawn.epoch.rest(consumed) if consumed else self.drawn.epoch
        return f"{self.drawn.tag} from {consumed}"

    def state(self) -> State:
        """What was yielded so far."""
        batches = self.before + self.yielded
        seed = {} if self.base_seed is None else {"base_seed": self.base_seed}
        if isinstance(self.order, HandedOver):
            order = {"kind": self.order.kind, **seed}
            return dataclasses.replace(self._fresh, batches=batches, order=order)
        if self.drawn is None or self.rest is None:
            return self._fresh if self.resume is None else self.resume
        return dataclasses.replace(
            self._fresh,
            epoch=self.epoch,
            consumed=self.rest.consumed(self.yielded),
            batches=batches,
            order={**self.drawn.saved, **seed},
        )


class EngineIterator(Iterator[Any]):
    """Batches of a dataset of ours, from the engine."""

    def __init__(self, loader: DataLoader, epoch: int, resume: State | None) -> None:
        self._loader = loader
        self._dataset = loader.dataset
        self.position = Position(loader, epoch, resume)
        self._order = self.position.order
        self._begun = False
        self._closed = False
        self._asked = 0
        self._batches = 0
        self._taken = 0
        # Looked up once: they cost an attribute of torch's object each.
        self._timeout = float(loader.timeout)
        self._lookahead = loader.lookahead
        self._batched = loader.batched
        self._pins = loader.pin_memory and torch.cuda.is_available()
        self._raw = loader.user_collate_fn is None and self._batched and self._dataset.is_raw
        self._wants_ids = loader.return_index or not self._raw
        self._engine, self._job = loader.borrow_job()
        if isinstance(self._order, HandedOver):
            self._order.open()
        self._draw_base_seed()
        if self._lookahead:
            self._begin()
            self._ask(loader.lookahead)

    def _draw_base_seed(self) -> None:
        loader, position = self._loader, self.position
        resume, listed = position.resume, isinstance(self._order, HandedOver)
        if resume is not None and resume.order is not None and not listed:
            # Its draws were made before the state was saved.
            loader.base_seed = position.base_seed or 0
            return
        drawn = loader.draw_base_seed()
        if position.base_seed is None and loader.seed is None and loader.num_workers:
            position.base_seed = loader.base_seed
        if isinstance(self._order, HandedOver) and drawn and loader.num_workers:
            self._order.open()  # torch makes it twice then, which an eager sampler notices

    def _begin(self) -> None:
        self._begun = True
        if isinstance(self._order, HandedOver):
            self._job.begin_listed("listed")
            for _ in range(self.position.before):
                self._order.take(len(self._dataset))
            return
        tag = self.position.begin()
        drawn, rest = self.position.drawn, self.position.rest
        assert drawn is not None
        assert rest is not None
        self._job.begin(tag, rest, drawn.rank)
        self._batches = rest.batches(drawn.rank)
        self._foresee(late=False)

    def _foresee(self, late: bool) -> None:
        order = self._order
        coming = None if isinstance(order, HandedOver) else order.coming(self.position.epoch, late)
        if coming is not None:
            self._job.foresee(f"{coming.tag} from 0", coming.epoch, coming.rank)

    def _ask(self, batches: int) -> None:
        """Let the sampler be as far as torch would have brought it."""
        if not isinstance(self._order, HandedOver):
            self._order.requested(self.position.asked_before + batches)
            return
        while self._asked < batches and not self._closed:
            ids = self._order.take(len(self._dataset))
            if ids is None:
                self._closed = True
                self._job.finish()
            else:
                self._job.push(ids)
                self._asked += 1

    def __next__(self) -> Any:
        if self.position.ended:
            raise StopIteration
        if not self.position.started and self._loader.start(self):
            self._job.cancel()
            self._order = self.position.order
            self._begun = False
        if not self._begun:
            self._begin()
        coming = self._taken + 1
        lookahead = self._lookahead
        if not lookahead:
            self._ask(coming)
        try:
            raw = self._job.next(self._timeout, self._wants_ids)
        except _forebay.Error:
            self._taken = self._job.taken  # a batch that failed is taken too; a timeout is not
            raise
        if raw is None:
            self._end()
            raise StopIteration
        # If a function of the user's fails below, the batch was taken but not yielded.
        self._taken = coming
        if lookahead:
            self._ask(lookahead + coming)
        batch = self._hand_over(raw)
        self.position.yielded = coming
        if coming == max(1, self._batches - self._loader.depth):
            self._foresee(late=True)
        return batch

    def _hand_over(self, raw: tuple[Any, list[int], Any, Any]) -> Any:
        data, lengths, labels, ids = raw
        samples = torch.split(from_dlpack(data), lengths) if lengths else ()
        if self._raw and not self._wants_ids:
            done = self._dataset.batch(samples, from_dlpack(labels))
        else:
            done = self._in_python(samples, from_dlpack(labels), from_dlpack(ids))
        if self._pins:
            done = torch.utils.data._utils.pin_memory.pin_memory(done)  # type: ignore[no-untyped-call]
        self._watch_slabs()
        return done

    def _in_python(self, samples: Any, labels: torch.Tensor, ids: torch.Tensor) -> Any:
        loader = self._loader
        done = None
        if loader.user_collate_fn is None and self._batched:
            done = self._dataset.batch(samples, labels)
        if done is None:
            with self._randomness():
                items = self._items(samples, labels, ids)
                done = loader.collate_fn(items if self._batched else items[0])
        if loader.return_index:
            done = _with_ids(done, ids if self._batched else ids[0])
        return done

    def _randomness(self) -> contextlib.AbstractContextManager[None]:
        """What the user's functions draw from.

        Without workers and without a seed it is the training loop's own generators, as
        with torch; otherwise a stream of each batch's own.
        """
        loader, position = self._loader, self.position
        if loader.seed is not None:
            key: tuple[object, ...] = (loader.seed, position.epoch)
        elif loader.num_workers:
            key = (position.base_seed, position.epoch)
        else:
            return contextlib.nullcontext()
        return seeded(*key, loader.rank, position.before + self._taken)

    def _items(self, samples: Any, labels: torch.Tensor, ids: torch.Tensor) -> list[Any]:
        triples = zip(samples, labels.tolist(), ids.tolist(), strict=True)
        items = []
        for at, (raw, label, number) in enumerate(triples):
            try:
                items.append(self._dataset.item(raw, label, number))
            except _forebay.CorruptError as error:
                if self._loader.on_error != "replace":
                    raise
                item, ids[at] = self._stand_in(number, error)
                items.append(item)
        return items

    def _stand_in(self, number: int, error: Exception) -> tuple[Any, int]:
        """What takes the place of a sample that cannot be decoded: the same everywhere."""
        self._job.quarantine(number, str(error))
        for other in _forebay.stand_ins(number, len(self._dataset)):
            try:
                return self._dataset[other], other
            except _forebay.CorruptError:
                continue
        raise error

    def _watch_slabs(self) -> None:
        loader = self._loader
        if not loader.warned_of_slabs and self._job.slabs_out > loader.depth + _KEPT_BATCHES:
            loader.warned_of_slabs = True
            warnings.warn(
                f"{self._job.slabs_out} batches are still referred to; each keeps its memory. "
                "Copy what you keep (tensor.clone()) if memory runs short.",
                stacklevel=4,
            )

    def _end(self) -> None:
        self.position.ended = True
        self._loader.return_job(self._engine, self._job)

    def __len__(self) -> int:
        return len(self._loader)

    def stats(self) -> dict[str, Any]:
        """Figures of the job behind this epoch."""
        return self._job.stats()

    def __del__(self) -> None:
        job = self.__dict__.get("_job")
        if job is not None and not self.position.ended:
            job.cancel()
            self._loader.return_job(self._engine, job)


def _with_ids(batch: Any, ids: torch.Tensor) -> Any:
    if isinstance(batch, dict):
        return {**batch, "__index__": ids}
    return (*batch, ids) if isinstance(batch, tuple | list) else (batch, ids)


class _PlannedBatches:
    """The batch sampler of torch's loader: our order, asked for as torch asks."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self.position: Position | None = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        # Looked up now, not at the first batch: by then there may be another iterator.
        assert self.position is not None
        if isinstance(self.position.order, HandedOver):
            self.position.order.open()  # torch makes it before it draws anything else
        return self._batches_of(self.position)

    def _batches_of(self, position: Position) -> Iterator[Any]:
        order = position.order
        if isinstance(order, HandedOver):
            for at, batch in enumerate(order):
                if at >= position.before:
                    yield batch
            return
        position.begin()
        drawn, rest = position.drawn, position.rest
        assert drawn is not None
        assert rest is not None
        count = rest.batches(drawn.rank)
        for index in range(count):
            order.requested(position.asked_before + index + 1)
            batch = rest.batch(drawn.rank, index)
            yield batch if self._loader.batched else batch[0]
        order.requested(position.asked_before + count + 1)


class TorchIterator(Iterator[Any]):
    """Batches of any other map-style dataset, from torch's own loader in our order."""

    def __init__(self, loader: DataLoader, epoch: int, resume: State | None) -> None:
        self._loader = loader
        self.position = Position(loader, epoch, resume)
        self._open()

    def _open(self) -> None:
        planned, inner = self._loader.planned_torch(_PlannedBatches)
        planned.position = self.position
        resume, order = self.position.resume, self.position.order
        # The base seed of a saved epoch was drawn before: torch's draw now does not count.
        again = resume is not None and resume.order is not None
        state = torch.default_generator.get_state()
        self._inner = iter(inner)
        if again and isinstance(order, FromSeedDraw):
            torch.default_generator.set_state(state)

    def __next__(self) -> Any:
        if not self.position.started and self._loader.start(self):
            self._open()
        started = time.perf_counter()
        try:
            batch = next(self._inner)
        except StopIteration:
            self.position.ended = True
            raise
        finally:
            self._loader.torch_figures["waited_seconds"] += time.perf_counter() - started
        self.position.yielded += 1
        self._loader.torch_figures["batches"] += 1
        return batch

    def __len__(self) -> int:
        return len(self._loader)
