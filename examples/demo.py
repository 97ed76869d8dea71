"""Train a small network with torch's loader and with forebay's: same order, same result.

    make demo

Makes a small dataset of JPEGs in class folders (once, in .data/demo), trains on it with
either loader from the same seed, then reads the bare files with either. The table on stdout
says how fast that was, and whether both saw the same samples in the same order.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forebay
import torch
import torch.utils.data
from torch import nn
from torchvision import datasets, transforms

REPOSITORY = Path(__file__).resolve().parents[1]
# The pictures are those of the benchmarks.
sys.path.insert(0, str(REPOSITORY / "bench"))

import images  # noqa: E402
from report import DATA, Progress, table  # noqa: E402

SETTINGS = images.Settings(
    count=1500, classes=10, width=112, height=84, paintings=2, kilobytes=None
)
SEED = 1
EPOCHS = 3
RAW_EPOCHS = 5
BATCH = 50
WORKERS = 2

# The crop says how large the images are, which lets all of it run in the engine's threads.
as_tensor = transforms.Compose(
    [
        transforms.CenterCrop((SETTINGS.height, SETTINGS.width)),
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.25] * 3),
    ]
)


class WithIndex(torch.utils.data.Dataset[Any]):
    """A dataset whose samples carry their number: torch's loader does not tell it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return (*self.dataset[index], index)


def read(path: str) -> bytes:
    """A whole file."""
    return Path(path).read_bytes()


def as_lists(samples: list[tuple[bytes, int, int]]) -> tuple[list[bytes], torch.Tensor, Any]:
    """Files differ in size, so a batch is a list. As bytes: tensors cost torch far more."""
    data, labels, ids = zip(*samples, strict=True)
    return list(data), torch.tensor(labels), torch.tensor(ids)


def torch_loader(dataset: Any, **options: Any) -> Iterable[Any]:
    """torch's loader, its workers kept from epoch to epoch."""
    return torch.utils.data.DataLoader(
        WithIndex(dataset),
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(SEED),
        **options,
    )


def forebay_loader(dataset: forebay.Dataset) -> forebay.DataLoader:
    """The same arguments: this is all there is to change."""
    return forebay.DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(SEED),
        return_index=True,
    )


@dataclass
class Run:
    """What came of some epochs with one loader."""

    name: str
    seen: list[list[int]] = field(default_factory=list)
    seconds: float = 0.0
    waited: float = 0.0
    from_memory: float | None = None
    loss: float = 0.0
    accuracy: float = 0.0

    def rate(self) -> str:
        """Samples per second."""
        return f"{sum(map(len, self.seen)) / self.seconds:,.0f}"

    def waiting(self) -> str:
        """Share of the time that went by in the loader."""
        return f"{self.waited / self.seconds:.1%}"

    def learnt(self) -> str:
        """The loss, to a digit that would show another order."""
        return f"{self.loss:.4f}"

    def memory(self) -> str:
        """Share of samples that needed no read."""
        return "-" if self.from_memory is None else f"{self.from_memory:.0%}"


def watched(run: Run, loader: Iterable[Any], epochs: int) -> Iterator[Any]:
    """The batches of one epoch; takes the time and writes down the samples."""
    seen: list[int] = []
    run.seen.append(seen)
    progress = Progress(f"{run.name}, epoch {len(run.seen)} of {epochs}", SETTINGS.count)
    started = time.perf_counter()
    batches = iter(loader)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        run.waited += time.perf_counter() - asked
        if batch is None:
            break
        seen += batch[2].tolist()
        yield batch
        progress.step(len(batch[2]))
    run.seconds += time.perf_counter() - started
    progress.close()
    if isinstance(loader, forebay.DataLoader):
        stats = loader.stats()
        run.from_memory = 1 - stats["origin_reads"] / stats["samples"]


def network() -> nn.Module:
    """A small convolutional network, the same weights every time."""
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 96), (96, 96)):
        convolution = nn.Conv2d(before, after, 3, stride=2, padding=1)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, SETTINGS.classes)
    )


