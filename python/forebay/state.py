"""Where a loader is, as a small dict that JSON can hold.

``consumed`` counts positions of the epoch's global order: with k batches of size B on
each of R ranks it is k*B*R, so the state of any one rank says where all of them are,
and the rest of the epoch can be dealt to another number of ranks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from forebay._forebay import InvalidError

VERSION = 1


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

    def to_dict(self) -> dict[str, Any]:
        """As a user keeps it."""
        fields = asdict(self)
        if self.augment_seed is None:
            del fields["augment_seed"]
        return {"version": VERSION, "kind": "forebay.DataLoader", **fields}

    @classmethod
    def of_dict(cls, state: dict[str, Any]) -> State:
        """Read back, with a clear error for what is not a state."""
        if not isinstance(state, dict) or state.get("kind") != "forebay.DataLoader":
            raise InvalidError("this is not the state of a forebay.DataLoader")
        if state.get("version") != VERSION:
            raise InvalidError(
                f"the state has version {state.get('version')!r}, this forebay reads {VERSION}; "
                "hint: use the forebay that wrote it"
            )
        try:
            read = cls(
                samples=_optional_int(state["samples"]),
                fingerprint=state["fingerprint"],
                epoch=int(state["epoch"]),
                consumed=int(state["consumed"]),
                batches=int(state["batches"]),
                order=state["order"],
                augment_seed=_optional_int(state.get("augment_seed")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidError(f"the state is damaged: {error!r}") from None
        if read.epoch < 0 or read.consumed < 0 or read.batches < 0:
            raise InvalidError("the state is damaged: a position is negative")
        return read

    def check(self, samples: int | None, fingerprint: str | None) -> None:
        """Refuse a state of another dataset."""
        if self.samples != samples:
            raise InvalidError(
                f"the state is of a dataset of {self.samples} samples, this one has {samples}; "
                "hint: resume with the dataset the state was saved with"
            )
        if self.fingerprint != fingerprint:
            raise InvalidError(
                "the state is of another dataset: names, sizes or labels of its samples differ; "
                "hint: resume with the dataset the state was saved with"
            )


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)
