"""Where torch's default generator is, for one loader, and how a state carries it.

An order without ``seed=`` is drawn when its epoch begins, from whatever torch's generators are
then. A state from between two epochs therefore has the generators in it:

    default   torch's own, which the training loop and other loaders draw from as well
    base      the loader's, if it has one
    sampler   the sampler's, if that is another one

Those of the loader and the sampler are put back as they were. torch's own is the user's: it is
left alone, and a loader that goes on from a state draws from a copy from then on, unless the
user has put the default one back himself. Saving changes nothing: frameworks ask for a state
after every batch, and their runs must go on as torch's do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from forebay import generators

if TYPE_CHECKING:
    from forebay.state import State


class Draws:
    """The default generator as one loader sees it."""

    def __init__(self) -> None:
        self._resumed: torch.Generator | None = None  # since a state was loaded

    @property
    def default(self) -> torch.Generator:
        """What stands for torch's default generator."""
        return self._resumed or torch.default_generator

    def carry(self) -> dict[str, str]:
        """Where the generator is, for a state."""
        return {"default": generators.packed(self.default.get_state().numpy())}

    def follow(self, resume: State | None) -> None:
        """Draw from the default generator if it is where the state has it, else from a copy.

        Called when an epoch begins, before anything of it is drawn, and again once the user's
        dataset has put its own state back, which may be just that.
        """
        carried = _carried(resume)
        if carried is not None:
            name, packed = carried
            live = torch.default_generator.get_state().numpy()
            self._resumed = _copy_unless(live, packed, f"order.{name}.default")

    def seed(self, generator: torch.Generator | None = None) -> int:
        """A draw of torch's kind, from this generator or the default one."""
        if generator is None:
            generator = self.default
            if generator is not torch.default_generator:
                torch.empty((), dtype=torch.int64).random_()  # it goes on as with torch
        return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _carried(state: State | None) -> tuple[str, str] | None:
    """Where a state has the default generator, and the generator; None if it has none."""
    order = {} if state is None or state.order is None else state.order
    name = "between" if "between" in order else "after"
    packed = order.get(name, {}).get("default")
    return None if packed is None else (name, packed)


def _copy_unless(live: np.ndarray, packed: str, field: str) -> torch.Generator | None:
    """A generator in the packed state; None if the live one is in that very state."""
    state = generators.unpacked(packed, field, live)
    if np.array_equal(state, live):
        return None
    copy = torch.Generator()
    copy.set_state(torch.from_numpy(state))
    return copy
