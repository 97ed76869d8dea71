"""Where a loader is, as a small dict that JSON can hold.

``consumed`` counts positions of the epoch's global order: with k batches of size B on
each of R ranks it is k*B*R, so the state of any one rank says where all of them are,
and the rest of the epoch can be dealt to another number of ranks.

``order`` says how the epoch's order is found again, by its kind:

    planned     seed, epoch     known for all epochs; without a seed it is sequential
    drawn       seed            a permutation of a seed that was drawn when the epoch began
    generator   state           drawn from a generator that was in this state
    sampler     -               the sampler's own: only batches can be counted
    stream      -               an IterableDataset's own: likewise

Of an epoch that is not drawn yet it is None, or has ``between`` in place of those: where
the generators are that it will be drawn from. ``after`` is where torch's default generator
was, for the epoch after this one. A sampler with a state of its own has it beside them
(``sampler_state``, ``sampler_iter_state``).

A dataset with a state of its own has it in the fields that torchdata's ``StatefulDataLoader``
gives it: ``dataset_state`` and ``fetcher_state``, or with worker processes ``_snapshot``. What
is in them is the dataset's; JSON can hold it if the dataset sees to that.

A state may come from anywhere, so all of it is checked when it is loaded, and what is
wrong is named. After that it is what it says it is.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from forebay import generators
from forebay._forebay import InvalidError

VERSION = 1
KIND = "forebay.DataLoader"

# What Rust and torch count with: the one after it can still be counted.
_MOST = 2**63 - 2
_MOST_SAMPLES = 2**32 - 1


@dataclass(frozen=True)
class State:
    """A position: an epoch, how far it got, and how its order is found again."""

    # None for a dataset that does not know.
    samples: int | None
    fingerprint: str | None
    epoch: int
    consumed: int
    batches: int
    order: dict[str, Any] | None
    # What native augmentation is drawn from, where it is not the user's seed.
    augment_seed: int | None = None
    # What the dataset says of itself.
    own: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As a user keeps it."""
        fields = asdict(self)
        if self.augment_seed is None:
            del fields["augment_seed"]
        own = fields.pop("own")
        return {"version": VERSION, "kind": KIND, **fields, **own}

    @classmethod
    def of_dict(cls, state: Any) -> State:
        """Read back, with a clear error for what is not a state."""
        if not isinstance(state, dict):
            raise InvalidError(f"this is not the state of a {KIND}: it is {_short(state)}")
        if state.get("kind") != KIND:
            raise InvalidError(
                f"this is not the state of a {KIND}: its kind is {_short(state.get('kind'))}"
            )
        version = state.get("version")
        if type(version) is not int or version != VERSION:
            raise InvalidError(
                f"the state has version {_short(version)}, this forebay reads {VERSION}; "
                "hint: use the forebay that wrote it"
            )
        fields = Fields(state)
        read = cls(
            samples=fields.given_or_none("samples", most=_MOST_SAMPLES),
            fingerprint=fields.text_or_none("fingerprint"),
            epoch=fields.number("epoch"),
            consumed=fields.number("consumed"),
            batches=fields.number("batches"),
            order=_read_order(fields.take("order")),
            augment_seed=fields.number_or_none("augment_seed"),
            own=read_own(fields),
        )
        read._check_itself()
        return read

    def _check_itself(self) -> None:
        """Refuse numbers that no run can have led to."""
        order = self.order or {}
        if order.get("epoch", self.epoch) != self.epoch:
            raise _damaged("order.epoch", order["epoch"], f"the epoch, which is {self.epoch}")
        if order.get("kind") not in _COUNTED and self.batches > self.consumed:
            raise _damaged(
                "batches", self.batches, f"a number up to consumed, which is {self.consumed}"
            )

    def check(self, samples: int | None, fingerprint: str | None, kind: str) -> None:
        """Refuse a state of another dataset, or of another kind of order."""
        if self.samples != samples:
            raise InvalidError(
                f"the state is of a dataset of {self.samples} samples, this one has {samples}; "
                "hint: resume with the dataset the state was saved with"
            )
        if self.fingerprint != fingerprint:
            raise InvalidError(
                "the state is of another dataset: its fingerprint is "
                f"{_short(self.fingerprint)}, this one's is {_short(fingerprint)}: names, sizes or "
                "labels of samples differ; hint: resume with the dataset the state was saved with"
            )

        own = kind if self.order is None else self.order["kind"]
        if own != kind:
            raise InvalidError(
                f"the state is of an order of kind {own!r}, this loader's is of kind {kind!r}; "
                "hint: make the loader with the same seed=, sampler= and generator= as the one "
                "that was saved"
            )

    def check_length(self, length: int) -> None:
        """Refuse a position past the end of an order of so many positions."""
        if self.consumed > length:
            raise _damaged("consumed", self.consumed, f"a position in an order of {length}")