def train(run: Run, loader: Iterable[Any]) -> Iterator[None]:
    """Training, an epoch a step; loss and accuracy are the last epoch's."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        losses: list[float] = []
        right = 0
        for pictures, labels, _ in watched(run, loader, EPOCHS):
            logits = model(pictures)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            right += int((logits.argmax(1) == labels).sum())
        run.loss, run.accuracy = sum(losses) / len(losses), right / SETTINGS.count
        yield


def read_files(run: Run, loader: Iterable[Any]) -> Iterator[None]:
    """Bare files as tensors, each looked at, an epoch a step."""
    # torch says so of bytes; nobody writes to them here.
    warnings.filterwarnings("ignore", "The given buffer is not writable")
    for _ in range(RAW_EPOCHS):
        for files, _, _ in watched(run, loader, RAW_EPOCHS):
            for data in files:
                tensor = torch.frombuffer(data, dtype=torch.uint8) if type(data) is bytes else data
                assert tensor[0] == 0xFF, "a JPEG begins with this byte"
        yield


def in_turns(job: Callable[..., Iterator[None]], torchs: Any, ours: Any) -> list[Run]:
    """A job with both loaders, epoch by epoch in turns: what else the machine does hits both."""
    runs = [Run("torch"), Run("forebay")]
    for _ in zip(job(runs[0], torchs), job(runs[1], ours), strict=True):
        pass
    return runs


def compared(torchs: Run, ours: Run) -> str:
    """Whether two runs saw the same samples in the same order, in words."""
    same = torchs.seen == ours.seen
    what = f"{sum(map(len, ours.seen)):,} sample numbers of {len(ours.seen)} epochs compared"
    return f"{'same indices in the same order' if same else 'THE INDICES DIFFER'} ({what})"


def training(root: Path) -> bool:
    """Trains with both loaders and prints the table; whether both saw the same."""
    runs = in_turns(
        train,
        torch_loader(datasets.ImageFolder(root, as_tensor)),
        forebay_loader(forebay.ImageFolder(root, as_tensor)),
    )
    header = ["training", "samples/s", "waiting for data", "memory hits", "loss", "accuracy"]
    rows = [
        [run.name, run.rate(), run.waiting(), run.memory(), run.learnt(), f"{run.accuracy:.1%}"]
        for run in runs
    ]
    print(f"\n{table(header, rows)}\n{compared(*runs)}\n", flush=True)
    return runs[0].seen == runs[1].seen


def bare_files(root: Path) -> bool:
    """The same for loading alone."""
    folder = datasets.DatasetFolder(root, read, extensions=(".jpg",))
    runs = in_turns(
        read_files,
        torch_loader(folder, collate_fn=as_lists),
        forebay_loader(forebay.FileFolder(root)),
    )
    rows = [[run.name, run.rate(), run.memory()] for run in runs]
    print(f"\n{table(['bare files', 'samples/s', 'memory hits'], rows)}\n{compared(*runs)}")
    print(
        f"\n{SETTINGS.count:,} JPEGs of {SETTINGS.width}x{SETTINGS.height}, batches of {BATCH}; "
        f"{WORKERS} worker processes (torch), {WORKERS} threads (forebay).\n"
        "Training decodes and normalises them; its speed is the network's. Bare files are loading\n"
        "alone."
    )
    return runs[0].seen == runs[1].seen


def only_here(action: Callable[[], None]) -> None:
    """Ctrl-C reaches worker processes too; this one alone answers it, and ends them."""
    process = os.getpid()

    def interrupt(*_: Any) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        action()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """The images, then both parts of the table; fails if the indices differ."""
    # One core for the network, the others for the loaders: sharing them slows all of it.
    torch.set_num_threads(1)
    root = images.make(SETTINGS, DATA / "demo")
    if not all([training(root), bare_files(root)]):
        sys.exit("the loaders saw different samples")


if __name__ == "__main__":
    only_here(main)
