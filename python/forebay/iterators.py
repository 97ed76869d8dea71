"""One epoch of a loader: over the engine, or over torch's worker processes."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from torch.utils.dlpack import from_dlpack

from forebay import _forebay
from forebay.images import Finish
from forebay.orders import Drawn, FromGenerator, FromSeedDraw, HandedOver, Streamed, Watched
from forebay.pixels import Decoded
from forebay.randomness import seeded
from forebay.state import State
from forebay.workers import Crew, Made, Maker

if TYPE_CHECKING:
    from forebay.loader import DataLoader

# Seed, epoch, first place in the epoch, places between two samples.
Random = tuple[int, int, int, int]

_KEPT_BATCHES = 32
# Where block, labels and ids are in what the engine gives.
_TENSORS = (0, 3, 4)
# Seconds; the engine waits in steps, so this is one of them.
_A_GLANCE = 1e-3
# Up to so many samples an epoch begins once the coming one is known: that takes a few milliseconds.
_KNOWN_FIRST = 100_000


class Position:
    """Where an epoch is: drawn or not, and how many batches were yielded.

    The loader keeps it after its iterator is gone, so it must not refer to either.
    """

    def __init__(self, loader: DataLoader[Any], epoch: int, resume: State | None) -> None:
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
            if resume is None or isinstance(self.order, HandedOver | Streamed)
            else resume.consumed // self.order.size
        )
        # What native augmentation is drawn from, where it is not the user's seed.
        self.augment_seed = None if resume is None else resume.augment_seed
        # What the randomness of the user's functions is made of, where it is not torch's.
        self.base_seed: int | None = None
        if resume is not None and resume.order is not None:
            self.base_seed = resume.order.get("base_seed")
        self.consumed = 0
        self.yielded = 0
        self.started = False
        self.ended = False

    def begin(self) -> str:
        """Draw the order, now; the tag of what remains of it."""
        order = self.order
        assert not isinstance(order, HandedOver | Streamed)
        resume = self.resume
        if resume is not None and resume.order is not None and isinstance(order, Watched):
            over = resume.consumed >= (resume.samples or 0)
            resume = None if over and order.is_past(resume.order) else resume
        if resume is not None and resume.order is not None:
            self.drawn = order.restore(resume.order)
        else:
            self.drawn = order.begin(self.epoch)
        self.epoch = self.drawn.saved.get("epoch", self.epoch)  # a DistributedSampler's own
        consumed = self.consumed = 0 if resume is None else resume.consumed
        self.rest = self.drawn.epoch.rest(consumed) if consumed else self.drawn.epoch
        return f"{self.drawn.tag} from {consumed}"

    def state(self) -> State:
        """What was yielded so far."""
        return dataclasses.replace(self._state(), augment_seed=self.augment_seed)

    def _state(self) -> State:
        batches = self.before + self.yielded
        seed = {} if self.base_seed is None else {"base_seed": self.base_seed}
        if isinstance(self.order, HandedOver | Streamed):
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

    def __init__(self, loader: DataLoader[Any], epoch: int, resume: State | None) -> None:
        self._loader = loader
        self._dataset = loader.dataset
        self.position = Position(loader, epoch, resume)
        self._order = self.position.order
        self._begun = False
        self._closed = False
        self._asked = 0
        self._batches = 0
        self._taken = 0
        self._foreseen = False
        # A batch that was taken but not yet handed over: of the engine, or of the workers.
        self._raw_batch: list[Any] | None = None
        self._made: Made | None = None
        # Looked up once: they cost an attribute of torch's object each.
        self._timeout = float(loader.timeout)
        self._lookahead = loader.lookahead
        self._batched = loader.batched
        self._pins = loader.pin_memory and torch.cuda.is_available()
        images = loader.preparation.recipe is not None
        self._finish = Finish(self._dataset, loader.preparation) if images else None
        self._raw = loader.user_collate_fn is None and self._batched and self._is_raw()
        self._wants_ids = loader.return_index or not self._raw
        to_workers = bool(self._lookahead) and self._needs_python()
        self._engine, self._job = loader.borrow_job(gaps=not to_workers)
        if isinstance(self._order, HandedOver):
            self._order.open()
        self._draw_base_seed()
        self._maker = Maker(
            self._dataset,
            self._dataset.item if self._finish is None else self._finish.item,
            loader.collate_fn,
            self._batched,
            loader.on_error == "replace",
        )
        self._dry = False
        self._crew = self._hire() if to_workers else None
        if self._lookahead:
            self._begin()
            self._ask(loader.lookahead)

    def _is_raw(self) -> bool:
        """Whether what the engine gives is a batch, but for its form."""
        if self._finish is None:
            return bool(self._dataset.is_raw)
        return self._finish.is_tensor and self._dataset.target_transform is None

    def _needs_python(self) -> bool:
        """Whether batches go through functions of the user's or of Python's, by sample."""
        if self._finish is not None:
            # Labels and collate_fn are quicker here than finished images are sent.
            return not self._finish.is_tensor
        nothing = torch.empty(0, dtype=torch.int64)
        return self._loader.user_collate_fn is not None or self._dataset.batch((), nothing) is None

    def _hire(self) -> Crew:
        """Worker processes, started: those of the last epoch if they were to persist."""
        spare = self._loader.spare_crews
        crew = None
        while spare and crew is None:
            crew = spare.pop()
            crew = crew if crew.is_fit and crew.engine is self._engine else None
        if crew is None:
            crew = Crew(self._loader, self._maker, self._pins, self._engine)
        crew.begin()
        return crew

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
        position = self.position
        if self._loader.seed is None:
            position.augment_seed = self._loader.augment_seed
        if isinstance(self._order, HandedOver):
            passed = self._order.skip(position.before, len(self._dataset))
            world = self._loader.world_size
            self._job.begin_listed("listed", self._random(position.epoch, passed * world))
            return
        tag = position.begin()
        drawn, rest = position.drawn, position.rest
        assert drawn is not None
        assert rest is not None
        random = self._random(position.epoch, position.consumed)
        self._batches = rest.batches(drawn.rank)
        ordered = self._job.wants_coming_order
        if ordered or rest.len(drawn.rank) <= _KNOWN_FIRST:
            coming = self._coming(late=False)
            forecast = self._coming(late=True) if ordered and coming is None else None
            self._job.begin(tag, rest, drawn.rank, random, coming, forecast)
            return
        self._job.begin(tag, rest, drawn.rank, random)
        self._foresee(late=False)

    def _random(self, epoch: int, consumed: int) -> Random:
        """What native augmentation draws from: seed, epoch, first place in it and stride."""
        loader = self._loader
        if self._finish is None:
            return 0, 0, 0, 0
        return loader.augment_seed or 0, epoch, consumed + loader.rank, loader.world_size

    def _foresee(self, late: bool) -> None:
        coming = self._coming(late)
        if coming is not None:
            self._job.foresee(*coming)

    def _coming(self, late: bool) -> tuple[str, _forebay.Epoch, int, Random] | None:
        """The epoch after this one, as the job wants to know it."""
        order = self._order
        if isinstance(order, HandedOver | Streamed):
            return None
        coming = order.coming(self.position.epoch, late)
        if coming is None:
            return None
        # Where the epoch is known by a number, that is the next one.
        epoch = coming.saved.get("epoch", self.position.epoch + 1)
        return f"{coming.tag} from 0", coming.epoch, coming.rank, self._random(epoch, 0)

    def _ask(self, batches: int) -> None:
        """Let the sampler be as far as torch would have brought it."""
        assert not isinstance(self._order, Streamed)  # those are torch's to iterate
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
        # What may raise (a warning that is an error, say) comes before a batch is taken.
        self._watch_slabs()
        self._foresee_in_time()
        batch = self._from_engine() if self._crew is None else self._from_workers(self._crew)
        self.position.yielded = self._taken
        return batch

    def _foresee_in_time(self) -> None:
        """Tell the job of the coming epoch once this one is so far that torch's order is sure."""
        # The engine is as far ahead of what is yielded as the workers are.
        ahead = self._loader.depth + (0 if self._crew is None else self._lookahead)
        if not self._foreseen and self._taken >= max(1, self._batches - ahead):
            self._foresee(late=True)
            self._foreseen = True

    def _from_engine(self) -> Any:
        """The next batch; one that could not be handed over last time comes again."""
        lookahead = self._lookahead
        if self._raw_batch is None:
            coming = self._taken + 1
            if not lookahead:
                self._ask(coming)
            try:
                raw = self._job.next(self._timeout, self._wants_ids)
            except _forebay.Error:
                self._taken = self._job.taken  # a batch that failed is taken; a timeout is not
                if lookahead:
                    self._ask(lookahead + self._taken)
                raise
            if raw is None:
                self._end()
                raise StopIteration
            self._raw_batch = list(raw)
            self._taken = coming
        if lookahead:
            self._ask(lookahead + self._taken)
        for part in _TENSORS:
            if not isinstance(self._raw_batch[part], torch.Tensor | None):
                self._raw_batch[part] = from_dlpack(self._raw_batch[part])
        # If a function of the user's fails from here on, the batch is taken, as with torch.
        raw_batch, self._raw_batch = self._raw_batch, None
        return self._hand_over(raw_batch)

    def _from_workers(self, crew: Crew) -> Any:
        """The next batch by way of the worker processes, which are kept busy ahead of it."""
        if self._made is None:
            if not crew.out:
                self._feed(crew, waits=True)
            if not crew.out:
                self._end()
                raise StopIteration
            self._made = crew.take()
            self._taken = self._made.number
        self._ask(self._lookahead + self._taken)
        self._feed(crew, waits=False)
        made, self._made = self._made, None
        for sample, reason in made.bad:
            self._job.quarantine(sample, reason)
        made.check()
        batch = made.batch
        if self._loader.return_index:
            ids = torch.tensor(made.ids)
            batch = _with_ids(batch, ids if self._batched else ids[0])
        return _pinned(batch) if self._pins else batch

    def _feed(self, crew: Crew, waits: bool) -> None:
        """Give the workers what is ready; wait for the engine only while they have nothing."""
        job = self._job
        while crew.out < self._lookahead and not self._dry:
            taken = job.taken
            if isinstance(self._order, HandedOver) and taken == self._asked and not self._closed:
                return  # the sampler is where torch would have it
            waiting = waits and not crew.out
            try:
                raw = job.next(self._timeout if waiting else _A_GLANCE, True)
            except _forebay.Error as error:
                ready = job.taken > taken or not isinstance(error, _forebay.UnavailableError)
                if ready or waiting:
                    crew.put_error(job.taken, error)
                return
            if raw is None:
                self._dry = True
                return
            block, lengths, gaps, labels, ids, lent = raw
            data = from_dlpack(block)
            if gaps and lengths:  # of a job that was made for another way
                apart = _cut(data, lengths, gaps)
                data, lengths = torch.cat(apart), [len(sample) for sample in apart]
            packed = self._packed(data, lengths)
            crew.put(
                taken + 1,
                (*packed, from_dlpack(labels), from_dlpack(ids), lent),
                self._key(taken + 1),
            )

    def _packed(
        self, data: torch.Tensor, lengths: list[int] | None
    ) -> tuple[torch.Tensor, list[int]]:
        """A batch as bytes end to end, and the length of each sample."""
        if lengths is not None:
            return data, lengths
        assert self._finish is not None
        return self._finish.pack(data)

    def _hand_over(self, raw: list[Any]) -> Any:
        data, lengths, gaps, labels, ids, lent = raw
        if lengths is None:
            done = self._images(data, labels, ids)
        else:
            samples: Any = _cut(data, lengths, gaps)
            if lent is not None:
                samples = list(samples)
                for at, copy in lent.copies():
                    samples[at] = Decoded(copy)
            if self._raw and not self._wants_ids:
                done = self._dataset.batch(samples, labels)
            else:
                done = self._in_python(samples, labels, ids)
        return _pinned(done) if self._pins else done

    def _images(self, images: torch.Tensor, labels: torch.Tensor, ids: Any) -> Any:
        """A batch of finished images, as ``default_collate`` would have given it."""
        if not self._raw:
            data, lengths = self._packed(images, None)
            samples = _cut(data, lengths, gaps=False)
            return self._in_python(samples, labels, ids)
        done = [images, labels]
        return [*done, ids] if self._wants_ids else done

    def _in_python(self, samples: Any, labels: torch.Tensor, ids: torch.Tensor) -> Any:
        loader = self._loader
        done = None
        if loader.user_collate_fn is None and self._batched:
            done = self._dataset.batch(samples, labels)
        if done is None:
            numbers = ids.tolist()
            key = self._key(self._taken)
            with seeded(*key) if key else contextlib.nullcontext():
                done = self._maker.make(samples, labels.tolist(), numbers, self._job.quarantine)
            ids = torch.tensor(numbers, dtype=ids.dtype)
        if loader.return_index:
            done = _with_ids(done, ids if self._batched else ids[0])
        return done

    def _key(self, number: int) -> tuple[object, ...]:
        """What the user's functions draw from, in the batch of this number.

        Without workers and without a seed it is the training loop's own generators, as
        with torch: no key. Otherwise it is a stream of each batch's own.
        """
        loader, position = self._loader, self.position
        if loader.seed is not None:
            key: tuple[object, ...] = (loader.seed, position.epoch)
        elif loader.num_workers:
            key = (position.base_seed, position.epoch)
        else:
            return ()
        return (*key, loader.rank, position.before + number)

    def _watch_slabs(self) -> None:
        loader = self._loader
        if not loader.warned_of_slabs and self._job.batches_out > _KEPT_BATCHES:
            loader.warned_of_slabs = True
            warnings.warn(
                f"{self._job.batches_out} batches are still referred to; each keeps its memory. "
                "Copy what you keep (tensor.clone()) if memory runs short.",
                stacklevel=3,
            )

    def _end(self) -> None:
        self.position.ended = True
        self._loader.return_job(self._engine, self._job)
        self._dismiss()

    def _dismiss(self) -> None:
        """Let the worker processes go; they end unless they are kept for the next epoch."""
        crew, self._crew = self._crew, None
        if crew is None:
            return
        if self._loader.persistent_workers and crew.is_fit:
            self._loader.spare_crews.append(crew)
        else:
            crew.end()

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
            if "_crew" in self.__dict__:
                self._dismiss()


