"""Contenders that read class folders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders import files

from peers.pixels import (
    BATCH,
    MEAN_255,
    SIDE,
    STD_255,
    FromFile,
    FromFileAsArray,
    transform,
)


def forebay_loader(root: Path, contender: Any) -> Any:
    """Ours, from torchvision's own transform objects."""
    import forebay

    dataset = forebay.ImageFolder(root, transform=transform())
    return lambda: forebay.DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        num_workers=contender.workers,
        seed=1,
        **contender.options,
    )


def torch_workers(dataset: Any, workers: int, **options: Any) -> Any:
    """torch's DataLoader; its workers live on between epochs."""
    from torch.utils.data import DataLoader

    return DataLoader(
        dataset, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0, **options
    )


def torch_loader(root: Path, contender: Any) -> Any:
    """torch and torchvision as in most training scripts: Pillow in worker processes."""
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(root), transform())
    return lambda: torch_workers(dataset, contender.workers, shuffle=True)


class TensorFiles:
    """A map-style dataset by torchvision's own JPEG decoder."""

    def __init__(self, root: Path) -> None:
        self.samples = files(root)
        self.load = FromFile()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.load(self.samples[index])


def torchvision_io_loader(root: Path, contender: Any) -> Any:
    """The quickest that torch and torchvision have by themselves: no PIL image in between."""
    dataset = TensorFiles(root)
    return lambda: torch_workers(dataset, contender.workers, shuffle=True)


class Dali:
    """DALI on the CPU: decodes only the crop's part; shuffled within a buffer of 1,000."""

    def __init__(self, root: Path, threads: int) -> None:
        from nvidia.dali import fn, pipeline_def, types

        @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, seed=1)
        def pipeline() -> Any:
            data, labels = fn.readers.file(
                file_root=str(root), random_shuffle=True, initial_fill=1000, name="files"
            )
            crops = fn.decoders.image_random_crop(
                data,
                output_type=types.RGB,
                random_area=[0.08, 1],
                random_aspect_ratio=[3 / 4, 4 / 3],
            )
            crops = fn.resize(crops, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR)
            images = fn.crop_mirror_normalize(
                crops,
                dtype=types.FLOAT,
                output_layout="CHW",
                mean=list(MEAN_255),
                std=list(STD_255),
                mirror=fn.random.coin_flip(),
            )
            return images, labels

        self.pipeline = pipeline()
        self.pipeline.build()
        self.batches = -(-self.pipeline.epoch_size("files") // BATCH)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        for _ in range(self.batches):
            images, labels = self.pipeline.run()
            # The pipeline's own buffer: a view of it, valid until the next run.
            yield torch.from_dlpack(images.as_tensor()), labels


def dali_loader(root: Path, contender: Any) -> Any:
    """See `Dali`."""
    return lambda: Dali(root, contender.workers)


class Grain:
    """One iterator for all epochs: its worker processes are started once.

    Batches are made in the workers. One thread in each: more wait for each other's GIL.
    """

    def __init__(self, root: Path, workers: int, epochs: int) -> None:
        import grain

        dataset = grain.MapDataset.source(files(root)).seed(1).shuffle().map(FromFileAsArray())
        dataset = dataset.batch(BATCH)
        self.batches = len(dataset)
        dataset = dataset.repeat(epochs).to_iter_dataset(
            grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
        )
        self.iterator = iter(dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        for _ in range(self.batches):
            images, labels = next(self.iterator)
            yield torch.from_numpy(images), labels


def start_grain() -> None:
    """Grain's worker processes are started by absl, which wants its flags parsed before."""
    from absl import flags

    flags.FLAGS(["prepared"])


def grain_loader(root: Path, contender: Any) -> Any:
    """See `Grain`."""
    start_grain()
    return lambda: Grain(root, contender.workers, contender.epochs)


class Spdl:
    """A pipeline of threads in this process.

    torchvision decodes: it lets go of the GIL as SPDL's own decoder does, which is FFmpeg's
    and takes nearly twice the CPU for a JPEG.
    """

    def __init__(self, root: Path, threads: int) -> None:
        self.samples = files(root)
        self.threads = threads
        self.load = FromFile()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        from spdl.pipeline import PipelineBuilder
        from torch.utils.data import default_collate

        random.shuffle(self.samples)
        builder = PipelineBuilder().add_source(self.samples)
        builder = builder.pipe(self.load, concurrency=self.threads).aggregate(BATCH)
        builder = builder.pipe(default_collate).add_sink(2)
        pipeline = builder.build(num_threads=self.threads)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()


def spdl_loader(root: Path, contender: Any) -> Any:
    """See `Spdl`."""
    return lambda: Spdl(root, contender.workers)
