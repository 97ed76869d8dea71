"""One epoch of a loader, over the engine; where any epoch is."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from torch.utils.dlpack import from_dlpack

from forebay import _forebay
from forebay.handed import HandedOver
from forebay.images import Finish
from forebay.orders import Drawn, Streamed, Watched
from forebay.pixels import Decoded
from forebay.randomness import seeded
from forebay.saving import draws_from_default, put_back
from forebay.state import State
from forebay.tracked import Tracker
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
        loader.draws.follow(resume)
        # Of its own: another iterator of the same loader may be under way, and the user
        # may have changed the sampler since the last epoch.
        self.order = loader._fresh_order()
        self.loaded = resume
        between = "between" in order_of_state(resume)
        if resume is not None and between:
            put_back(loader, self.order, order_of_state(resume)["between"])
            resume = dataclasses.replace(resume, order=None)
        self._fresh = loader._make_state(epoch)
        self._undrawn = self._fresh if resume is None or between else resume
        self._draws = loader.draws
        self._from_default = draws_from_default(loader, self.order)
        # Who knows what the dataset says of itself, on torch's side.
        self.told: Callable[[], dict[str, Any]] | None = None
        self.told_before: dict[str, Any] | None = None  # by a dataset here, before torch's draws
        self.tracker: Tracker | None = None
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
        self.base_seed: int | None = order_of_state(self.loaded).get("base_seed")
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
        state = self._state()
        if self.told_before is not None and is_untouched(state):
            own = self.told_before
        else:
            own = {} if self.told is None else self.told()
        return dataclasses.replace(state, augment_seed=self.augment_seed, own=own)

    def samplers_own(self) -> dict[str, Any]:
        """What a sampler of the user's says of itself."""
        if not isinstance(self.order, HandedOver):
            return {}
        return self.order.state_after(self.yielded, self.ended)

    def _state(self) -> State:
        batches = self.before + self.yielded
        seed: dict[str, Any] = {} if self.base_seed is None else {"base_seed": self.base_seed}
        tracker = self.tracker
        if tracker is not None and tracker.early:
            numbers = sorted(self.before + number for number in tracker.early)
            seed["early"] = {"batches": numbers, "size": getattr(self.order, "size", 0)}
        if isinstance(self.order, HandedOver | Streamed):
            order = {"kind": self.order.kind, **seed, **self.samplers_own()}
            if not batches and self._fresh.order is not None:
                order = {**self._fresh.order, **order}
            return dataclasses.replace(self._fresh, batches=batches, order=order)
        if self.drawn is None or self.rest is None:
            return self._undrawn
        return dataclasses.replace(
            self._fresh,
            epoch=self.epoch,
            consumed=self.rest.consumed(self.yielded),
            batches=batches,
            order={**self.drawn.saved, **seed, **self._after()},
        )

    def _after(self) -> dict[str, Any]:
        """Where torch's default generator is, if the next epoch is drawn from it."""
        return {"after": self._draws.carry()} if self._from_default else {}


