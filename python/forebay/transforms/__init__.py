"""From the user's torchvision transform to a recipe that the engine's threads carry out.

The user keeps ``transforms.Compose([...])``. Its longest prefix of steps that the engine
knows becomes a recipe; the steps after it stay Python and get what torchvision would have
given them there:

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), mine, ToTensor()])
             '--------- the recipe ----------------------'  '-- the rest ---'
                                          a PIL image ----->

A batch is one block of memory, so a recipe's result has one size for all images: a prefix
that ends with a size of each image's own (``Resize(256)`` alone) is cut back.

A transform is read when an epoch begins: what is changed in it, such as
``transform.transforms[0].p = 0.9``, counts from the next epoch on.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forebay._forebay import InvalidError
from forebay.transforms.known import recipe_of
from forebay.transforms.state import Beyond, State

__all__ = [
    "Step",
    "Translation",
    "explain",
    "is_native_only",
    "native_only",
    "require_native",
    "translate",
]

VARIES = "the size of the result varies from image to image"


@dataclass(frozen=True)
class Step:
    """One step of the user's, and where it runs."""

    name: str
    native: bool
    why: str  # why it runs in Python; empty if it does not


@dataclass(frozen=True)
class Translation:
    """What runs in the engine, and what is left for Python."""

    recipe: dict[str, Any] | None  # None if nothing is native
    rest: list[Callable[[Any], Any]]
    # What the rest gets, or the user if there is no rest: "pil" (a PIL image; of mode L if
    # the recipe ends with one channel) or "tensor" (of the recipe's shape and dtype).
    handed: str
    steps: tuple[Step, ...]

    @property
    def is_native(self) -> bool:
        """Whether all of the transform runs in the engine."""
        return self.recipe is not None and not self.rest


def translate(
    transform: Callable[[Any], Any] | None,
    *,
    decode: str = "exact",
    orient: bool = False,
    max_pixels: int = 178_956_970,
    channels_last: bool = False,
) -> Translation:
    """The recipe of a transform's longest native prefix, and what remains.

    Done once for a loader: later changes to the transform's objects are not followed.
    Without a transform nothing is native, and the user gets PIL images.
    """
    _check_options(decode, max_pixels)
    if transform is None:
        return Translation(None, [], "pil", ())
    given = _flattened(transform)
    states, translated, why = _longest_prefix(given)
    native = next((at for at in range(len(translated), 0, -1) if states[at].size), 0)
    steps = _report(given, native, len(translated), why)
    rest = given[native:]
    if not native:
        return Translation(None, rest, "pil", steps)
    state = states[native]
    if rest and state.wrapped:
        rest = [_as_image, *rest]
    recipe = {
        "decode": decode,
        "orient": bool(orient),
        "max_pixels": int(max_pixels),
        # A Python step (or a user) that wants a PIL image gets it row by row.
        "order": "chw" if state.tensor and not channels_last else "hwc",
        "steps": [op for ops in translated[:native] for op in ops],
    }
    return Translation(recipe, rest, "tensor" if state.tensor else "pil", steps)


def explain(translation: Translation) -> str:
    """Which steps are native, which are Python and why; one line each."""
    if not translation.steps:
        return "no transform: images are given as PIL images"
    count = sum(step.native for step in translation.steps)
    lines = [f"{count} of {len(translation.steps)} steps of the transform are native"]
    for step in translation.steps:
        lines.append(f"  native  {step.name}" if step.native else f"  Python  {_told(step)}")
    return "\n".join(lines)


# -- native_only ------------------------------------------------------------------------

_native_only = False


class _Switched:
    """The switch as it was, put back at the end of a ``with``."""

    def __init__(self, before: bool) -> None:
        self._before = before

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        global _native_only
        _native_only = self._before


def native_only(on: bool = True) -> _Switched:
    """From here on, a loader whose transform is not wholly native is an error.

    As ``with forebay.transforms.native_only(): ...`` it holds inside; called by itself it
    holds for the whole process until ``native_only(False)``.
    """
    global _native_only
    before, _native_only = _native_only, bool(on)
    return _Switched(before)


def is_native_only() -> bool:
    """Whether a slow path is an error now."""
    return _native_only


def require_native(translation: Translation) -> None:
    """Raises InvalidError if the switch is on and something would run in Python."""
    if not _native_only or translation.is_native:
        return
    first = next((step for step in translation.steps if not step.native), None)
    if first is None:
        raise InvalidError(
            "native_only is on and the images have no transform: they would be decoded in "
            "Python; hint: give transform= a crop to one size and ToTensor()"
        )
    raise InvalidError(
        f"native_only is on and a step of the transform would run in Python: {_told(first)}; "
        "hint: change it, or leave native_only for this loader"
    )


# -- reading the transform --------------------------------------------------------------


def _check_options(decode: str, max_pixels: int) -> None:
    if decode not in ("exact", "fast"):
        raise InvalidError(f"decode={decode!r} is not known; hint: 'exact' or 'fast'")
    if isinstance(max_pixels, bool) or not isinstance(max_pixels, int) or max_pixels < 1:
        raise InvalidError(
            f"max_pixels={max_pixels!r} is not a number of pixels; hint: the default is 178956970"
        )


def _flattened(transform: Callable[[Any], Any]) -> list[Callable[[Any], Any]]:
    """The steps in order, those of a Compose within a Compose too."""
    inside = recipe_of.parts(transform)
    if inside is None:
        return [transform]
    return [step for part in inside for step in _flattened(part)]


def _longest_prefix(
    given: list[Callable[[Any], Any]],
) -> tuple[list[State], list[list[dict[str, Any]]], str]:
    """The states before, between and after the steps that are known; their operations; and
    why the next one is not."""
    states = [State()]
    translated: list[list[dict[str, Any]]] = []
    for step in given:
        state = copy.copy(states[-1])
        try:
            translated.append(recipe_of(step, state))
        except Beyond as beyond:
            return states, translated, str(beyond)
        states.append(state)
    return states, translated, ""


def _report(
    given: list[Callable[[Any], Any]], native: int, known: int, why: str
) -> tuple[Step, ...]:
    steps = []
    for at, step in enumerate(given):
        if at < native:
            reason = ""
        elif at < known:
            reason = VARIES
        elif at == known:
            reason = why
        else:
            reason = f"comes after {_name(given[known])}, which runs in Python"
        steps.append(Step(_name(step), at < native, reason))
    return tuple(steps)


def _name(step: Callable[[Any], Any]) -> str:
    return getattr(step, "__name__", None) or type(step).__name__


def _told(step: Step) -> str:
    return f"{step.name}: {step.why}"


def _as_image(tensor: Any) -> Any:
    """What ToImage gives, for the Python steps that come after a native one."""
    from torchvision import tv_tensors

    return tv_tensors.Image(tensor)
