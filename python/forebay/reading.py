"""How a loader reads and prepares its samples: settled anew at the start of every epoch.

A user may change the dataset in between: ``dataset.transform = evaluation``, ``subset.indices``,
``dataset.samples``. As long as nothing has changed the same object is given again, so that jobs
and worker processes of the last epoch go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import default_collate, default_convert

from forebay import _forebay
from forebay.images import Preparation, preparation_of
from forebay.views import View, is_usual_collate, reads_natively

if TYPE_CHECKING:
    from forebay.engine import Engine

_log = logging.getLogger("forebay")

Collate = Callable[[list[Any]], Any]

# The loader's options that say what is made of a sample.
_OF_SAMPLES = ("prepare", "decode", "cache_form", "channels_last", "orient", "max_pixels")


@dataclass(frozen=True)
class Reading:
    """Which samples, and what is made of them."""

    view: View | None  # None: torch reads them
    why_not: str
    preparation: Preparation
    # The user's functions that worker processes have a copy of.
    functions: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        dataset: Any,
        options: Mapping[str, Any],
        before: Reading | None,
        *,
        memory: int,
        may_lend: bool,
    ) -> Reading:
        """The reading of a dataset by a loader's options; ``before`` itself if it still holds."""
        view, why_not = reads_natively(dataset)
        own = {name: options[name] for name in _OF_SAMPLES}
        preparation = preparation_of(view, memory=memory, may_lend=may_lend, **own)
        parts = [] if view is None else view.parts
        functions = tuple(part.transform for part in parts)
        functions += tuple(part.target_transform for part in parts)
        made = cls(view, why_not, preparation, functions)
        if before is not None and made._is_like(before):
            return before
        if view is not None:
            # The epoch goes on with the functions it began with.
            made = cls(view.as_now(), why_not, preparation, functions)
        check_native(view, why_not, options)
        if preparation.recipe is not None:
            _log.info("%s", made.explain())
        return made

    def _is_like(self, other: Reading) -> bool:
        alike = all(a is b for a, b in zip(self.functions, other.functions, strict=False))
        view = other.view
        return (
            (view is None if self.view is None else self.view.is_like(view))
            and self.why_not == other.why_not
            and alike
            and self.preparation.is_like(other.preparation)
        )

    @property
    def native(self) -> _forebay.View:
        """What the engine reads."""
        assert self.view is not None
        return self.view.native

    @property
    def fingerprint(self) -> str | None:
        """What a state is compared with; None where torch reads."""
        return None if self.view is None else self.view.native.fingerprint

    def user_collate(self, collate_fn: Collate, batched: bool) -> Collate | None:
        """What the user wants done with single samples; None for what is done anyway."""
        view = self.view
        if batched and view is not None and is_usual_collate(collate_fn):
            return None
        if batched and view is not None and view.collate is not default_collate:
            return collate_fn
        return (
            None if collate_fn == (default_collate if batched else default_convert) else collate_fn
        )

    def explain(self) -> str:
        """Who reads the samples and who prepares them, and why."""
        if self.view is None:
            return f"samples: read by torch, in Python: {self.why_not}"
        told = self.preparation.explain()
        if self.view.is_whole:
            return told
        return f"samples: read by forebay: {self.view.told}\n{told}"


class Jobs:
    """The jobs of a loader on its engine, each used again in later epochs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._spare: list[tuple[_forebay.Engine, _forebay.Job, Reading]] = []

    def borrow(
        self, reading: Reading, settings: dict[str, Any]
    ) -> tuple[_forebay.Engine, _forebay.Job]:
        """A spare job that reads so, or a new one of these settings.

        The borrower holds the engine too: without it, nobody works for the job.
        """
        engine = self._engine.start()
        while True:
            try:
                made_by, job, read = self._spare.pop()
            except IndexError:
                return engine, engine.job(reading.native, **settings)
            if made_by is engine and read is reading:
                return engine, job

    def give_back(self, engine: _forebay.Engine, job: _forebay.Job, reading: Reading) -> None:
        """Keep a job for the next epoch, unless its engine was closed or is another process's.

        Called by ``__del__`` at any moment, so it takes no lock.
        """
        if engine is self._engine.native:
            self._spare.append((engine, job, reading))

    def stats(self) -> dict[str, Any]:
        """Figures of the job that was given back last."""
        return self._spare[-1][1].stats() if self._spare else {}

    def clear(self) -> None:
        """Let all spare ones go."""
        self._spare = []


def check_native(view: View | None, why_not: str, options: Mapping[str, Any]) -> None:
    """Refuse options that hold only where forebay reads the samples."""
    wanted = {
        "return_index=True": options["return_index"],
        'on_error="replace"': options["on_error"] == "replace",
        "engine=": options["engine"] is not None,
    }
    for name, is_wanted in wanted.items():
        if is_wanted and view is None:
            raise ValueError(f"{name} needs a dataset of forebay's, as it is: {why_not}")
