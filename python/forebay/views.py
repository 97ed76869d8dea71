"""A user's dataset as the engine reads it: which samples of which datasets of forebay's.

``Subset``, ``random_split``, ``ConcatDataset`` and classes that only add an ``__init__`` of their
own say nothing but which samples there are, in which order. So they become a map, and reading,
caching and preparing stay the engine's:

    ConcatDataset([Subset(a, [4, 0]), b])      position  0  1  2  3
                                               sample   a4 a0 b0 b1

What has a ``__getitem__`` of its own is read as torch reads it, and ``loader.explain()`` says so.
"""

from __future__ import annotations

import bisect
import hashlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from forebay import _forebay
from forebay.datasets import Dataset, ImageFolder

# Loaders that read the same samples in the same order share one, so that ranks know each other.
_made: weakref.WeakValueDictionary[Any, _forebay.View] = weakref.WeakValueDictionary()


class _NotNative(Exception):
    """Samples are not the engine's to read: its text says why."""


@dataclass(frozen=True)
class _Picked:
    """Samples of some datasets. Places count through all positions of the datasets in a row."""

    parts: list[Dataset]
    places: np.ndarray | None  # None: all of them
    told: str

    def __len__(self) -> int:
        return sum(map(len, self.parts)) if self.places is None else len(self.places)

    def all_places(self) -> np.ndarray:
        return np.arange(len(self), dtype=np.int64) if self.places is None else self.places


class View:
    """See the module's text. Fixed: what a user changes later makes another view."""

    def __init__(self, picked: _Picked) -> None:
        self.parts = picked.parts
        self._users = picked.parts  # the very objects, of which parts may be copies
        self.told = picked.told
        self._places = picked.places
        self._firsts = _starts([len(part) for part in self.parts])
        self._length = len(picked)
        self._map, self._labels = _numbers_and_labels(picked, self._firsts)
        self._key = _digest(self._map), _digest(self._labels)
        self._native: _forebay.View | None = None
        self._forks = -1

    def __len__(self) -> int:
        return self._length

    def is_like(self, other: View | None) -> bool:
        """Whether the other has the same samples, in the same order, with the same labels."""
        if other is None or self._key != other._key or len(self.parts) != len(other.parts):
            return False
        pairs = zip(self._users, other._users, strict=True)
        return all(a is b for a, b in pairs)

    def as_now(self) -> View:
        """The same samples of datasets whose transforms stay what they are now."""
        return self._of([_copied(part) for part in self._users])

    def as_the_users(self) -> View:
        """The same samples of the user's own datasets, whose changes count at once."""
        return self._of(self._users)

    def _of(self, parts: list[Dataset]) -> View:
        made: View = _copied(self)
        made.parts = parts
        return made

    @property
    def is_whole(self) -> bool:
        """Whether it is one dataset as it was opened."""
        return len(self.parts) == 1 and self._map is None and self._labels is None

    @property
    def native(self) -> _forebay.View:
        """What the engine reads, in this process."""
        if self._native is None or self._forks != _forebay.forks():
            parts = [part.native for part in self.parts]
            key = tuple(map(id, parts)), self._key
            made = _made.get(key)
            if made is None:
                made = _made[key] = _forebay.View(parts, self._map, self._labels)
            self._native, self._forks, self._parts = made, _forebay.forks(), parts
        return self._native

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_native": None, "_parts": None, "_users": []}

    # -- what the loader asks of a dataset ------------------------------------------------

    def _find(self, position: int) -> tuple[Dataset, int]:
        """The dataset of a sample, and its position there."""
        place = position if self._places is None else int(self._places[position])
        part = bisect.bisect_right(self._firsts, place) - 1
        return self.parts[part], place - self._firsts[part]

    def item(self, raw: Any, label: int, index: int) -> Any:
        """One sample as the user sees it, from its bytes."""
        if len(self.parts) == 1 and self._places is None:
            return self.parts[0].item(raw, label, index)
        dataset, at = self._find(index)
        try:
            return dataset.item(raw, label, at)
        except _forebay.CorruptError as error:
            # It has the sample's number in its own dataset.
            told = str(error).replace(f"sample {at} (", f"sample {index} (", 1)
            raise _forebay.CorruptError(told) from error.__cause__

    def label_of(self, label: int, index: int) -> Any:
        """A label as the user sees it."""
        dataset = self.parts[0] if len(self.parts) == 1 else self._find(index)[0]
        return dataset.label_of(label)

    @property
    def changes_labels(self) -> bool:
        """Whether labels go through a function of the user's."""
        return any(part.target_transform is not None for part in self.parts)

    @property
    def _is_uniform(self) -> bool:
        """Whether all parts make batches alike."""
        first = type(self.parts[0])
        kinds = (type(part) for part in self.parts)
        return all(kind.batch is first.batch and kind.collate is first.collate for kind in kinds)

    @property
    def is_raw(self) -> bool:
        """Whether a batch needs no Python per sample, only ``batch``."""
        return self._is_uniform and all(part.is_raw for part in self.parts)

    def batch(self, samples: Sequence[torch.Tensor], labels: torch.Tensor) -> Any:
        """A whole batch at once where that is possible; None if it goes by ``item``."""
        if not self._is_uniform or any(part.transform is not None for part in self.parts[1:]):
            return None
        if len(self.parts) > 1 and self.changes_labels:
            return None
        return self.parts[0].batch(samples, labels)

    @property
    def collate(self) -> Callable[[list[Any]], Any]:
        """What is made of single samples unless the loader was given a ``collate_fn``."""
        first = self.parts[0]
        if self._is_uniform and type(first).collate is not Dataset.collate:
            return first.collate
        return torch.utils.data.default_collate