class Fields:
    """The members of a dict that came from somewhere; ``path`` is the dict's own name."""

    def __init__(self, members: dict[Any, Any], path: str = "") -> None:
        self._members = members
        self._path = path

    def name(self, field: str) -> str:
        return f"{self._path}{field}"

    def __contains__(self, field: str) -> bool:
        return field in self._members

    def take(self, field: str) -> Any:
        if field not in self._members:
            raise InvalidError(f"the state is damaged: it has no {self.name(field)}")
        return self._members[field]

    def number(self, field: str, least: int = 0, most: int = _MOST) -> int:
        value = self.take(field)
        # A bool is an int to Python, and 3.0 is equal to 3; neither was ever saved.
        if type(value) is not int or not least <= value <= most:
            raise _damaged(self.name(field), value, f"a whole number from {least} to {most}")
        return value

    def number_or_none(self, field: str, least: int = 0, most: int = _MOST) -> int | None:
        return None if self._members.get(field) is None else self.number(field, least, most)

    def given_or_none(self, field: str, least: int = 0, most: int = _MOST) -> int | None:
        return None if self.take(field) is None else self.number(field, least, most)

    def text(self, field: str) -> str:
        value = self.take(field)
        if type(value) is not str:
            raise _damaged(self.name(field), value, "a string")
        return value

    def text_or_none(self, field: str) -> str | None:
        return None if self.take(field) is None else self.text(field)

    def flag(self, field: str) -> bool:
        value = self.take(field)
        if type(value) is not bool:
            raise _damaged(self.name(field), value, "True or False")
        return value

    def within(self, field: str) -> Fields:
        """The members of a dict in this one."""
        value = self.take(field)
        if not isinstance(value, dict):
            raise _damaged(self.name(field), value, "a dict")
        return Fields(value, f"{self.name(field)}.")

    def names(self) -> list[Any]:
        return list(self._members)

    def generator(self, field: str) -> str:
        text = self.text(field)
        generators.unpacked(text, self.name(field))
        return text


def _read_order(order: Any) -> dict[str, Any] | None:
    """How an order is found again: what its kind needs, each checked, and nothing else."""
    if order is None:
        return None
    if not isinstance(order, dict):
        raise _damaged("order", order, "a dict or None")
    fields = Fields(order, "order.")
    kind = fields.text("kind")
    if kind not in _KINDS:
        raise _damaged("order.kind", kind, f"one of {', '.join(_KINDS)}")
    read: dict[str, Any] = {"kind": kind}
    if "between" in fields:
        read["between"] = _read_generators(fields.within("between"))
        if kind == "sampler":
            read |= _read_samplers_own(fields)
    else:
        read |= _KINDS[kind](fields)
        if "after" in fields:
            read["after"] = _read_generators(fields.within("after"))
    if "base_seed" in fields:
        read["base_seed"] = fields.number("base_seed", most=2**63 - 1)
    if "early" in fields:
        read["early"] = _read_early(fields.within("early"))
    return read


def _read_generators(fields: Fields) -> dict[str, str]:
    return {
        name: fields.generator(name) for name in ("default", "base", "sampler") if name in fields
    }


def _read_early(fields: Fields) -> dict[str, Any]:
    """Batches that came before their turn, of a loader that may give them as they come."""
    numbers = fields.take("batches")
    if not isinstance(numbers, list) or not all(
        type(number) is int and 0 <= number <= _MOST for number in numbers
    ):
        raise _damaged(fields.name("batches"), numbers, "a list of batches' numbers")
    return {"batches": numbers, "size": fields.number("size")}


def _read_planned(fields: Fields) -> dict[str, Any]:
    fields.take("seed")  # None, for a sequential order, but not left out
    seed = fields.number_or_none("seed", least=-(2**63), most=2**64 - 1)
    return {"seed": seed, "epoch": fields.number("epoch")}


def _read_samplers_own(fields: Fields) -> dict[str, Any]:
    own = {
        name: fields.take(name)
        for name in ("sampler_state", "sampler_iter_state")
        if name in fields
    }
    if "passed" in fields:
        own["passed"] = fields.number("passed")
    if "over" in fields:
        own["over"] = fields.flag("over")
    return own


def read_own(fields: Fields) -> dict[str, Any]:
    """What a dataset says of itself, here or in worker processes; its own words are not read."""
    own: dict[str, Any] = {}
    if "dataset_state" in fields:
        own["dataset_state"] = fields.take("dataset_state")
    if "fetcher_state" in fields:
        own["fetcher_state"] = _read_fetcher(fields)
    if "_snapshot" in fields:
        snapshot = fields.within("_snapshot")
        workers = snapshot.within("_worker_snapshots")
        count = len(workers.names())
        own["_snapshot"] = {
            "_last_yielded_worker_id": snapshot.number(
                "_last_yielded_worker_id", least=-1, most=count - 1
            ),
            "_worker_snapshots": {
                f"worker_{worker}": _read_worker(workers.within(f"worker_{worker}"), worker)
                for worker in range(count)
            },
        }
    return own


def _read_worker(fields: Fields, worker: int) -> dict[str, Any]:
    return {
        "worker_id": fields.number("worker_id", least=worker, most=worker),
        "dataset_state": fields.take("dataset_state"),
        "fetcher_state": _read_fetcher(fields),
        "batches": fields.number("batches"),
    }


def _read_fetcher(fields: Fields) -> dict[str, Any] | None:
    if fields.take("fetcher_state") is None:
        return None
    fetcher = fields.within("fetcher_state")
    return {
        "dataset_iter_state": fetcher.take("dataset_iter_state"),
        "fetcher_ended": fetcher.flag("fetcher_ended"),
    }


_KINDS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "planned": _read_planned,
    "drawn": lambda fields: {"seed": fields.number("seed", most=2**63 - 1)},
    "generator": lambda fields: {"state": fields.generator("state")},
    "sampler": _read_samplers_own,
    "stream": lambda fields: {},
}
# Of these nothing but batches can be counted.
_COUNTED = ("sampler", "stream")


def _damaged(field: str, value: Any, expected: str) -> InvalidError:
    return InvalidError(f"the state is damaged: {field} is {_short(value)}, not {expected}")


def _short(value: Any) -> str:
    return reprlib.repr(value)
