"""The contenders of `prepared.py`: each yields batches of (images, labels), ready for training.

All do the same work: decode a JPEG, RandomResizedCrop(224), flip, normalise to float32, in
shuffled batches of 256. The decoders differ: forebay, DALI and FFCV have their own; grain, spdl
and one of torch's use torchvision.io; the other torch's, webdataset, mosaicml-streaming and
litdata use Pillow, as their documentation does, and would gain from torchvision.io as torch does.

- `folders`: those that read class folders: forebay, torch, DALI, grain, spdl
- `converted`: those with a form of their own, made once beside the images: webdataset,
  mosaicml-streaming, litdata, FFCV
- `pixels`: the transforms that several of them share
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import converted, folders

Make = Callable[[], Iterable[tuple[Any, Any]]]
GIB = 1 << 30


@dataclass(frozen=True)
class Contender:
    """A loader and its settings.

    `photos`: reads the large photos. `fills` bytes are its own to fill in the first epoch.
    """

    name: str
    loader: str
    workers: int = 2
    epochs: int = 2
    photos: bool = False
    fills: int = 2 * GIB
    options: dict[str, Any] = field(default_factory=dict)

    def missing(self) -> str:
        """What it needs and has not; empty if nothing."""
        package = PACKAGES.get(self.loader, self.loader)
        try:
            found = importlib.util.find_spec(package) is not None
        except ModuleNotFoundError:
            found = False
        return "" if found else f"{package} is not installed"


# Packages that are not called as the loader is here.
PACKAGES = {
    "torchvision.io": "torchvision",
    "dali": "nvidia.dali",
    "mosaicml-streaming": "streaming",
}
EXACT = Contender("forebay exact, 2 threads", "forebay")
FAST = Contender("forebay fast, 2 threads", "forebay", options={"decode": "fast"})
DECODED = Contender(
    "forebay exact, decoded in memory",
    "forebay",
    epochs=3,
    fills=9 * GIB,
    options={"cache_form": "decoded", "memory": "8GiB"},
)
PHOTOS_EXACT = Contender("forebay exact, 2000x1500", "forebay", photos=True, epochs=3)
PHOTOS_FAST = Contender(
    "forebay fast, 2000x1500", "forebay", photos=True, epochs=3, options={"decode": "fast"}
)
TORCH = [Contender(f"torch + ImageFolder, {n} workers", "torch", n) for n in (1, 2, 4)]
OTHERS = [
    Contender("torch + torchvision.io + v2, 2 workers", "torchvision.io"),
    Contender("DALI (CPU), 2 threads", "dali"),
    Contender("FFCV (own format), 2 threads", "ffcv"),
    Contender("webdataset (tar), 2 workers", "webdataset"),
    Contender("mosaicml-streaming (MDS), 2 workers", "mosaicml-streaming"),
    Contender("litdata, 2 workers", "litdata"),
    Contender("grain, 2 workers", "grain"),
    Contender("spdl, 2 threads", "spdl"),
]
CONTENDERS = [EXACT, FAST, DECODED, PHOTOS_EXACT, PHOTOS_FAST, *TORCH, *OTHERS]
MAKERS: dict[str, Callable[..., Make]] = {
    "forebay": folders.forebay_loader,
    "torch": folders.torch_loader,
    "torchvision.io": folders.torchvision_io_loader,
    "dali": folders.dali_loader,
    "grain": folders.grain_loader,
    "spdl": folders.spdl_loader,
    "ffcv": converted.ffcv_loader,
    "webdataset": converted.webdataset_loader,
    "mosaicml-streaming": converted.mosaicml_loader,
    "litdata": converted.litdata_loader,
}


def maker(root: Path, contender: Contender) -> Make:
    """A function that makes the contender's loader; its dataset is listed already."""
    return MAKERS[contender.loader](root, contender)


def data(root: Path, contender: Contender) -> Path:
    """The directory that the contender reads."""
    suffix = converted.SUFFIXES.get(contender.loader)
    return root if suffix is None else root.with_name(root.name + suffix)


def convert(root: Path, contender: Contender) -> None:
    """Makes the contender's own form of the images, if it has one and it is not there yet."""
    target = data(root, contender)
    if target != root:
        converted.make(root, target, contender.loader)
