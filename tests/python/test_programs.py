"""Programs written for torch's loader, with one import changed: the same samples and losses.

Each program is run as it stands, then with `forebay.DataLoader` in place of torch's, once over
torchvision's dataset and once over ours. What every rank notes must be the same to the end.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import launch, torchrun
from PIL import Image

PROGRAMS = Path(__file__).parent / "programs"
SAMPLES = 31  # neither ranks nor batches divide them evenly

LOADER = ("from torch.utils.data import DataLoader", "from forebay import DataLoader")
DATASET = ("from torchvision.datasets import ImageFolder", "from forebay import ImageFolder")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that no transform needs to resize, so that pixels are equal to the last bit."""
    root = tmp_path_factory.mktemp("images")
    for number in range(SAMPLES):
        folder = root / f"class{number % 3}"
        folder.mkdir(exist_ok=True)
        pixels = random.Random(number).randbytes(8 * 8 * 3)
        Image.frombytes("RGB", (8, 8), pixels).save(folder / f"{number:03}.png")
    return root


class Program:
    """One of the programs, on so many ranks."""

    def __init__(self, name: str, ranks: int, style: str, images: Path, directory: Path) -> None:
        self.source = (PROGRAMS / f"{name}_program.py").read_text()
        self.starts_ranks = name in ("lightning", "fabric", "ray", "timm")
        self.ranks = ranks
        self.style = style
        self.images = images
        self.directory = directory

    def run(self, *changes: tuple[str, str]) -> list[Any]:
        """What each rank noted, with these imports changed."""
        source = self.source
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        place = self.directory / f"with{len(changes)}"
        place.mkdir()
        script = place / "program.py"
        script.write_text(source)
        starter = [sys.executable] if self.starts_ranks else torchrun(self.ranks)
        ranks = ["--ranks", str(self.ranks), "--style", self.style]
        command = [*starter, str(script), str(self.images), str(place), *ranks]
        launch(command, place / "log", PYTHONPATH=str(PROGRAMS))
        return [json.loads((place / f"rank{rank}.json").read_text()) for rank in range(self.ranks)]


@pytest.mark.parametrize(
    ("name", "ranks", "style"),
    [
        ("lightning", 1, "plain"),
        ("lightning", 1, "module"),
        ("lightning", 2, "plain"),
        ("lightning", 2, "module"),
        ("fabric", 2, "plain"),
        ("accelerate", 1, "plain"),
        ("accelerate", 2, "plain"),
        ("trainer", 1, "plain"),
        ("trainer", 2, "plain"),
        ("ray", 2, "plain"),
        ("timm", 2, "plain"),
        ("torchrun", 2, "plain"),
    ],
)
def test_a_program_of_torchs_trains_the_same_with_one_import_changed(
    name, ranks, style, images, tmp_path
):
    program = Program(name, ranks, style, images, tmp_path)
    expected = program.run()
    assert len(expected[0]) > 10
    assert program.run(LOADER) == expected
    assert program.run(LOADER, DATASET) == expected