def reads_natively(dataset: Any) -> tuple[View | None, str]:
    """The dataset as the engine reads it, or None and why it does not.

    Looked at anew each time: a user may change ``subset.indices``, say, between two epochs.
    """
    try:
        picked = _pick(dataset)
        if len({part.native.is_local for part in picked.parts}) > 1:
            raise _NotNative("it has local files as well as objects of a store")
    except _NotNative as reason:
        return None, str(reason)
    return View(picked), ""


def is_usual_collate(function: Any) -> bool:
    """Whether this is what a dataset of forebay's does if its loader was given nothing."""
    return isinstance(getattr(function, "__self__", None), Dataset) and (
        getattr(function, "__name__", "") == "collate"
    )


def _pick(dataset: Any) -> _Picked:
    kind = type(dataset)
    if isinstance(dataset, Dataset):
        return _pick_own(dataset)
    if isinstance(dataset, Subset):
        _only_adds(kind, Subset, "__getitem__", "__getitems__", "__len__")
        return _pick_subset(dataset)
    if isinstance(dataset, ConcatDataset):
        _only_adds(kind, ConcatDataset, "__getitem__", "__len__")
        _no_batched_reads(dataset)
        return _pick_concatenated(dataset)
    raise _NotNative(f"{kind.__name__} is not a dataset of forebay's, nor a Subset of one")


def _pick_own(dataset: Dataset) -> _Picked:
    kind = type(dataset)
    if kind.__getitem__ not in (Dataset.__getitem__, ImageFolder.__getitem__):
        raise _NotNative(f"{kind.__name__} has a __getitem__ of its own")
    for name in ("item", "label", "label_of", "number"):
        if not str(getattr(getattr(kind, name), "__module__", "")).startswith("forebay."):
            raise _NotNative(f"{kind.__name__} has a method {name} of its own")
    _no_batched_reads(dataset)
    if getattr(dataset, "loader", None) is not None:
        raise _NotNative("loader= reads the files by itself")
    whole = _Picked([dataset], None, repr(dataset))
    if kind.__len__ is Dataset.__len__:
        return whole
    length, there = len(dataset), Dataset.__len__(dataset)
    if length > there:
        raise _NotNative(f"{kind.__name__} says it has {length} samples, and {there} were found")
    return _Picked([dataset], np.arange(length), repr(dataset))


