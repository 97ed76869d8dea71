"""The presets of torchvision's models (``weights.transforms()``), as the steps that they are.

A preset is one object that calls torchvision's functions in a row. Here it becomes the steps of
``torchvision.transforms`` that call the same functions, with the preset's own values.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch

# What was made of each, and of which values.
_made: weakref.WeakKeyDictionary[Any, tuple[dict[str, str], list[Any]]] = (
    weakref.WeakKeyDictionary()
)


def preset_steps(preset: Any) -> list[Any] | None:
    """The steps of a preset for single images; None for anything else.

    The same objects each time, as long as nobody changes the preset.
    """
    home = sys.modules.get("torchvision.transforms._presets")
    read = _READERS.get(type(preset).__name__)
    if read is None or getattr(home, type(preset).__name__, None) is not type(preset):
        return None
    values = {name: repr(value) for name, value in vars(preset).items()}
    before, steps = _made.get(preset, (None, []))
    if before != values:
        steps = read(preset, sys.modules["torchvision.transforms"])
        _made[preset] = values, steps
    return steps


def _classification(preset: Any, tv: Any) -> list[Any]:
    crop = tv.CenterCrop(preset.crop_size)
    return [_resize(preset, tv), crop, *_to_floats(tv), tv.Normalize(preset.mean, preset.std)]


def _segmentation(preset: Any, tv: Any) -> list[Any]:
    resize = [_resize(preset, tv)] if isinstance(preset.resize_size, list) else []
    return [*resize, *_to_floats(tv), tv.Normalize(preset.mean, preset.std)]


def _detection(preset: Any, tv: Any) -> list[Any]:
    return _to_floats(tv)


def _resize(preset: Any, tv: Any) -> Any:
    return tv.Resize(
        preset.resize_size, interpolation=preset.interpolation, antialias=preset.antialias
    )


def _to_floats(tv: Any) -> list[Any]:
    return [tv.PILToTensor(), tv.ConvertImageDtype(torch.float)]


_READERS = {
    "ImageClassification": _classification,
    "SemanticSegmentation": _segmentation,
    "ObjectDetection": _detection,
}
