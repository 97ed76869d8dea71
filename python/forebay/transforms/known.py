"""The steps of torchvision that the engine knows, each as the operations of a recipe.

A class is known by its very type: a subclass may do anything. torchvision is never
imported here: if it is not loaded, no object can be one of its classes.

Each function below takes the step and the state of the image before it, changes the state
to what it is after, and gives the operations (none, if the step does nothing to the
values). It raises `Beyond` for what the engine would not do as torchvision does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from forebay.transforms.presets import preset_steps
from forebay.transforms.state import (
    LARGEST,
    Beyond,
    State,
    borders,
    chance,
    erasing_value,
    filling,
    filter_of,
    padding_mode,
    pair,
    per_channel,
    span,
    whole,
)

Ops = list[dict[str, Any]]
Reader = Callable[[Any, State, bool], Ops]

_DTYPES = {
    torch.uint8: "uint8",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}


class _Known:
    """The table of readers by the name of a class; called, it reads one step."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}

    def reader(self, *names: str) -> Callable[[Reader], Reader]:
        """Registers the reader of these classes."""

        def register(read: Reader) -> Reader:
            self._readers.update(dict.fromkeys(names, read))
            return read

        return register

    def parts(self, step: Any) -> list[Any] | None:
        """What a Compose or a preset of a model is made of; None if the step is neither."""
        home = _home(step)
        if home is None and type(step).__module__ == "torchvision.transforms._presets":
            return None if _hooked(step) else preset_steps(step)
        if type(step).__name__ != "Compose" or home is None or _hooked(step):
            return None
        inside = step.transforms
        return list(inside) if isinstance(inside, list | tuple) else None

    def __call__(self, step: Any, state: State) -> Ops:
        home, name = _home(step), type(step).__name__
        if home is None:
            raise Beyond(_stranger(step))
        if name not in self._readers:
            raise Beyond("not among the steps that run native")
        if _hooked(step):
            raise Beyond("it has hooks or functions of its own")
        v2 = home.endswith(".v2")
        ops = self._readers[name](step, state, v2)
        if ops and not v2:
            state.wrapped = False  # the functions of v1 give plain tensors
        return ops


recipe_of = _Known()


def _home(step: Any) -> str | None:
    """The module of torchvision's that this very class is in."""
    for name in ("torchvision.transforms", "torchvision.transforms.v2"):
        if getattr(sys.modules.get(name), type(step).__name__, None) is type(step):
            return name
    return None


def _stranger(step: Any) -> str:
    if any(base.__module__.startswith("torchvision.") for base in type(step).__mro__[1:]):
        return "a class of its own"
    return "not a transform of torchvision's"


def _hooked(step: Any) -> bool:
    """Whether somebody hung functions of their own on this object."""
    own = vars(step)
    hooks = own.get("_forward_hooks"), own.get("_forward_pre_hooks")
    return any(hooks) or any(callable(own[name]) for name in own if not name.startswith("_"))


def _pixels(step: Any, state: State) -> None:
    """Pixel steps work on uint8 values only."""
    name = type(step).__name__
    if state.is_float:
        raise Beyond(f"the values are floats here; put {name} before the step that makes them so")
    if state.erased:
        raise Beyond(f"comes after RandomErasing; put {name} before it")


# -- size -------------------------------------------------------------------------------