def _pick_subset(subset: Subset[Any]) -> _Picked:
    inner = _pick(subset.dataset)
    indices, length = np.asarray(subset.indices), len(inner)
    if indices.size == 0:
        indices = np.zeros(0, dtype=np.int64)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise _NotNative("the indices of a Subset are not whole numbers")
    if indices.size and (indices.min() < -length or indices.max() >= length):
        raise _NotNative(
            f"the indices of a Subset go from {indices.min()} to {indices.max()}, and there are "
            f"{length} samples"
        )
    indices = np.where(indices < 0, indices + length, indices).astype(np.int64)
    places = indices if inner.places is None else inner.places[indices]
    return _Picked(inner.parts, places, f"{len(places)} samples of {inner.told}")


def _pick_concatenated(concatenated: ConcatDataset[Any]) -> _Picked:
    several = [_pick(dataset) for dataset in concatenated.datasets]
    ends = np.cumsum([len(one) for one in several]).tolist()
    if ends != list(concatenated.cumulative_sizes):
        raise _NotNative("datasets of a ConcatDataset have changed in size since it was made")
    parts: list[Dataset] = []
    for one in several:
        parts += (part for part in one.parts if not any(part is known for known in parts))
    told = " and ".join(one.told for one in several)
    if len(parts) == sum(len(one.parts) for one in several) and all(
        one.places is None for one in several
    ):
        return _Picked(parts, None, told)
    firsts = _starts([len(part) for part in parts])
    return _Picked(parts, np.concatenate([_moved(one, parts, firsts) for one in several]), told)


def _moved(one: _Picked, parts: list[Dataset], firsts: list[int]) -> np.ndarray:
    """The places of one, counted through ``parts``."""
    places = one.all_places()
    own = _starts([len(part) for part in one.parts])
    moved = np.empty_like(places)
    of = np.searchsorted(own, places, side="right") - 1
    for at, part in enumerate(one.parts):
        there = next(number for number, other in enumerate(parts) if other is part)
        mine = of == at
        moved[mine] = places[mine] - own[at] + firsts[there]
    return moved


def _numbers_and_labels(
    picked: _Picked, firsts: list[int]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """By position: the sample among all that were opened, and its label if that was assigned."""
    chosen = [part.chosen() for part in picked.parts]
    places = picked.places
    numbers, labels = places, None
    if any(own is not None for own, _ in chosen):
        opened = _starts([len(part.native) for part in picked.parts])
        by_place = [
            start + (np.arange(len(part)) if own is None else own.astype(np.int64))
            for part, start, (own, _) in zip(picked.parts, opened, chosen, strict=True)
        ]
        numbers = np.concatenate(by_place)
        numbers = numbers if places is None else numbers[places]
    if any(own is not None for _, own in chosen):
        each = [
            _labels_of(part) if own is None else own
            for part, (_, own) in zip(picked.parts, chosen, strict=True)
        ]
        labels = np.concatenate(each)
        labels = np.ascontiguousarray(labels if places is None else labels[places])
    return None if numbers is None else numbers.astype(np.uint32), labels


def _labels_of(part: Dataset) -> np.ndarray:
    labels = part.native.labels()
    numbers, _ = part.chosen()
    return labels if numbers is None else labels[numbers]


def _only_adds(kind: type, base: type, *names: str) -> None:
    for name in names:
        if getattr(kind, name) is not getattr(base, name):
            raise _NotNative(f"{kind.__name__} has a {name} of its own")


def _no_batched_reads(dataset: Any) -> None:
    if getattr(dataset, "__getitems__", None) is not None:
        raise _NotNative(f"{type(dataset).__name__} has a __getitems__ of its own")


def _copied(thing: Any) -> Any:
    """Another object with the same attributes, what it has opened too, which no pickle has."""
    made = object.__new__(type(thing))
    made.__dict__.update(thing.__dict__)
    return made


def _starts(lengths: list[int]) -> list[int]:
    """Where each begins, end to end."""
    return [0, *np.cumsum(lengths[:-1], dtype=np.int64).tolist()]


def _digest(numbers: np.ndarray | None) -> bytes | None:
    if numbers is None:
        return None
    return hashlib.blake2b(numbers.tobytes(), digest_size=16).digest()