def _pinned(batch: Any) -> Any:
    return torch.utils.data._utils.pin_memory.pin_memory(batch)  # type: ignore[no-untyped-call]


def _cut(data: torch.Tensor, lengths: list[int], gaps: bool) -> tuple[torch.Tensor, ...]:
    """The samples of a batch, as views of it; gaps, if there are any, lie between them."""
    parts = torch.split(data, lengths) if lengths else ()
    return parts[::2] if gaps else parts


def _with_ids(batch: Any, ids: torch.Tensor) -> Any:
    if isinstance(batch, dict):
        return {**batch, "__index__": ids}
    return (*batch, ids) if isinstance(batch, tuple | list) else (batch, ids)


class PlannedBatches:
    """The batch sampler of torch's loader: our order, asked for as torch asks."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        # The loader holds it: workers that persist must end when the user drops the loader.
        self._loader = weakref.proxy(loader)
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
        assert not isinstance(order, Streamed)
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
    """Batches of any other dataset: torch's own iterator, in our order where there is one."""

    def __init__(self, loader: DataLoader[Any], epoch: int, resume: State | None) -> None:
        self._loader = loader
        self.position = Position(loader, epoch, resume)
        self._open()

    def _open(self) -> None:
        position = self.position
        # The base seed of a saved epoch was drawn before: torch's draw now does not count.
        again = position.resume is not None and position.resume.order is not None
        state = torch.default_generator.get_state()
        self._inner = self._loader.torchs_iterator(position)
        if again and isinstance(position.order, FromSeedDraw):
            torch.default_generator.set_state(state)
        if isinstance(position.order, Streamed):
            for _ in range(position.before):
                next(self._inner, None)

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
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        # Frameworks and debuggers look at torch's iterator.
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)
