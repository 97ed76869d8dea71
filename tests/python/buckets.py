"""Datasets in a bucket, and what the same files give from a disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
from servers import storage_options


def objects_of(root: Path, prefix: str = "train") -> dict[str, bytes | Path]:
    """The files of a folder as objects of a bucket."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {f"{prefix}/{path.relative_to(root).as_posix()}": path for path in files}


def in_bucket(name: str, endpoint: str, **more: Any) -> forebay.FileFolder:
    """Class folders in a bucket, read by way of ``endpoint``."""
    options = storage_options(endpoint)
    return forebay.FileFolder(f"s3://{name}/train", storage_options=options, **more)


def load(dataset: Any, batch_size: int = 4, **more: Any) -> forebay.DataLoader:
    """A shuffled loader that tells its samples' numbers."""
    options = {"shuffle": True, "seed": 5, "num_workers": 2, "return_index": True, **more}
    return forebay.DataLoader(dataset, batch_size, **options)


def batches(loader: forebay.DataLoader) -> Iterator[list[tuple[int, int, bytes]]]:
    """Number, label and bytes of the samples, batch by batch."""
    for samples, labels, ids in loader:
        data = (sample.numpy().tobytes() for sample in samples)
        yield list(zip(ids.tolist(), labels.tolist(), data, strict=True))
