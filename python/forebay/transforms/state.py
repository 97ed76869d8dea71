"""What an image is between two steps, and how a step's parameters are read."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FILTERS = ("nearest", "bilinear", "hamming", "bicubic", "lanczos")
# torchvision takes Pillow's constants too.
_FILTER_NUMBERS = {
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming",
}  # fmt: skip
# The engine's limit for an edge, a margin and a kernel.
LARGEST = 16384
PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


class Beyond(Exception):
    """The engine does not do this step as torchvision would: its text says why."""


@dataclass
class State:
    """The image at one place of the transform."""

    tensor: bool = False  # else a PIL image
    dtype: str = "uint8"
    channels: int = 3
    size: tuple[int, int] | None = None  # (height, width), if the same for all images
    wrapped: bool = False  # a tv_tensors.Image
    erased: bool = False

    @property
    def is_float(self) -> bool:
        """Whether the values have left uint8."""
        return self.dtype != "uint8"


def whole(value: Any, what: str, least: int = 0) -> int:
    """A whole number of pixels."""
    try:
        number = operator.index(value)
    except TypeError:
        raise Beyond(f"{what}={value!r} is not a whole number") from None
    if number < least:
        raise Beyond(f"{what}={value!r} is less than {least}")
    if number > LARGEST:
        raise Beyond(f"{what}={value!r} is more than {LARGEST}")
    return number


def real(value: Any, what: str) -> float:
    """A finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise Beyond(f"{what}={value!r} is not a number") from None
    if not math.isfinite(number):
        raise Beyond(f"{what}={value!r} is not finite")
    return number


def chance(value: Any) -> float:
    """A probability."""
    p = real(value, "p")
    if not 0 <= p <= 1:
        raise Beyond(f"p={value!r} is not between 0 and 1")
    return p


def span(value: Any, what: str, least: float, above: bool = False) -> list[float]:
    """A range (min, max) from ``least`` on, or ``above`` it."""
    numbers = reals(value, what)
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise Beyond(f"{what}={value!r} is not a range (min, max)")
    if numbers[0] < least or (above and numbers[0] == least):
        raise Beyond(f"{what}={value!r} starts {'at or ' if above else ''}below {least:g}")
    return numbers


def reals(value: Any, what: str) -> list[float]:
    """Finite numbers, from whatever holds them."""
    if not isinstance(value, Iterable):
        raise Beyond(f"{what}={value!r} is not a sequence of numbers")
    return [real(item, what) for item in value]


def per_channel(value: Any, what: str, channels: int) -> list[float]:
    """One number for each channel; a single one goes for all, as it does in torch."""
    single = isinstance(value, int | float)
    numbers = [real(value, what)] if single else reals(value, what)
    if len(numbers) == 1:
        numbers *= channels
    if len(numbers) != channels:
        raise Beyond(f"{what} has {len(numbers)} values, the image has {channels} channels")
    return numbers


def pair(value: Any, what: str) -> tuple[int, int]:
    """Two sides, each at least 1; a single one goes for both."""
    sides = value if isinstance(value, list | tuple) else (value, value)
    if len(sides) == 1:
        sides = (sides[0], sides[0])
    if len(sides) != 2:
        raise Beyond(f"{what}={value!r} is not a height and a width")
    return whole(sides[0], what, 1), whole(sides[1], what, 1)


def borders(value: Any) -> list[int]:
    """[left, top, right, bottom] of a padding in any of torchvision's forms."""
    sides = list(value) if isinstance(value, list | tuple) else [value]
    if len(sides) not in (1, 2, 4):
        raise Beyond(f"padding={value!r} is not 1, 2 or 4 numbers")
    sides *= 4 // len(sides)
    return [whole(side, "padding") for side in sides]


def padding_mode(value: Any) -> str:
    """One of the ways to make up pixels outside of the image."""
    if value not in PADDING_MODES:
        raise Beyond(f"padding_mode={value!r} is not one of {', '.join(PADDING_MODES)}")
    return str(value)


def filling(value: Any, mode: str, state: State, v2: bool) -> list[int]:
    """The colour of a border: always three values, all the same if there is one channel."""
    if isinstance(value, dict):
        raise Beyond("fill is a dict by type")
    several = isinstance(value, list | tuple)
    if several and state.tensor and (not v2 or mode != "constant"):
        raise Beyond("a fill of several values on a tensor is refused by torchvision here")
    if mode != "constant" or value is None:
        return [0, 0, 0]
    if several and state.channels == 1:
        raise Beyond("fill has several values, the image has 1 channel")
    return [_byte(number, "fill") for number in per_channel(value, "fill", 3)]


def _byte(number: float, what: str) -> int:
    if not number.is_integer() or not 0 <= number <= 255:
        raise Beyond(f"{what}={number:g} is not a whole number from 0 to 255")
    return int(number)


def erasing_value(value: Any, state: State) -> list[float] | str:
    """What erased pixels become."""
    if value is None or value == "random":  # v2 keeps "random" as None
        if not state.is_float:
            raise Beyond("value='random' on uint8 wraps around; put it after the step to floats")
        return "random"
    numbers = per_channel(value, "value", state.channels)
    return numbers if state.is_float else [float(_byte(number, "value")) for number in numbers]


def filter_of(step: Any, state: State) -> str:
    """The name of a resize's filter.

    On tensors torchvision has filters of its own: only the antialiased bilinear one gives
    the pixels that Pillow's gives (to 1 of 255; bicubic is up to 20 off).
    """
    given = step.interpolation
    name = _FILTER_NUMBERS.get(given) if isinstance(given, int) else getattr(given, "value", given)
    if state.tensor:
        if name != "bilinear":
            raise Beyond(f"{name} on a tensor is not {name} on a PIL image; put it before ToImage")
        if step.antialias is not True:
            raise Beyond("without antialias on a tensor; say antialias=True")
    if name == "nearest-exact":
        return "nearest"
    if name not in FILTERS:
        raise Beyond(f"interpolation={given!r} is not one of {', '.join(FILTERS)}")
    return str(name)