@recipe_of.reader("Resize")
def _resize(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    name = filter_of(step, state)
    size, limit = step.size, step.max_size
    if size is None:
        raise Beyond("size=None, for the longer side")
    if isinstance(size, list | tuple) and len(size) == 2:
        if limit is not None:
            raise Beyond("max_size goes with one size only")
        height, width = pair(size, "size")
        state.size = (height, width)
        return [{"op": "resize", "height": height, "width": width, "filter": name}]
    shorter, _ = pair(size, "size")
    longest = None if limit is None else whole(limit, "max_size", 1)
    if longest is not None and longest <= shorter:
        raise Beyond(f"max_size={longest} is not greater than size={shorter}")
    if state.size is not None:
        state.size = height, width = _shorter(state.size, shorter, longest)
        return [{"op": "resize", "height": height, "width": width, "filter": name}]
    return [{"op": "resize_shorter", "size": shorter, "max_size": longest, "filter": name}]


def _shorter(size: tuple[int, int], shorter: int, longest: int | None) -> tuple[int, int]:
    """torchvision's rounding of the other side."""
    height, width = size
    short, long = min(size), max(size)
    new_short, new_long = shorter, int(shorter * long / short)
    if longest is not None and new_long > longest:
        new_short, new_long = int(longest * new_short / new_long), longest
    if new_short < 1 or new_long > LARGEST:
        raise Beyond(f"a side would be {new_short if new_short < 1 else new_long} pixels long")
    return (new_long, new_short) if width <= height else (new_short, new_long)


@recipe_of.reader("CenterCrop")
def _center_crop(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    state.size = height, width = pair(step.size, "size")
    return [{"op": "center_crop", "height": height, "width": width}]


@recipe_of.reader("RandomResizedCrop")
def _random_resized_crop(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    state.size = height, width = pair(step.size, "size")
    return [
        {
            "op": "random_resized_crop",
            "height": height,
            "width": width,
            "scale": span(step.scale, "scale", 0),
            "ratio": span(step.ratio, "ratio", 0, above=True),
            "filter": filter_of(step, state),
        }
    ]


@recipe_of.reader("RandomCrop")
def _random_crop(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    height, width = pair(step.size, "size")
    given = step.padding
    if v2 and given is not None:  # kept as left, right, top, bottom there
        given = [given[0], given[2], given[1], given[3]]
    padding = None if given is None else borders(given)
    if_needed = bool(step.pad_if_needed)
    mode, fill = "constant", [0, 0, 0]
    if padding is not None or if_needed:
        mode = padding_mode(step.padding_mode)
        fill = filling(step.fill, mode, state, v2)
    mirrors = mode in ("reflect", "symmetric")
    if mirrors and if_needed and padding is not None and any(padding) and not v2:
        # v1 mirrors here what it has mirrored already; v2 and the engine mirror once.
        raise Beyond(f"padding and pad_if_needed together, by {mode}")
    state.size = (height, width)
    return [
        {
            "op": "random_crop",
            "height": height,
            "width": width,
            "padding": padding,
            "pad_if_needed": if_needed,
            "fill": fill,
            "mode": mode,
        }
    ]


@recipe_of.reader("Pad")
def _pad(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    padding = borders(step.padding)
    mode = padding_mode(step.padding_mode)
    fill = filling(step.fill, mode, state, v2)
    if state.size is not None:
        left, top, right, bottom = padding
        state.size = (state.size[0] + top + bottom, state.size[1] + left + right)
    return [{"op": "pad", "padding": padding, "fill": fill, "mode": mode}]


@recipe_of.reader("RandomHorizontalFlip")
def _horizontal_flip(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    return [{"op": "horizontal_flip", "p": chance(step.p)}]


@recipe_of.reader("RandomVerticalFlip")
def _vertical_flip(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    return [{"op": "vertical_flip", "p": chance(step.p)}]


# -- colour -----------------------------------------------------------------------------


@recipe_of.reader("ColorJitter")
def _color_jitter(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    if state.tensor and step.hue is not None:
        # Pillow turns hues in steps of 1/255, torchvision's tensors do not: up to 15 off.
        raise Beyond("hue on a tensor is not hue on a PIL image; put it before ToImage")
    ranges: dict[str, list[float] | None] = {}
    for name in ("brightness", "contrast", "saturation", "hue"):
        value = getattr(step, name)
        ranges[name] = None if value is None else span(value, name, -0.5 if name == "hue" else 0)
    return [{"op": "color_jitter", **ranges}]


@recipe_of.reader("Grayscale")
def _grayscale(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    channels = step.num_output_channels
    if channels not in (1, 3):
        raise Beyond(f"num_output_channels={channels!r} is neither 1 nor 3")
    state.channels = int(channels)
    return [{"op": "grayscale", "channels": state.channels}]


@recipe_of.reader("RandomGrayscale")
def _random_grayscale(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    return [{"op": "random_grayscale", "p": chance(step.p)}]


@recipe_of.reader("GaussianBlur")
def _gaussian_blur(step: Any, state: State, v2: bool) -> Ops:
    _pixels(step, state)
    across, down = pair(step.kernel_size, "kernel_size")
    sigma = span(step.sigma, "sigma", 0, above=True)
    return [{"op": "gaussian_blur", "kernel": [across, down], "sigma": sigma}]


# -- from pixels to tensors -------------------------------------------------------------


@recipe_of.reader("ToTensor")
def _to_tensor(step: Any, state: State, v2: bool) -> Ops:
    if state.tensor:
        return _only_in_v2(v2)
    state.tensor, state.dtype = True, "float32"
    return [{"op": "to_tensor"}]


@recipe_of.reader("PILToTensor")
def _pil_to_tensor(step: Any, state: State, v2: bool) -> Ops:
    if state.tensor:
        return _only_in_v2(v2)
    state.tensor = True
    return [{"op": "to_image"}]


def _only_in_v2(v2: bool) -> Ops:
    if not v2:
        raise Beyond("the image is a tensor already, which torchvision refuses here")
    return []


@recipe_of.reader("ToImage")
def _to_image(step: Any, state: State, v2: bool) -> Ops:
    made = state.tensor
    state.tensor = state.wrapped = True
    return [] if made else [{"op": "to_image"}]


@recipe_of.reader("ToPureTensor")
def _to_pure_tensor(step: Any, state: State, v2: bool) -> Ops:
    state.wrapped = False
    return []


@recipe_of.reader("ToDtype")
def _to_dtype(step: Any, state: State, v2: bool) -> Ops:
    if isinstance(step.dtype, dict):
        raise Beyond("dtype is a dict by type; say dtype=torch.float32 or the like")
    return _converted(step.dtype, bool(step.scale), state)


@recipe_of.reader("ConvertImageDtype")
def _convert_image_dtype(step: Any, state: State, v2: bool) -> Ops:
    if not state.tensor and not v2:
        raise Beyond("the image is not a tensor yet; put PILToTensor() before it")
    return _converted(step.dtype, True, state)


def _converted(dtype: Any, scale: bool, state: State) -> Ops:
    if not state.tensor:  # v2 leaves PIL images as they are
        return []
    name = _DTYPES.get(dtype)
    if name is None:
        raise Beyond(f"{dtype} is not one of {', '.join(map(str, _DTYPES))}")
    if name == state.dtype:
        return []
    if name == "uint8":
        raise Beyond("from floats back to uint8")
    state.dtype = name
    return [{"op": "to_dtype", "dtype": name, "scale": scale}]


@recipe_of.reader("Normalize")
def _normalize(step: Any, state: State, v2: bool) -> Ops:
    if not state.is_float:
        raise Beyond("the values are not floats yet; put ToTensor() or ToDtype() before it")
    mean = per_channel(step.mean, "mean", state.channels)
    std = per_channel(step.std, "std", state.channels)
    if 0 in std:
        raise Beyond("std has a zero")
    return [{"op": "normalize", "mean": mean, "std": std}]


@recipe_of.reader("RandomErasing")
def _random_erasing(step: Any, state: State, v2: bool) -> Ops:
    if not state.tensor:
        raise Beyond("the image is not a tensor yet; put it after ToTensor() or ToImage()")
    value = erasing_value(step.value, state)
    state.erased = True
    return [
        {
            "op": "random_erasing",
            "p": chance(step.p),
            "scale": span(step.scale, "scale", 0),
            "ratio": span(step.ratio, "ratio", 0, above=True),
            "value": value,
        }
    ]
