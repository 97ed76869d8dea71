"""Small datasets that tests make for themselves."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterable
from pathlib import Path

from PIL import Image


def content(number: int, size: int) -> bytes:
    """Bytes that no other sample has."""
    return random.Random(number).randbytes(size)


def class_folders(root: Path, samples: int = 25, classes: int = 3, size: int = 1000) -> Path:
    """Files of about ``size`` bytes in class folders; sample i in ImageFolder's order is
    ``content(i, length)``."""
    number = 0
    for label in range(classes):
        folder = root / f"class{label}"
        folder.mkdir(parents=True)
        count = samples // classes + (label < samples % classes)
        for at in range(count):
            (folder / f"{at:05}.bin").write_bytes(content(number, size + number % 7))
            number += 1
    return root


def held_on_disk(dirs: Iterable[Path], samples: int, size: int) -> set[int]:
    """The samples of ``class_folders`` whose bytes are in some file of these cache directories."""
    found: set[int] = set()
    for path in (path for folder in dirs for path in folder.glob("log/*/*")):
        if path.is_file() and path.suffix not in (".order", ".map"):
            data = path.read_bytes()
            found |= {i for i in range(samples) if content(i, size + i % 7) in data}
    return found


def image_folders(root: Path, samples: int = 12, classes: int = 3) -> Path:
    """Small PNG and JPEG images in class folders."""
    for number in range(samples):
        folder = root / f"class{number % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.Random(number).randbytes(20 * 16 * 3)
        image = Image.frombytes("RGB", (20, 16), pixels)
        image.save(folder / f"{number:03}.{'png' if number % 2 else 'jpg'}")
    return root


def tar_shards(
    root: Path, shards: int = 3, samples: int = 5, size: int = 700
) -> list[dict[str, bytes]]:
    """WebDataset shards; the samples as webdataset would name them."""
    expected = []
    root.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(root / f"train-{shard:04}.tar", "w") as tar:
            for at in range(samples):
                number = shard * samples + at
                fields = {"jpg": content(number, size + number), "cls": str(number % 4).encode()}
                if number % 3 == 0:
                    fields["seg.png"] = content(number + 1000, 50)
                for extension, data in fields.items():
                    member = tarfile.TarInfo(f"images/{number:06}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                expected.append({"__key__": f"images/{number:06}", **fields})
    return expected