class EngineIterator(Iterator[Any]):
    """Batches of a dataset of ours, from the engine."""

    def __init__(self, loader: DataLoader[Any], epoch: int, resume: State | None) -> None:
        self._loader = loader
        # What is changed in the dataset from here on is for the next epoch.
        self._reading = reading = loader.reading
        assert reading.view is not None
        self._view = reading.view
        self.position = Position(loader, epoch, resume)
        self._order = self.position.order
        self._begun = False
        self._closed = False
        self._asked = 0
        self._batches = 0
        self._taken = 0
        self._foreseen = False
        self._goes_on = False
        # A batch that was taken but not yet handed over: of the engine, or of the workers.
        self._raw_batch: list[Any] | None = None
        self._made: Made | None = None
        # Looked up once: they cost an attribute of torch's object each.
        self._timeout = float(loader.timeout)
        self._lookahead = loader._lookahead
        self._batched = loader._batched
        self._pins = loader.pin_memory and torch.cuda.is_available()
        images = reading.preparation.recipe is not None
        self._finish = Finish(self._view, reading.preparation) if images else None
        self._raw = loader._user_collate_fn is None and self._batched and self._is_raw()
        self._wants_ids = loader.return_index or not self._raw
        to_workers = bool(self._lookahead) and self._needs_python()
        if to_workers:
            # They have copies already, which their worker_init_fn may change.
            self._view = self._view.as_the_users()
            self._finish = Finish(self._view, reading.preparation) if images else None
        self._engine, self._job = loader._borrow_job(gaps=not to_workers)
        if isinstance(self._order, HandedOver):
            self._goes_on = self._order.open(order_of_state(self.position.loaded))
        self._draw_base_seed()
        collate = loader._user_collate_fn
        if collate is None:
            collate = self._view.collate if self._batched else loader.collate_fn
        self._maker = Maker(
            loader.dataset,
            self._view.item if self._finish is None else self._finish.item,
            collate,
            self._batched,
            loader.on_error == "replace",
        )
        self._dry = False
        self._crew = self._hire() if to_workers else None
        if self._lookahead:
            self._begin()
            self._ask(loader._lookahead)

    def _is_raw(self) -> bool:
        """Whether what the engine gives is a batch, but for its form."""
        if self._finish is None:
            return self._view.is_raw
        return self._finish.is_tensor and not self._view.changes_labels

    def _needs_python(self) -> bool:
        """Whether batches go through functions of the user's or of Python's, by sample."""
        if self._finish is not None:
            # Labels and collate_fn are quicker here than finished images are sent.
            return not self._finish.is_tensor
        nothing = torch.empty(0, dtype=torch.int64)
        return self._loader._user_collate_fn is not None or self._view.batch((), nothing) is None

    def _hire(self) -> Crew:
        """Worker processes, started: those of the last epoch if they were to persist."""
        spare = self._loader.spare_crews
        crew = None
        while spare and crew is None:
            crew = spare.pop()
            mine = crew.is_for(self._engine, self._reading, self._maker)
            crew = crew if crew.is_fit and mine else None
        if crew is None:
            crew = Crew(self._loader, self._maker, self._pins, self._engine, self._reading)
        crew.begin()
        return crew

    def _draw_base_seed(self) -> None:
        loader, position = self._loader, self.position
        resume, listed = position.resume, isinstance(self._order, HandedOver)
        if resume is not None and resume.order is not None and not listed:
            # Its draws were made before the state was saved.
            loader.base_seed = position.base_seed or 0
            return
        if position.base_seed is not None and loader.persistent_workers:
            loader.base_seed = position.base_seed  # of workers that would go on
        drawn = loader._draw_base_seed()
        if position.base_seed is None and loader.seed is None and loader.num_workers:
            position.base_seed = loader.base_seed
        if isinstance(self._order, HandedOver) and drawn and loader.num_workers:
            # torch makes it twice then, which an eager sampler notices.
            self._goes_on = self._order.open(order_of_state(position.loaded))

    def _begin(self) -> None:
        self._begun = True
        position = self.position
        if self._loader.seed is None:
            position.augment_seed = self._loader.augment_seed
        if isinstance(self._order, HandedOver):
            if self._goes_on:
                passed = order_of_state(position.loaded).get("passed", 0)
            else:
                passed = self._order.skip(position.before, len(self._view))
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
            ids = self._order.take(len(self._view))
            if ids is None:
                self._closed = True
                self._job.finish()
            else:
                self._job.push(ids)
                self._asked += 1

    def __next__(self) -> Any:
        if self.position.ended:
            raise StopIteration
        if not self.position.started and self._loader._start(self):
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
        if isinstance(self._order, HandedOver):
            self._order.forget(self._taken)
        return batch

    def _foresee_in_time(self) -> None:
        """Tell the job of the coming epoch once this one is so far that torch's order is sure."""
        # The engine is as far ahead of what is yielded as the workers are.
        ahead = self._loader._depth + (0 if self._crew is None else self._lookahead)
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
                done = self._view.batch(samples, labels)
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
        if loader._user_collate_fn is None and self._batched:
            done = self._view.batch(samples, labels)
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
        self._loader._return_job(self._engine, self._job, self._reading)
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
            self._loader._return_job(self._engine, job, self._reading)
            if "_crew" in self.__dict__:
                self._dismiss()


def is_untouched(state: State) -> bool:
    """Whether it is from before an epoch's first draw."""
    return not state.batches and "after" not in order_of_state(state)


def order_of_state(state: State | None) -> dict[str, Any]:
    """How a loaded state's order is found again."""
    return {} if state is None or state.order is None else state.order


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
