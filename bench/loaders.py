"""The contenders of `raw.py`: each yields batches of (samples, labels) from class folders.

Samples reach the consumer as a list of uint8 tensors, or joined: one tensor with all of them
end to end, and where each ends. torch's workers hand a list over in one of two ways, each
tensor in a shared-memory file of its own ("list") or pickled through a pipe ("bytes", made
tensors by the consumer). The readers do what a careful user would: no copy in Python, four
system calls a file.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 256


@dataclass(frozen=True)
class Contender:
    """A loader and its settings."""

    name: str
    loader: str
    workers: int = 0
    form: str = "list"
    epochs: int = 4
    # Forebay's: for all samples, unless it says otherwise.
    memory: str = "2GiB"

    def missing(self) -> bool:
        """Whether the package it needs is not installed."""
        packages = {"dali": "nvidia.dali"}
        package = packages.get(self.loader, self.loader)
        try:
            return importlib.util.find_spec(package) is None
        except ModuleNotFoundError:
            return True


FOREBAY = Contender("forebay, 2 threads", "forebay", 2)
FOREBAYS = [FOREBAY, Contender("the same, memory for a twentieth", "forebay", 2, memory="64MiB")]
TORCH = [
    Contender(f"torch, {workers} workers, {form}", "torch", workers, form)
    for workers, form in [
        (0, "list"),
        (0, "joined"),
        (1, "joined"),
        (2, "joined"),
        (4, "joined"),
        (2, "bytes"),
    ]
    # A file for each tensor is some ten times slower: two epochs show that too.
] + [Contender("torch, 2 workers, list", "torch", 2, "list", epochs=2)]
OTHERS = {
    "webdataset": Contender("webdataset, 2 workers, tar shards", "webdataset", 2),
    "dali": Contender("DALI, 2 threads, file reader", "dali", 2),
}


def files(root: Path) -> list[tuple[str, int]]:
    """Paths and labels in ImageFolder's order."""
    classes = sorted(folder for folder in root.iterdir() if folder.is_dir())
    return [
        (str(path), label)
        for label, folder in enumerate(classes)
        for path in sorted(folder.iterdir())
    ]


def read(path: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A whole file, straight into memory of its size."""
    handle = os.open(path, os.O_RDONLY)
    try:
        data = np.empty(os.fstat(handle).st_size, np.uint8)
        os.readv(handle, [data])
        return data
    finally:
        os.close(handle)


class RawFiles:
    """A map-style dataset: (uint8 tensor, label)."""

    def __init__(self, root: Path) -> None:
        self.samples = files(root)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        path, label = self.samples[index]
        return torch.from_numpy(read(path)), label


class RawBytes(RawFiles):
    """The same as (bytes, label)."""

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        path, label = self.samples[index]
        handle = os.open(path, os.O_RDONLY)
        try:
            return os.read(handle, os.fstat(handle).st_size), label
        finally:
            os.close(handle)


class Tensors:
    """A loader of bytes whose consumer makes them tensors, without a copy."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        for samples, labels in self.loader:
            yield [torch.frombuffer(data, dtype=torch.uint8) for data in samples], labels


def as_list(samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
    """A list, as it is."""
    import torch

    return [data for data, _ in samples], torch.tensor([label for _, label in samples])


def joined(samples: list[tuple[Any, int]]) -> tuple[Any, Any, Any]:
    """One tensor and the samples' ends in it: one copy more, 255 files fewer.

    In a worker the join goes straight into shared memory, as torch's own collate does.
    """
    import torch
    from torch.utils.data import get_worker_info

    ends = torch.tensor([len(data) for data, _ in samples]).cumsum(0)
    labels = torch.tensor([label for _, label in samples])
    out = None
    if get_worker_info() is not None:
        size = int(ends[-1])
        storage = samples[0][0]._typed_storage()._new_shared(size, device="cpu")
        out = samples[0][0].new(storage).resize_(size)
    return torch.cat([data for data, _ in samples], out=out), ends, labels


def torch_loader(root: Path, contender: Contender) -> Any:
    """torch's DataLoader; its workers live on between epochs."""
    from torch.utils.data import DataLoader

    dataset = RawBytes(root) if contender.form == "bytes" else RawFiles(root)

    def make() -> Any:
        loader = DataLoader(
            dataset,
            batch_size=BATCH,
            shuffle=True,
            num_workers=contender.workers,
            persistent_workers=contender.workers > 0,
            collate_fn=joined if contender.form == "joined" else as_list,
        )
        return Tensors(loader) if contender.form == "bytes" else loader

    return make


def forebay_loader(root: Path, contender: Contender) -> Any:
    """Ours; with memory for all samples later epochs come from there."""
    import forebay

    dataset = forebay.FileFolder(root)
    return lambda: forebay.DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        num_workers=contender.workers,
        seed=1,
        memory=contender.memory,
    )


def webdataset_loader(root: Path, contender: Contender) -> Any:
    """Tar shards of 1,000 samples, shuffled within a buffer of 1,000."""
    import tarfile

    import torch
    import webdataset

    shards = root.with_name(root.name + "-tar")
    samples = files(root)
    if not (shards / ".whole").exists():
        shards.mkdir(exist_ok=True)
        order = np.random.default_rng(1).permutation(len(samples))
        for start in range(0, len(samples), 1000):
            with tarfile.open(shards / f"{start // 1000:04d}.tar", "w") as tar:
                for index in order[start : start + 1000]:
                    path, label = samples[index]
                    tar.add(path, f"{index:08d}.{label}.jpg")
        (shards / ".whole").touch()

    def collate(batch: list[dict[str, Any]]) -> tuple[list[bytes], Any]:
        names = [next(key for key in sample if not key.startswith("__")) for sample in batch]
        data = [sample[name] for sample, name in zip(batch, names, strict=True)]
        return data, torch.tensor([int(name.split(".")[0]) for name in names])

    urls = [str(path) for path in sorted(shards.glob("*.tar"))]

    def make() -> Any:
        dataset = webdataset.WebDataset(urls, shardshuffle=100).shuffle(1000)
        dataset = dataset.batched(BATCH, collation_fn=collate)
        workers = contender.workers
        return Tensors(
            webdataset.WebLoader(
                dataset, batch_size=None, num_workers=workers, persistent_workers=True
            )
        )

    return make


class Dali:
    """DALI's file reader on the CPU, shuffled within a buffer of 1,000."""

    def __init__(self, root: Path, threads: int) -> None:
        from nvidia.dali import fn, pipeline_def

        @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None)
        def pipeline() -> Any:
            data, labels = fn.readers.file(
                file_root=str(root), random_shuffle=True, initial_fill=1000, name="files"
            )
            return data, labels

        self.pipeline = pipeline()
        self.pipeline.build()
        self.batches = -(-self.pipeline.epoch_size("files") // BATCH)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        import torch

        for _ in range(self.batches):
            data, labels = self.pipeline.run()
            # The reader's own buffers: views of them, valid until the next run.
            yield [torch.from_dlpack(data[i]) for i in range(len(data))], labels


def dali_loader(root: Path, contender: Contender) -> Any:
    """See `Dali`."""
    return lambda: Dali(root, contender.workers)


def loader(root: Path, contender: Contender) -> Any:
    """A function that makes the contender's loader; its dataset is made (listed) already."""
    makers = {
        "forebay": forebay_loader,
        "torch": torch_loader,
        "webdataset": webdataset_loader,
        "dali": dali_loader,
    }
    return makers[contender.loader](root, contender)
