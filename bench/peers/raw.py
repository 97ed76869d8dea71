"""Raw bytes without decoding: DALI's file reader, and FFCV's own file with bytes in it.

Both are given their best chance: DALI with and without mmap, FFCV with a full shuffle from the
page cache and with its own reader, whose shuffle is coarser and reads pages of 8 MB.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peers import converted

BATCH = 256
SUFFIX = "-ffcv-raw"
BETON = "bytes.beton"


class Dali:
    """DALI's file reader, shuffled within a buffer of 1,000."""

    def __init__(self, root: Path, threads: int, mapped: bool) -> None:
        from nvidia.dali import fn, pipeline_def

        @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, seed=1)
        def pipeline() -> Any:
            data, labels = fn.readers.file(
                file_root=str(root),
                file_filters=["*"],
                random_shuffle=True,
                initial_fill=1000,
                dont_use_mmap=not mapped,
                prefetch_queue_depth=2,
                name="files",
            )
            return data, labels

        self.pipeline = pipeline()
        self.pipeline.build()
        self.size = self.pipeline.epoch_size("files")

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        for start in range(0, self.size, BATCH):
            data, labels = self.pipeline.run()
            # The reader goes on into its next epoch: what is more than this one is left out.
            taken = min(BATCH, self.size - start)
            # The reader's own buffers: views of them, valid until the next run.
            yield [torch.from_dlpack(data[i]) for i in range(taken)], [labels] * taken


def write_ffcv(samples: list[tuple[str, int]], target: Path) -> None:
    """FFCV's file with the bytes as they are."""
    from ffcv.fields import BytesField, IntField
    from ffcv.writer import DatasetWriter

    class Files:
        """The files as FFCV takes them."""

        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, index: int) -> tuple[Any, int, int]:
            path, label = samples[index]
            data = np.fromfile(path, np.uint8)
            return data, len(data), label

    target.mkdir()
    fields = {"data": BytesField(), "size": IntField(), "label": IntField()}
    DatasetWriter(str(target / BETON), fields, num_workers=2).from_indexed_dataset(Files())


converted.WRITERS["ffcv-raw"] = write_ffcv


def convert_ffcv(root: Path) -> Path:
    """FFCV's file of a directory, made once beside it."""
    target = root.with_name(root.name + SUFFIX)
    converted.make(root, target, "ffcv-raw")
    return target / BETON


class Ffcv:
    """Batches of FFCV: samples lie in rows that are as long as the longest."""

    def __init__(self, beton: Path, threads: int, mapped: bool) -> None:
        from ffcv.loader import Loader, OrderOption

        self.loader = Loader(
            str(beton),
            batch_size=BATCH,
            num_workers=threads,
            order=OrderOption.RANDOM if mapped else OrderOption.QUASI_RANDOM,
            os_cache=mapped,
            drop_last=False,
            seed=1,
        )

    def cool(self) -> None:
        """Lets go of the mapping's pages: the kernel drops none that a process has mapped."""
        mapping = getattr(getattr(self.loader.memory_manager, "context", None), "mmap", None)
        if mapping is not None:
            mapping._mmap.madvise(mmap.MADV_DONTNEED)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for data, sizes, labels in self.loader:
            rows = zip(data, sizes.flatten().tolist(), strict=True)
            yield [row[:size] for row, size in rows], labels
