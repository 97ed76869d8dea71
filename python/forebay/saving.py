"""What a loader saves and goes on from: its place, its generators, its dataset's own state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from forebay import _forebay, generators
from forebay.draws import Draws
from forebay.handed import HandedOver, is_stateful
from forebay.orders import FromGenerator, FromSeedDraw, Order, Streamed, known_length
from forebay.state import State
from forebay.tracked import (
    NO_STATE,
    is_tracked,
    next_epoch_of,
    no_snapshot,
    restore,
    restore_iterator,
    states_of,
)

if TYPE_CHECKING:
    from forebay.iterators import Position
    from forebay.loader import DataLoader

AnyOrder = Order | HandedOver | Streamed


def fresh_state(loader: DataLoader[Any], epoch: int) -> State:
    """The beginning of an epoch, as a state."""
    source = loader._order_source
    carried = loader.draws.carry() if draws_from_default(loader, source) else {}
    if loader.generator is not None and (loader.num_workers or _is_drawn(source)):
        carried["base"] = generators.packed(loader.generator.get_state().numpy())
    own = source.own if isinstance(source, FromGenerator) else None
    if own is not None and own is not loader.generator:
        carried["sampler"] = generators.packed(own.get_state().numpy())
    order: dict[str, Any] | None = {"kind": source.kind, "between": carried} if carried else None
    persist = loader.persistent_workers and loader.num_workers
    if order is not None and persist and loader.base_seed is not None:
        order["base_seed"] = loader.base_seed  # of workers that go on: no other one is drawn
    drawn = None if loader.seed is not None else loader.augment_seed
    return State(
        known_length(loader.dataset), loader.reading.fingerprint, epoch, 0, 0, order, drawn
    )


def between_state(loader: DataLoader[Any], epoch: int, ended: Position | None) -> State:
    """The same, with what sampler and dataset said of themselves at the end of the last epoch."""
    state = fresh_state(loader, epoch)
    if ended is None:
        source = loader._order_source
        samplers = source.state_after(0) if isinstance(source, HandedOver) else {}
        own = _never_begun(loader)
    else:
        samplers = ended.samplers_own()
        own = {} if ended.told is None else ended.told()
        if loader.num_workers and "_snapshot" in own and not loader.persistent_workers:
            own = no_snapshot(loader.num_workers)  # the next ones start anew
    order = state.order
    if samplers:
        order = {"between": {}, **(order or {}), "kind": "sampler", **samplers}
    if order is not None and "early" in order:
        del order["early"]
    return State(state.samples, state.fingerprint, epoch, 0, 0, order, state.augment_seed, own)


def _never_begun(loader: DataLoader[Any]) -> dict[str, Any]:
    if loader._native or not is_stateful(loader.dataset):
        return {}
    if loader.num_workers:
        return no_snapshot(loader.num_workers)
    if loader.streams:
        return {}  # before it iterates, a stream may not know
    return states_of(loader.dataset, None, ended=False)


def draws_from_default(loader: DataLoader[Any], order: AnyOrder) -> bool:
    """Whether an epoch begins with draws from torch's default generator that matter to it."""
    if loader.seed is not None:
        return False
    if isinstance(order, FromSeedDraw) or (isinstance(order, FromGenerator) and order.own is None):
        return True
    return bool(loader.num_workers) and loader.generator is None


def _is_drawn(order: AnyOrder) -> bool:
    return isinstance(order, FromSeedDraw | FromGenerator)


def put_back(loader: DataLoader[Any], order: AnyOrder, carried: dict[str, str]) -> None:
    """Put the loader's generator and its sampler's where they were."""
    own = order.own if isinstance(order, FromGenerator) else None
    for name, generator in (("base", loader.generator), ("sampler", own)):
        if name in carried and generator is not None:
            generators.put_back(generator, carried[name], f"order.between.{name}")


def check(loader: DataLoader[Any], state: State) -> None:
    """Refuse a state that this loader cannot go on from."""
    source = loader._order_source
    state.check(known_length(loader.dataset), loader.reading.fingerprint, source.kind)
    source.check(state)
    early = (state.order or {}).get("early")
    if early is not None and early["size"] != getattr(source, "size", 0):
        raise _forebay.InvalidError(
            f"the state has order.early, batches of {early['size']} that came before their turn, "
            f"this loader's are of {getattr(source, 'size', 0)}; hint: resume with the same "
            "batch_size="
        )
    if loader.streams and state.batches:
        workers = len(state.own.get("_snapshot", {}).get("_worker_snapshots", {}))
        expected = loader.num_workers if is_tracked(loader) else 0
        if workers != expected:
            raise _forebay.InvalidError(
                f"the state has batches of {workers} worker processes, this loader has "
                f"{loader.num_workers}, and an IterableDataset gives other samples to another "
                f"number of them; hint: num_workers={workers}"
            )


# -- torch's side ---------------------------------------------------------------------------


def base_generator(loader: DataLoader[Any], position: Position) -> torch.Generator | None:
    """What torch is to draw the base seed from, if not from the loader's or the default one."""
    draws: Draws = loader.draws
    resume = position.resume
    if position.base_seed is not None:
        # It was drawn before the state was saved; the workers' numbers go on elsewhere.
        return torch.Generator().manual_seed(position.base_seed)
    if resume is not None and resume.order is not None and isinstance(position.order, FromSeedDraw):
        return torch.Generator()
    if loader.generator is not None or draws.default is torch.default_generator:
        return None
    torch.empty((), dtype=torch.int64).random_()  # the default one goes on as with torch
    return draws.default


def last_told(states: list[dict[str, Any]], last: int) -> dict[str, Any]:
    """Of several workers' states the one that a single process goes on from."""
    return states[last] if states else NO_STATE


def restore_here(loader: DataLoader[Any], state: State) -> None:
    """Let the dataset of this process go on from what the state has of it."""
    own = state.own
    snapshot = own.get("_snapshot", {})
    workers = list(snapshot.get("_worker_snapshots", {}).values())
    if workers:
        restore(loader.dataset, last_told(workers, snapshot["_last_yielded_worker_id"]))
    elif "dataset_state" in own:
        restore(loader.dataset, own)


def resume_stream(inner: Any, state: State | None) -> bool:
    """Let a stream in this process go on by its own state; False if it has none."""
    if state is None or not state.own:
        return False
    own = {**NO_STATE, **state.own}
    fetcher = inner._dataset_fetcher
    restored = restore_iterator(fetcher.dataset_iter, own) or own["dataset_state"] is not None
    if restored and own["fetcher_state"] is not None:
        fetcher.ended = own["fetcher_state"]["fetcher_ended"]
        if fetcher.ended and not state.batches:  # that epoch was over
            again = next_epoch_of(fetcher.dataset, fetcher.dataset_iter, own)
            fetcher.dataset_iter, fetcher.ended = again, False
    return restored
