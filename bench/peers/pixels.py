"""The work that every contender does, in torchvision's words."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

BATCH = 256
SIDE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
# The same for values from 0 to 255.
MEAN_255 = tuple(255 * value for value in MEAN)
STD_255 = tuple(255 * value for value in STD)


def transform() -> Any:
    """For PIL images."""
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(SIDE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def tensor_transform() -> Any:
    """For uint8 tensors: v2 works on bytes as long as it can."""
    import torch
    from torchvision.transforms import v2

    return v2.Compose(
        [
            v2.RandomResizedCrop(SIDE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )


class FromBytes:
    """A JPEG's bytes to a finished tensor by Pillow, as ImageFolder does with files."""

    def __init__(self) -> None:
        self.transform = transform()

    def __call__(self, encoded: bytes) -> Any:
        from PIL import Image

        return self.transform(Image.open(io.BytesIO(encoded)).convert("RGB"))


class FromFile:
    """A file to a finished tensor by torchvision's own decoder, which lets go of the GIL."""

    def __init__(self) -> None:
        self.transform = tensor_transform()

    def __call__(self, sample: tuple[str, int]) -> tuple[Any, int]:
        from torchvision import io as images

        path, label = sample
        pixels = images.decode_jpeg(images.read_file(path), mode=images.ImageReadMode.RGB)
        return self.transform(pixels), label


class FromFileAsArray(FromFile):
    """The same as a numpy array."""

    def __call__(self, sample: tuple[str, int]) -> tuple[Any, Any]:
        pixels, label = super().__call__(sample)
        return pixels.numpy(), np.int64(label)
