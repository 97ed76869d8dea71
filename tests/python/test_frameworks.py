"""The examples of the frameworks, run for real on two processes: torch's order, and resume.

Each run writes the samples that every rank saw, by epoch. Stopped in mid-epoch and gone on
with, the two records end to end must be what DistributedSampler deals, and nothing else.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import forebay
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from data import image_folders
from launching import launch, torchrun
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAMPLES, WORLD, BATCH, SEED = 27, 2, 3, 11
STEPS = 5  # batches of a rank in an epoch: 14 samples, padding included

Seen = list[dict[int, list[int]]]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images enough for an epoch that neither ranks nor batches divide evenly."""
    return image_folders(tmp_path_factory.mktemp("images"), samples=SAMPLES)


class Example:
    """One of the scripts on the test's images, with a checkpoint of its own."""

    def __init__(self, name: str, images: Path, directory: Path) -> None:
        self.name = name
        self.images = images
        self.directory = directory

    def launcher(self) -> list[str]:
        """Lightning starts the other process itself, the other scripts leave it to torchrun."""
        if self.name == "lightning_fit":
            return [sys.executable]
        return torchrun(WORLD)

    def run(self, *options: str) -> Seen:
        """What each rank saw, by epoch."""
        record, log = self.directory / "seen.json", self.directory / "log"
        record.unlink(missing_ok=True)
        command = [
            *self.launcher(),
            str(EXAMPLES / f"{self.name}.py"),
            str(self.images),
            *("--batch-size", str(BATCH), "--seed", str(SEED)),
            *("--checkpoint", str(self.directory / "checkpoint"), "--seen", str(record)),
            *options,
        ]
        self.said = launch(command, log)
        return [
            {int(epoch): ids for epoch, ids in rank.items()}
            for rank in json.loads(record.read_text())
        ]


Deal = Callable[[int, int], list[int]]


def dealt(epoch: int, rank: int) -> list[int]:
    """What torch's own sampler deals."""
    sampler = DistributedSampler(range(SAMPLES), WORLD, rank, shuffle=True, seed=SEED)
    sampler.set_epoch(epoch)
    return list(sampler)


def dealt_in_batches(epoch: int, rank: int) -> list[int]:
    """What accelerate's own sampler deals of the same order."""
    sampler = DistributedSampler(range(SAMPLES), 1, 0, shuffle=True, seed=SEED)
    sampler.set_epoch(epoch)
    whole = BatchSampler(sampler, BATCH, drop_last=False)
    return [number for batch in BatchSamplerShard(whole, WORLD, rank) for number in batch]


def stopped(first: int, steps: int, deal: Deal = dealt) -> Seen:
    """What is seen from epoch `first` on, for so many steps."""
    whole, rest = divmod(steps, STEPS)
    epochs = {first + at: STEPS for at in range(whole)} | ({first + whole: rest} if rest else {})
    return [
        {epoch: deal(epoch, rank)[: taken * BATCH] for epoch, taken in epochs.items()}
        for rank in range(WORLD)
    ]


def resumed(first: int, steps: int, epochs: int, deal: Deal = dealt) -> Seen:
    """What is left of these epochs after so many steps."""
    whole, rest = divmod(steps, STEPS)
    now = first + whole
    skipped = {epoch: rest * BATCH if epoch == now else 0 for epoch in range(now, first + epochs)}
    return [
        {epoch: deal(epoch, rank)[skip:] for epoch, skip in skipped.items()}
        for rank in range(WORLD)
    ]


@pytest.mark.parametrize(
    ("name", "deal"), [("torchrun_gloo", dealt), ("accelerate_loop", dealt_in_batches)]
)
def test_a_loop_stopped_in_mid_epoch_goes_on_with_the_samples_left_for_each_rank(
    name, deal, images, tmp_path
):
    # Not from epoch 0: so the order shows that set_epoch was heeded.
    example = Example(name, images, tmp_path)
    epochs = ("--first-epoch", "4", "--epochs", "7")
    steps = STEPS + 2
    assert example.run(*epochs, "--stop-after", str(steps)) == stopped(4, steps, deal)
    assert example.run(*epochs, "--resume") == resumed(4, steps, epochs=3, deal=deal)


def test_lightning_goes_on_from_a_checkpoint_in_mid_epoch_and_from_one_at_its_end(images, tmp_path):
    example = Example("lightning_fit", images, tmp_path)
    # In mid-epoch; then at the end of one, where the next epoch begins with set_epoch alone.
    for steps in (STEPS + 2, STEPS):
        assert example.run("--stop-after", str(steps)) == stopped(0, steps)
        assert example.run("--resume") == resumed(0, steps, epochs=3)
        for complaint in ("not resumable", "gives up the position"):
            assert complaint not in example.said


# What the frameworks do to a loader, without them.


def planned(images: Path, workers: int) -> forebay.DataLoader:
    return forebay.DataLoader(
        forebay.FileFolder(images), BATCH, True, num_workers=workers, seed=SEED, return_index=True
    )


def seen_by(batches: Iterator[list[torch.Tensor]]) -> list[int]:
    return [number for batch in batches for number in batch[2].tolist()]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_that_nobody_asks_uses_up_no_epoch(images, workers):
    loader = planned(images, workers)
    iter(loader)
    assert loader.state_dict()["epoch"] == 0
    assert seen_by(iter(loader)) == loader.order(0).tolist()
    assert seen_by(iter(loader)) == loader.order(1).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_or_a_state_set_between_iter_and_the_first_batch_counts(images, workers):
    loader = planned(images, workers)
    iterator = iter(loader)
    loader.sampler.set_epoch(6)
    assert seen_by(itertools.islice(iterator, 4)) == loader.order(6).tolist()[: 4 * BATCH]
    state = loader.state_dict()
    resumed = planned(images, workers)
    iterator = iter(resumed)
    resumed.load_state_dict(state)
    assert seen_by(iterator) == loader.order(6).tolist()[4 * BATCH :]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_left_by_break_can_still_be_saved_and_gone_on_with(images, workers):
    loader = planned(images, workers)
    for step, _ in enumerate(loader):
        if step == 2:
            break
    resumed = planned(images, workers)
    resumed.load_state_dict(loader.state_dict())
    assert seen_by(iter(resumed)) == loader.order(0).tolist()[3 * BATCH :]
    assert seen_by(iter(loader)) == loader.order(1).tolist()
