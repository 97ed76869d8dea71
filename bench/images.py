"""JPEGs like photographs, in class folders: the same bytes for the same settings.

A photograph is soft at large scales and grainy at small ones, with edges between. So a few
large pictures are painted for each class (noise of all scales, a pattern, shapes, grain)
and every image is a crop of one:

    class -> style (colours, pattern, shape) -> painting -> crop -> JPEG

Only the crops cost per image, so 12,000 take about half a minute on two cores. The styles
depend on the class alone: another seed gives other images of the same classes, and a small
network can learn to tell the classes apart.
"""

from __future__ import annotations

import argparse
import colorsys
import io
import json
import math
import multiprocessing
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from report import DATA, Progress

Pixels = NDArray[np.float32]
# Paintings are this many times as wide and high as the images cut from them.
MARGIN = 3


@dataclass(frozen=True)
class Settings:
    """Everything that the bytes depend on.

    `paintings` is their number for each class: more are more to learn from, and each costs as
    much as some hundred crops. `kilobytes` is the mean size; None: as it comes.
    """

    count: int = 12_000
    classes: int = 100
    width: int = 500
    height: int = 375
    quality: int = 90
    paintings: int = 1
    kilobytes: int | None = 100
    seed: int = 1
    version: int = 1

    def directory(self) -> Path:
        """Where the images of these settings are by default."""
        size = f"{self.width}x{self.height}"
        return DATA / f"images-{self.count}-{self.classes}-{size}-{self.seed}"


def resize(field: Pixels, width: int, height: int) -> Pixels:
    """Smooth enlargement of a one-channel field."""
    image = Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image, np.float32)


def clouds(rng: np.random.Generator, width: int, height: int) -> Pixels:
    """Noise of all scales, strongest at the largest, as light in a scene is."""
    total = np.zeros((height, width), np.float32)
    scale = max(width, height)
    while scale >= 4:
        shape = (height // scale + 2, width // scale + 2)
        noise = rng.standard_normal(shape, np.float32)
        total += resize(noise, width, height) * (scale / max(width, height)) ** 0.7
        scale //= 2
    return total


def colour(hue: float, saturation: float, value: float) -> NDArray[np.float32]:
    """Red, green and blue from 0 to 255."""
    return np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value), np.float32) * 255


