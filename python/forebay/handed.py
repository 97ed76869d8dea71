"""A sampler of an unknown class: it runs as Python, as far ahead as torch would run it.

Where the sampler, or the iterator it makes, has a state of its own (``state_dict`` and
``load_state_dict``, as with torchdata's ``StatefulDataLoader``), that is kept for each batch that
is out, since the sampler is further ahead than the user. Without one the batches are counted, and
a resumed epoch asks for as many again.
"""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler

from forebay import _forebay

if TYPE_CHECKING:
    from forebay.orders import Batching
    from forebay.state import State

_OWN = ("sampler_state", "sampler_iter_state", "passed", "over")


def is_stateful(thing: Any) -> bool:
    """Whether it can say where it is, and be put there."""
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


class HandedOver:
    """The order of a sampler that is not known."""

    kind = "sampler"

    def __init__(self, batches: Iterable[Any], batching: Batching) -> None:
        # torch's own batches are made here, so that the iterator under them can be asked. Without
        # batching they are what the sampler gives, each an index to the dataset.
        self._joins = type(batches) is BatchSampler and batching.size is not None
        self._source: Any = getattr(batches, "sampler", None) if self._joins else batches
        self._batching = batching
        self._iterator: Any = None
        self._saved: dict[str, Any] = {}
        self._samples = 0
        # It was seen to end: the last batch of torch's kind is shorter, which a user's sampler that
        # counts its epochs has counted then.
        self._over = False
        # After so many batches since it was opened: samples given, and the sampler's own words.
        self._taken = 0
        self._states: deque[tuple[int, dict[str, Any]]] = deque()

    def open(self, saved: dict[str, Any] | None = None) -> bool:
        """Make the iterator; torch does so before it draws anything else.

        Whether it goes on from where it was saved, so that no batch is to be passed over.
        """
        self._saved = saved or {}
        self._iterator = None
        own = "sampler_state" in self._saved or "sampler_iter_state" in self._saved
        goes_on = own and "between" not in self._saved
        if "sampler_state" in self._saved:
            # Now, though it is asked only later: an epoch may be left before its first batch.
            self._source.load_state_dict(copy.deepcopy(self._saved["sampler_state"]))
        if not self._joins:  # torch's batches ask for theirs only when the first is wanted
            self._begin()
        return goes_on

    def _begin(self) -> None:
        saved, self._saved = self._saved, {}
        self._taken, self._samples = 0, saved.get("passed", 0)
        self._over = saved.get("over", False)
        self._states = deque()
        self._iterator = iter(self._source)
        if "sampler_iter_state" in saved:
            if not is_stateful(self._iterator):
                raise _forebay.InvalidError(
                    "the state has order.sampler_iter_state, but what this loader's sampler "
                    "iterates with has no load_state_dict(); hint: resume with the same sampler"
                )
            self._iterator.load_state_dict(copy.deepcopy(saved["sampler_iter_state"]))
            if "between" in saved:
                self._iterator = iter(self._source)  # that epoch was over
        self._keep()

    def __iter__(self) -> Iterator[Any]:
        """What the sampler gives, unchanged."""
        if self._iterator is None:
            self._begin()
        size = self._batching.size or 1
        while not self._over:
            if self._joins:
                batch: Any = list(islice(self._iterator, size))
                self._over = len(batch) < size
                if not batch or (self._batching.drop_last and len(batch) < size):
                    break
            else:
                batch = next(self._iterator, self)
                if batch is self:
                    break
            self._taken += 1
            self._samples += len(batch) if hasattr(batch, "__len__") else 1
            self._keep()
            yield batch
        self._taken += 1
        self._keep()

    def _keep(self) -> None:
        own = {}
        if is_stateful(self._source):
            own["sampler_state"] = copy.deepcopy(self._source.state_dict())
        if is_stateful(self._iterator):
            own["sampler_iter_state"] = copy.deepcopy(self._iterator.state_dict())
        if own:
            if self._over:
                own["over"] = True
            self._states.append((self._taken, {**own, "passed": self._samples}))

    def forget(self, batches: int) -> None:
        """Drop what was kept for batches before so many: those were handed over."""
        while len(self._states) > 1 and self._states[1][0] <= batches:
            self._states.popleft()

    def state_after(self, batches: int, ended: bool = False) -> dict[str, Any]:
        """The sampler's own words after so many batches since it was opened, if it has any."""
        self.forget(self._taken if ended else batches)
        if not self._states:
            # Not asked for anything yet.
            own = {name: value for name, value in self._saved.items() if name in _OWN}
            if not own and is_stateful(self._source):
                own = {"sampler_state": self._source.state_dict()}
            return copy.deepcopy(own)
        own = self._states[0][1]
        within = ("passed", "over")  # the epoch, which is none of them once that has ended
        return copy.deepcopy({name: own[name] for name in own if name not in within or not ended})

    def check(self, state: State) -> None:
        """Refuse the words of a sampler that had some, if this one would not understand them."""
        if "sampler_state" in (state.order or {}) and not is_stateful(self._source):
            raise _forebay.InvalidError(
                "the state has order.sampler_state, but this loader's sampler has no "
                "load_state_dict(); hint: resume with the same sampler"
            )

    def take(self, samples: int) -> list[int] | None:
        """The next batch of indices into a dataset of ``samples``, None at the end."""
        for batch in self:
            ids = [batch] if self._batching.size is None else list(batch)
            return [_as_index(index, samples) for index in ids]
        return None

    def skip(self, batches: int, samples: int) -> int:
        """Pass over the next batches, as far as there are any; how many samples they were."""
        passed = 0
        for _ in range(batches):
            ids = self.take(samples)
            if ids is None:
                break
            passed += len(ids)
        return passed


def _as_index(index: Any, samples: int) -> int:
    try:
        value = operator.index(index)
    except TypeError:
        raise TypeError(
            f"the sampler gave {index!r}; datasets of forebay take sample numbers"
        ) from None
    if not -samples <= value < samples:
        raise IndexError(
            f"the sampler gave {value}; the dataset has the samples 0 to {samples - 1}"
        )
    return value if value >= 0 else value + samples  # from the end, as lists are read
