"""`examples/fashion.py`, run for real on a small set that is easy to tell apart."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fashion.py"
HANG_SECONDS = 600
SIDE = 28


def write(folder: Path, kind: int, count: int, rng: np.random.Generator) -> None:
    """A thick stroke on noise: upright, level or both, wherever it may be."""
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = rng.integers(0, 80, (SIDE, SIDE), np.uint8)
        x, y = rng.integers(8, SIDE - 8, 2)
        if kind != 1:
            pixels[4:-4, x - 2 : x + 2] = 255
        if kind != 0:
            pixels[y - 2 : y + 2, 4:-4] = 255
        Image.fromarray(pixels).save(folder / f"{number:03}.png")


@pytest.fixture(scope="module")
def strokes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes, 200 images of each to train on and 40 to test with."""
    root = tmp_path_factory.mktemp("strokes")
    rng = np.random.default_rng(1)
    for part, count in (("train", 200), ("test", 40)):
        for kind, name in enumerate(("upright", "level", "cross")):
            write(root / part / name, kind, count, rng)
    return root


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The example with these arguments."""
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_both_loaders_learn_and_the_curves_are_plotted(strokes: Path, tmp_path: Path) -> None:
    plot = tmp_path / "curves.png"
    done = run("--data", strokes, "--epochs", 4, "--seeds", 1, "--plot", plot)
    assert done.returncode == 0, done.stderr
    for loader in ("torchvision", "forebay"):
        row = re.search(rf"^{loader} +([\d.]+)%", done.stdout, re.MULTILINE)
        assert row, done.stdout
        assert float(row[1]) > 90, done.stdout + done.stderr
        assert f"{loader}, seed 1, epoch 4 of 4" in done.stderr
    with Image.open(plot) as image:
        assert image.format == "PNG"
        # Lines of both colours: an empty plot is grey, black and white.
        colours = np.asarray(image.convert("RGB"), np.int16).reshape(-1, 3)
    blue = (np.abs(colours - (31, 119, 180)).max(1) < 10).sum()
    orange = (np.abs(colours - (255, 127, 14)).max(1) < 10).sum()
    assert min(blue, orange) > 100


def test_one_loader_on_a_few_samples(strokes: Path, tmp_path: Path) -> None:
    options = ("--loader", "forebay", "--samples", 30, "--seeds", 2, "--epochs", 1)
    done = run("--data", strokes, *options, "--plot", tmp_path / "curves.png")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^forebay( +[\d.]+%){4}$", done.stdout, re.MULTILINE), done.stdout
    assert "torchvision" not in done.stdout + done.stderr


def test_data_without_the_two_parts_is_refused(strokes: Path) -> None:
    done = run("--data", strokes / "train")
    assert done.returncode == 2
    assert "there is no directory train" in done.stderr