def pattern(label: int, rng: np.random.Generator, width: int, height: int) -> Pixels:
    """Stripes or checks whose direction and spacing tell the class."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    angle = math.pi * (label % 5) / 5 + rng.normal(0, 0.08)
    period = width / MARGIN / (4 + 3 * (label % 4)) * rng.uniform(0.9, 1.1)
    across = np.sin((x * math.cos(angle) + y * math.sin(angle)) * (2 * math.pi / period))
    if label % 2:
        along = np.sin((y * math.cos(angle) - x * math.sin(angle)) * (2 * math.pi / period))
        across = across * along
    return np.asarray(across, np.float32)


def shapes(image: Image.Image, label: int, hue: float, rng: np.random.Generator) -> None:
    """Hard edges: the class says which kind and colour, chance where and how large."""
    draw = ImageDraw.Draw(image)
    width, height = image.size
    for _ in range(36):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        radius = rng.uniform(0.03, 0.12) * width / MARGIN * 1.5
        fill = tuple(int(c) for c in colour(hue + rng.normal(0, 0.04), 0.7, rng.uniform(0.3, 1)))
        box = (x - radius, y - radius, x + radius, y + radius)
        kind = label % 3
        if kind == 0:
            draw.ellipse(box, fill=fill)
        elif kind == 1:
            draw.rectangle(box, fill=fill)
        else:
            turn = rng.uniform(0, 360)
            draw.regular_polygon((x, y, radius), 3, rotation=turn, fill=fill)


def paint(settings: Settings, label: int, number: int) -> Image.Image:
    """One large picture of a class, grain included."""
    rng = np.random.default_rng([settings.seed, label, number])
    width, height = settings.width * MARGIN, settings.height * MARGIN
    hue = label * 0.381966 + rng.normal(0, 0.03)
    light = clouds(rng, width, height)
    tint = clouds(rng, width, height)
    texture = pattern(label, rng, width, height)
    base = np.empty((height, width, 3), np.float32)
    for channel, (near, far) in enumerate(
        zip(colour(hue, 0.5, 0.75), colour(hue + 0.1, 0.4, 0.5), strict=True)
    ):
        mix = 1 / (1 + np.exp(-2 * tint))
        base[..., channel] = near * mix + far * (1 - mix) + 35 * light + 18 * texture
    image = Image.fromarray(np.clip(base, 0, 255).astype(np.uint8))
    shapes(image, label, hue + 0.5, rng)
    return with_grain(image, settings, rng)


def with_grain(image: Image.Image, settings: Settings, rng: np.random.Generator) -> Image.Image:
    """Adds the grain that makes the crops of this picture about as large as wished."""
    clean = np.asarray(image, np.float32)
    grain = rng.standard_normal(clean.shape[:2], np.float32)[..., None]
    grain = 0.8 * grain + 0.3 * rng.standard_normal(clean.shape, np.float32)

    def noisy(strength: float, area: tuple[slice, slice]) -> Image.Image:
        pixels = np.clip(clean[area] + strength * grain[area], 0, 255)
        return Image.fromarray(pixels.astype(np.uint8))

    everywhere = (slice(None), slice(None))
    if settings.kilobytes is None:
        return noisy(4.0, everywhere)
    wanted = settings.kilobytes * 1000 * rng.uniform(0.7, 1.3)
    middle = (
        slice(settings.height, 2 * settings.height),
        slice(settings.width, 2 * settings.width),
    )
    low, high = 0.0, 60.0
    for _ in range(7):
        strength = (low + high) / 2
        if len(encode(noisy(strength, middle), settings.quality)) < wanted:
            low = strength
        else:
            high = strength
    return noisy((low + high) / 2, everywhere)


def encode(image: Image.Image, quality: int) -> bytes:
    """A baseline JPEG with halved colour, as cameras and ImageNet have."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def write_class(job: tuple[Settings, Path, int]) -> int:
    """Makes all images of one class; gives their number."""
    settings, root, label = job
    count = len(range(label, settings.count, settings.classes))
    folder = root / f"class{label:04d}"
    folder.mkdir(parents=True)
    rng = np.random.default_rng([settings.seed, label])
    paintings = [paint(settings, label, number) for number in range(settings.paintings)]
    for number in range(count):
        picture = paintings[number % len(paintings)]
        x = int(rng.integers(0, picture.width - settings.width + 1))
        y = int(rng.integers(0, picture.height - settings.height + 1))
        crop = picture.crop((x, y, x + settings.width, y + settings.height))
        if rng.integers(2):
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        (folder / f"{number:06d}.jpg").write_bytes(encode(crop, settings.quality))
    return count


def make(settings: Settings, root: Path | None = None) -> Path:
    """The directory of these images, made if it is not there yet.

    It is made under another name and renamed when whole: an interrupted run leaves nothing
    that looks finished.
    """
    root = root or settings.directory()
    mark = root / ".settings.json"
    wanted = json.dumps(asdict(settings))
    if mark.exists() and mark.read_text() == wanted:
        return root
    part = root.with_name(root.name + ".part")
    for old in (part, root):
        if old.exists():
            check_ours(old)
            shutil.rmtree(old)
    part.mkdir(parents=True)
    (part / ".making").touch()
    jobs = [(settings, part, label) for label in range(min(settings.classes, settings.count))]
    progress = Progress(f"images {settings.width}x{settings.height}", settings.count)
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        for done in pool.imap_unordered(write_class, jobs):
            progress.step(done)
    progress.close()
    (part / mark.name).write_text(wanted)
    (part / ".making").unlink()
    part.rename(root)
    return root


def check_ours(directory: Path) -> None:
    """A wrong `--out` must not cost anyone their files."""
    if not any((directory / name).exists() for name in (".settings.json", ".making")):
        raise SystemExit(f"{directory} is not a directory of generated images; name another")


def main() -> None:
    """Makes the images that the options ask for and prints where they are."""
    defaults = Settings()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in asdict(defaults).items():
        if name not in ("version", "kilobytes"):
            parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--kilobytes", type=int, default=100, help="mean size; 0: as it comes")
    parser.add_argument("--out", type=Path, help="default: a directory in .data")
    options = vars(parser.parse_args())
    out = options.pop("out")
    options["kilobytes"] = options["kilobytes"] or None
    sys.stdout.write(f"{make(Settings(**options), out)}\n")


if __name__ == "__main__":
    main()
