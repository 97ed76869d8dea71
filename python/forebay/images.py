"""Finished images: what the engine makes of a transform, and what is left for Python."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from forebay import _forebay
from forebay.datasets import ImageFolder
from forebay.transforms import Translation, explain, require_native, translate

if TYPE_CHECKING:
    from forebay.views import View

_log = logging.getLogger("forebay")

CACHE_FORMS = ("auto", "encoded", "decoded")
PREPARE = ("auto", "python")
MAX_PIXELS = 178_956_970  # Pillow warns from there on
# Photos take five or six times the bytes of their files; where less than half of them would fit,
# it is not worth a try.
_LEAST_GROWTH = 3


@dataclass(frozen=True)
class Preparation:
    """How a loader makes images into samples."""

    translation: Translation
    recipe: _forebay.Recipe | None
    cache_form: str
    # Without a recipe: the most pixels of images that the engine decodes for Python. 0: none.
    lends: int = 0
    # Why nothing is native though each part of the dataset has a transform that could be.
    differing: bool = False

    def job_settings(self, most: int) -> dict[str, Any]:
        """What the engine is told of it; ``most``: samples that are with Python at a time."""
        lend = (self.lends, most) if self.lends else None
        return {"recipe": self.recipe, "lend": lend, "cache_form": self.cache_form}

    def is_like(self, other: Preparation) -> bool:
        """Whether the other makes the same of the same samples."""
        same = (self.cache_form, self.lends) == (other.cache_form, other.lends)
        same = same and (self.recipe is None) == (other.recipe is None)
        return same and _are_alike(self.translation, other.translation)

    def explain(self) -> str:
        """Which steps of the transform are native, which are Python, and why."""
        if self.differing:
            return (
                "0 steps of the transforms are native: the datasets of a ConcatDataset have "
                "different ones; hint: give them the same transform"
            )
        return explain(self.translation)


def preparation_of(
    view: View | None,
    *,
    prepare: str,
    decode: str,
    cache_form: str,
    channels_last: bool,
    orient: bool,
    max_pixels: int,
    memory: int,
    may_lend: bool,
) -> Preparation:
    """The native part of a dataset's transform, if it is one of images and has any."""
    parts: list[Any] = [] if view is None else view.parts
    translation, *others = [
        translate(
            transform,
            decode=decode,
            orient=orient,
            max_pixels=max_pixels,
            channels_last=channels_last,
        )
        for transform in [part.transform for part in parts] or [None]
    ]
    differing = not all(_are_alike(translation, other) for other in others)
    if differing:
        # Each part's own transform runs on its own samples, in Python.
        translation = dataclasses.replace(translation, recipe=None, rest=[])
    ours = bool(parts) and all(map(_decodes_as_we_do, parts))
    if ours:
        require_native(translation)
    if view is None or not ours or prepare == "python":
        return Preparation(translation, None, cache_form, differing=differing)
    if translation.recipe is None:
        lends = cache_form == "decoded" or (cache_form == "auto" and _may_fit(view, memory))
        most = max_pixels if lends and may_lend else 0
        return Preparation(translation, None, cache_form, most, differing=differing)
    if cache_form == "auto" and decode == "fast":
        # Decoded whole and decoded to scale are not the same pixels: the choice may not show.
        cache_form = "encoded"
    recipe = _forebay.Recipe(json.dumps(translation.recipe))
    return Preparation(translation, recipe, cache_form)


def _decodes_as_we_do(dataset: Any) -> bool:
    """Not whoever decodes by himself (a subclass): he has his own idea of a sample."""
    kind = type(dataset)
    ours = isinstance(dataset, ImageFolder) and kind.item is ImageFolder.item
    return ours and kind._decode is ImageFolder._decode


def _are_alike(one: Translation, other: Translation) -> bool:
    """Whether two transforms come to the same: natively, and by the same objects in Python."""
    if one.recipe != other.recipe or one.handed != other.handed or one.steps != other.steps:
        return False
    return len(one.rest) == len(other.rest) and all(
        a is b for a, b in zip(one.rest, other.rest, strict=True)
    )


def _may_fit(view: View, memory: int) -> bool:
    """Whether enough images may fit in memory decoded, as far as that can be told unread."""
    return bool(view.native.total_bytes * _LEAST_GROWTH <= memory)


class Finish:
    """What is left to do for images of the engine's, sample by sample; can be pickled."""

    def __init__(self, view: View, preparation: Preparation) -> None:
        recipe = preparation.recipe
        assert recipe is not None
        self._view = view
        self._rest: list[Callable[[Any], Any]] = preparation.translation.rest
        self._handed = preparation.translation.handed
        self._shape = recipe.shape
        self._dtype: torch.dtype = getattr(torch, recipe.dtype)
        self._rows_of_pixels = recipe.order == "hwc"

    @property
    def is_tensor(self) -> bool:
        """Whether the engine's tensors are the samples: no Python step comes after."""
        return self._handed == "tensor" and not self._rest

    def pack(self, images: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """A batch as bytes end to end, and the length of each sample."""
        block = images.permute(0, 2, 3, 1) if self._rows_of_pixels else images
        flat = block.reshape(-1).view(torch.uint8)
        count = len(images)
        return flat, [flat.numel() // count] * count if count else []

    def item(self, raw: torch.Tensor, label: int, index: int) -> Any:
        """One sample as the user sees it, from its bytes."""
        image: Any = self._unpack(raw)
        for step in self._rest:
            image = step(image)
        return image, self._view.label_of(label, index)

    def _unpack(self, raw: torch.Tensor) -> Any:
        channels, height, width = self._shape
        values = raw.view(self._dtype)
        if not self._rows_of_pixels:
            return values.reshape(channels, height, width)
        rows = values.reshape(height, width, channels)
        if self._handed == "tensor":
            return rows.permute(2, 0, 1)
        # Of its own memory: PIL images may be kept and drawn on.
        return Image.fromarray(rows[..., 0].numpy() if channels == 1 else rows.numpy()).copy()
