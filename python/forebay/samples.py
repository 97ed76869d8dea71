"""What a user may assign to a dataset: ``samples``, ``targets``, ``imgs``, ``classes``, ...

With torchvision these are plain attributes, and programs choose and relabel samples by them::

    dataset.samples = dataset.samples[:100]
    dataset.targets = [coarse[label] for label in dataset.targets]

Here they say which samples of the opened dataset there are, in which order, with which labels;
loaders take it from their next epoch on. What cannot be read (a file that the dataset does not
have, a label that is no number) is an error when it is assigned or used, never passed over.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from forebay import _forebay


class Told(list[Any]):
    """A list that tells how things are: to change it would change nothing, so it is an error."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _forebay.InvalidError(
            "this list is a copy: changing it in place would change nothing; hint: assign a new "
            "one, such as dataset.samples = dataset.samples[:100]"
        )

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy of it is the user's own


class Samples:
    """The samples of an opened dataset, as the user may have chosen and relabelled them."""

    # By position, the sample's number in the opened dataset; None: all of them, in its order.
    _numbers: np.ndarray | None = None
    # Those that came with assigned samples.
    _labels: np.ndarray | None = None
    # What was assigned and is given back as it is, by its name.
    _assigned: dict[str, Any] | None = None
    _has_labels = True
    root: str

    @property
    def native(self) -> _forebay.Dataset:
        """The opened dataset."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.native) if self._numbers is None else len(self._numbers)

    def number(self, index: int) -> int:
        """The number of a sample in the opened dataset."""
        return index if self._numbers is None else int(self._numbers[index])

    def path(self, index: int) -> str:
        """Where a sample comes from."""
        return self.native.path(self.number(index))

    def _users_path(self, path: str) -> str:
        """The path as torchvision would have it: beneath the root as the user wrote that."""
        opened = f"{self.native.url}/"
        if "://" in self.root or not path.startswith(opened):
            return path
        return os.path.join(self.root, path[len(opened) :])

    def label(self, index: int) -> int:
        """The label of a sample, before its transform."""
        given = self._given("targets")
        if given is not None:
            self._check_targets(given)
            return _whole(given[index])
        if self._labels is not None:
            return int(self._labels[index])
        return self.native.label(self.number(index))

    def chosen(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Numbers and labels by position; None for what is as the opened dataset has it."""
        given = self._given("targets")
        if given is None:
            return self._numbers, self._labels
        self._check_targets(given)
        return self._numbers, _labels(given)

    def _check_targets(self, given: Any) -> None:
        if len(given) != len(self):
            raise _forebay.InvalidError(
                f"dataset.targets has {len(given)} labels, the dataset has {len(self)} samples; "
                "hint: to choose samples use torch.utils.data.Subset, or assign dataset.samples"
            )

    def _given(self, name: str) -> Any:
        return None if self._assigned is None else self._assigned.get(name)

    def _give(self, name: str, value: Any) -> None:
        self._assigned = {**(self._assigned or {}), name: value}

    @property
    def targets(self) -> Any:
        """The label of every sample; to assign others relabels the samples."""
        given = self._given("targets")
        if given is not None:
            return given
        if self._labels is not None:
            return Told(self._labels.tolist())
        labels = self.native.labels()
        return Told((labels if self._numbers is None else labels[self._numbers]).tolist())

    @targets.setter
    def targets(self, labels: Any) -> None:
        if not self._has_labels:
            raise _forebay.InvalidError(
                f"samples of a {type(self).__name__} have no labels; hint: make them in transform="
            )
        _labels(labels)  # only for its checks: what is changed in it later counts too
        self._give("targets", labels)

    @property
    def classes(self) -> Any:
        """Names of the classes, in the order of their labels."""
        given = self._given("classes")
        return self._class_names() if given is None else given

    @classes.setter
    def classes(self, names: Any) -> None:
        self._give("classes", names)

    def _class_names(self) -> list[str]:
        return self.native.classes

    @property
    def class_to_idx(self) -> Any:
        """The label of each class."""
        given = self._given("class_to_idx")
        return {name: at for at, name in enumerate(self.classes)} if given is None else given

    @class_to_idx.setter
    def class_to_idx(self, labels: Any) -> None:
        self._give("class_to_idx", labels)

    def _pairs(self) -> Told:
        """(path, label) of every sample."""
        paths = [self._users_path(path) for path in self.native.paths()]
        if self._numbers is not None:
            paths = [paths[number] for number in self._numbers]
        _, labels = self.chosen()
        targets = self.targets if labels is None else labels.tolist()
        return Told(zip(paths, targets, strict=True))

    def _choose(self, pairs: Iterable[Any]) -> None:
        known = {path: number for number, path in enumerate(self.native.paths())}
        known |= {self._users_path(path): number for path, number in known.items()}
        numbers, labels = [], []
        for pair in pairs:
            try:
                path, label = pair
            except (TypeError, ValueError):
                raise _forebay.InvalidError(
                    f"dataset.samples has {pair!r}, which is not (path, label)"
                ) from None
            number = known.get(os.fspath(path))
            if number is None:
                raise _forebay.InvalidError(
                    f"dataset.samples names {path!r}, which this dataset did not find; hint: to "
                    "choose samples use torch.utils.data.Subset; for other files make a "
                    "forebay.Files with a manifest of them"
                )
            numbers.append(number)
            labels.append(_whole(label))
        self._numbers = np.array(numbers, dtype=np.uint32)
        self._labels = np.array(labels, dtype=np.int64)
        self._give("targets", None)  # the samples have brought theirs


def _labels(given: Any) -> np.ndarray:
    """Labels as whole numbers, from whatever holds them."""
    labels = np.asarray(given)
    if labels.ndim == 1 and labels.size == 0:
        return labels.astype(np.int64)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise _forebay.InvalidError(
            "dataset.targets is not one whole number for each sample; hint: make other labels of "
            "them by target_transform="
        )
    return np.ascontiguousarray(labels, dtype=np.int64)


def _whole(label: Any) -> int:
    try:
        return operator.index(label)
    except TypeError:
        raise _forebay.InvalidError(
            f"the label {label!r} is not a whole number; hint: make other labels by "
            "target_transform="
        ) from None
