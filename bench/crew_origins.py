"""Where the loaders of `crew.py` read: slow files, a bucket, and trees of links.

Slow files are a real mount of a directory whose opens and reads are delayed, side by side, and
never cached by the kernel: they stand for NFS. A sample costs two delays, one to open and one to
read. The bucket is a real S3 server behind a proxy that delays each request. Both take CPU of
this machine too, which is all loaders' loss alike.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import images
import s3
from log_files import scratch
from prepared import warm
from report import DATA
from s3 import servers

# What one image is taken for, on disk.
IMAGE_BYTES = 100_000


@dataclass(frozen=True)
class Origin:
    """A place to read from, and where its delay is set."""

    source: str
    control: str | None = None
    storage_options: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """What a `Run` needs of it."""
        return {"control": self.control, "storage_options": self.storage_options}


@contextmanager
def slow_files(root: Path) -> Iterator[Origin]:
    """A directory behind a slow mount, its files in the page cache."""
    reason = servers.SlowFiles.missing()
    if reason:
        raise SystemExit(f"{reason}: no slow files; hint: sudo, or --only with another part")
    warm(root)
    with tempfile.TemporaryDirectory(prefix="forebay-slow-") as mount:
        files = servers.SlowFiles(root, Path(mount))
        try:
            yield Origin(str(files.root), files.control + "/slowness")
        finally:
            files.close()


@contextmanager
def bucket(count: int) -> Iterator[Origin]:
    """Images in a bucket; the server keeps them in .data for the while."""
    with scratch(3 * count * IMAGE_BYTES) as directory:
        server = servers.SeaweedFS(directory)
        try:
            s3.upload(server, count)
            proxy = servers.FaultyProxy(server.endpoint)
            try:
                options = servers.storage_options(proxy.endpoint)
                url = f"s3://{s3.BUCKET}/{s3.PREFIX}"
                yield Origin(url, proxy.control + "/faults", options)
            finally:
                proxy.close()
        finally:
            server.close()


def photos() -> list[Path]:
    """The images of the other benchmarks, every class alike: the first of each, and so on."""
    root = images.make(images.Settings())
    return sorted(root.glob("*/*.jpg"), key=lambda path: (path.name, path.parent.name))


def dear_photos() -> list[Path]:
    """A few images of four times the pixels and the bytes. What follows decoding is the same for
    them, so that all in all they cost about three times as much."""
    settings = images.Settings(count=400, classes=4, width=1000, height=750, kilobytes=400)
    return sorted(images.make(settings).glob("*/*.jpg"))


@contextmanager
def linked(folders: dict[str, list[Path]]) -> Iterator[Path]:
    """A tree of hard links, which take no room: each folder holds its files in this order."""
    DATA.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="crew-", dir=DATA))
    try:
        for folder, files in folders.items():
            (root / folder).mkdir(parents=True)
            for number, file in enumerate(files):
                os.link(file, root / folder / f"{number:06d}{file.suffix}")
        yield root
    finally:
        shutil.rmtree(root)
