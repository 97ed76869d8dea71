"""Contenders with a form of their own, made once beside the images.

It is made under another name and renamed when whole: an interrupted run leaves nothing that
looks finished. The order in it is shuffled, as its makers advise.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from loaders import files

from peers.folders import torch_workers
from peers.pixels import BATCH, MEAN_255, SIDE, STD_255, FromBytes

SUFFIXES = {
    "webdataset": "-tar",  # the same as in loaders.py
    "mosaicml-streaming": "-mds",
    "litdata": "-litdata",
    "ffcv": "-ffcv",
}
BETON = "images.beton"
CHUNK = 64 << 20


def make(root: Path, target: Path, loader: str) -> None:
    """Writes the loader's form of the images to `target`, if it is not there."""
    mark = target / ".whole"
    if mark.exists():
        return
    print(f"{loader}: making {target} once", file=sys.stderr)
    part = target.with_name(target.name + ".part")
    for old in (target, part):
        shutil.rmtree(old, ignore_errors=True)
    samples = files(root)
    order = np.random.default_rng(1).permutation(len(samples))
    WRITERS[loader]([samples[index] for index in order], part)
    (part / mark.name).touch()
    part.rename(target)


def write_tar(samples: list[tuple[str, int]], target: Path) -> None:
    """Shards of 1,000 samples; the label is in the name."""
    target.mkdir()
    for start in range(0, len(samples), 1000):
        with tarfile.open(target / f"{start // 1000:04d}.tar", "w") as tar:
            for index, (path, label) in enumerate(samples[start : start + 1000], start):
                tar.add(path, f"{index:08d}.{label}.jpg")


class FromTar:
    """A sample of a shard as (tensor, label)."""

    def __init__(self) -> None:
        self.load = FromBytes()

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, int]:
        [name] = [key for key in sample if not key.startswith("__")]
        return self.load(sample[name]), int(name.split(".")[0])


def webdataset_loader(root: Path, contender: Any) -> Any:
    """Shards shuffled, and samples within a buffer of 1,000; batches are made in the workers."""
    import webdataset
    from torch.utils.data import default_collate

    shards = root.with_name(root.name + SUFFIXES["webdataset"])
    urls = [str(path) for path in sorted(shards.glob("*.tar"))]
    dataset = webdataset.WebDataset(urls, shardshuffle=100, empty_check=False).shuffle(1000)
    dataset = dataset.map(FromTar()).batched(BATCH, collation_fn=default_collate)
    # One shard cannot keep two workers busy.
    workers = min(contender.workers, len(urls))
    return lambda: webdataset.WebLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=True
    )


def write_mds(samples: list[tuple[str, int]], target: Path) -> None:
    """MosaicML's shards of 64 MB."""
    from streaming import MDSWriter

    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(columns=columns, out=str(target), size_limit=CHUNK) as writer:
        for path, label in samples:
            writer.write({"image": Path(path).read_bytes(), "label": label})


def mosaicml_loader(root: Path, contender: Any) -> Any:
    """A StreamingDataset of local shards in torch's workers."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    class Images(StreamingDataset):  # type: ignore[misc]
        """Decodes and augments what the shards hold."""

        load = FromBytes()

        def __getitem__(self, index: int) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return self.load(sample["image"]), sample["label"]

    clean_stale_shared_memory()
    shards = root.with_name(root.name + SUFFIXES["mosaicml-streaming"])
    dataset = Images(local=str(shards), shuffle=True, batch_size=BATCH)
    return lambda: torch_workers(dataset, contender.workers)


def litdata_sample(sample: tuple[str, int]) -> dict[str, Any]:
    """What litdata keeps of a sample."""
    path, label = sample
    return {"image": Path(path).read_bytes(), "label": label}


def write_litdata(samples: list[tuple[str, int]], target: Path) -> None:
    """litdata's chunks of 64 MB."""
    import litdata

    litdata.optimize(
        litdata_sample, samples, str(target), chunk_bytes=CHUNK, num_workers=2, verbose=False
    )


def litdata_loader(root: Path, contender: Any) -> Any:
    """litdata's own dataset and loader."""
    import litdata

    class Images(litdata.StreamingDataset):  # type: ignore[misc]
        """Decodes and augments what the chunks hold."""

        load = FromBytes()

        def __getitem__(self, index: Any) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return self.load(sample["image"]), sample["label"]

    chunks = root.with_name(root.name + SUFFIXES["litdata"])
    dataset = Images(str(chunks), shuffle=True, drop_last=False)
    return lambda: litdata.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=contender.workers, persistent_workers=True
    )


def write_ffcv(samples: list[tuple[str, int]], target: Path) -> None:
    """FFCV's file, JPEG inside, of the same quality."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    class Images:
        """The images as FFCV takes them: decoded."""

        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            path, label = samples[index]
            return Image.open(path).convert("RGB"), label

    target.mkdir()
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    DatasetWriter(str(target / BETON), fields, num_workers=2).from_indexed_dataset(Images())


def ffcv_loader(root: Path, contender: Any) -> Any:
    """FFCV's compiled pipeline, fully shuffled, the file in the page cache."""
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import (
        NormalizeImage,
        RandomHorizontalFlip,
        Squeeze,
        ToTensor,
        ToTorchImage,
    )

    pipeline = [
        RandomResizedCropRGBImageDecoder((SIDE, SIDE)),
        RandomHorizontalFlip(),
        NormalizeImage(np.array(MEAN_255), np.array(STD_255), np.float32),
        ToTensor(),
        ToTorchImage(convert_back_int16=False),
    ]
    return lambda: Loader(
        str(root.with_name(root.name + SUFFIXES["ffcv"]) / BETON),
        batch_size=BATCH,
        num_workers=contender.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        seed=1,
        pipelines={"image": pipeline, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )


WRITERS: dict[str, Callable[[list[tuple[str, int]], Path], None]] = {
    "webdataset": write_tar,
    "mosaicml-streaming": write_mds,
    "litdata": write_litdata,
    "ffcv": write_ffcv,
}
