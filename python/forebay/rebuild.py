"""Frameworks that take a loader apart and make another one of its arguments.

Lightning and Fabric make another of the loader's own class, from its attributes: those are
named as the arguments are. accelerate and Ray make torch's class instead. What they hand on is
``num_workers``, so that number carries the options of the loader it is from, and the name
``DataLoader`` in their module is taught to make ours of it (ours, not a subclass of the user's:
with torch's they give up a subclass too). All else they do stays theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch.utils.data

from forebay.sampler import undealt

# Where each of them makes torch's class, and whether it deals the order to ranks by itself,
# whatever the sampler.
_MODULES = {
    "accelerate.data_loader": True,
    "ray.train.torch.train_loop_utils": False,
}


class NumWorkers(int):
    """A number of workers, with the options of the loader that it is from."""

    options: dict[str, Any]

    @classmethod
    def of(cls, number: int, options: dict[str, Any]) -> NumWorkers:
        made = cls(number)
        made.options = options
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


def with_options(number: int, options: dict[str, Any]) -> int:
    """The number, for frameworks that hand nothing else of ours on."""
    whole = isinstance(number, int) and not isinstance(number, bool)
    return NumWorkers.of(number, options) if whole else number


class _Rebuilding(type):
    """torch's class to who asks; who calls it gets a loader of the kind it was made from."""

    make: Callable[..., Any]
    deals: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        options = getattr(kwargs.get("num_workers"), "options", None)
        if options is None:
            return torch.utils.data.DataLoader(*args, **kwargs)
        if cls.deals and kwargs.get("batch_sampler") is not None:
            kwargs["batch_sampler"] = undealt(kwargs["batch_sampler"])
        return cls.make(*args, **{**options, **kwargs})

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.utils.data.DataLoader)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, torch.utils.data.DataLoader)


def teach(make: Callable[..., Any]) -> None:
    """Let the frameworks that are imported make loaders by ``make`` where they had one."""
    for name, deals in _MODULES.items():
        module = sys.modules.get(name)
        known = getattr(module, "DataLoader", None)
        if known is torch.utils.data.DataLoader:
            body = {"make": staticmethod(make), "deals": deals}
            module.DataLoader = _Rebuilding("DataLoader", (), body)  # type: ignore[union-attr]
