"""What the parts of `log.py` share: plain files, a cold page cache, room on disk, fio.

The files hold random bytes, so that no disk or file system can make them smaller; the same
bytes for the same settings.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from report import DATA, Progress

DROP = Path("/proc/sys/vm/drop_caches")
FOLDER = 1000
DEPTHS = (4, 8, 16)


@dataclass(frozen=True)
class Settings:
    """Everything that the bytes depend on; sizes are spread by a third to either side."""

    count: int
    kilobytes: int
    seed: int = 1
    version: int = 1

    def directory(self) -> Path:
        """Where the files of these settings are."""
        return DATA / f"files-{self.count}-{self.kilobytes}-{self.seed}"


def make(settings: Settings) -> Path:
    """The directory of these files, in folders of a thousand, made if it is not there yet.

    It is made under another name and renamed when whole: an interrupted run leaves nothing
    that looks finished.
    """
    root = settings.directory()
    mark, wanted = root / ".settings.json", json.dumps(asdict(settings))
    if mark.exists() and mark.read_text() == wanted:
        return root
    part = root.with_name(root.name + ".part")
    for old in (root, part):
        shutil.rmtree(old, ignore_errors=True)
    rng = np.random.default_rng(settings.seed)
    mean = settings.kilobytes * 1000
    sizes = rng.integers(mean * 2 // 3, mean * 4 // 3, settings.count)
    progress = Progress(f"files of {settings.kilobytes} KB", settings.count)
    for number, size in enumerate(sizes):
        folder = part / f"class{number // FOLDER:04d}"
        if number % FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"{number % FOLDER:06d}.bin").write_bytes(rng.bytes(int(size)))
        progress.step()
    progress.close()
    (part / mark.name).write_text(wanted)
    part.rename(root)
    return root


def must_be_root(what: str) -> None:
    """Ends with a clear word where the kernel would refuse later."""
    if os.geteuid() != 0:
        raise SystemExit(f"{what} needs root; hint: sudo, or --only with another part")


def drop_caches() -> None:
    """Empties the page cache, so that the next epoch reads from the disk."""
    os.sync()
    DROP.write_text("3")


def disk_used(directory: Path) -> int:
    """Bytes that a directory takes, as `du` counts."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


@contextmanager
def scratch(size: int) -> Iterator[Path]:
    """A directory in .data for `size` bytes, gone afterwards."""
    DATA.mkdir(exist_ok=True)
    free = shutil.disk_usage(DATA).free
    if free < size:
        raise SystemExit(f"{DATA} has {free / 1e9:.1f} GB free, {size / 1e9:.1f} are needed")
    with tempfile.TemporaryDirectory(prefix="log-", dir=DATA) as directory:
        yield Path(directory)


class Fio:
    """What the disk gives at best: one long file, direct, 4 MiB a request, some at a time."""

    def __init__(self, directory: Path, size: int) -> None:
        self.file, self.size = directory / "fio", size
        self.missing = shutil.which("fio") is None
        if self.missing:
            print("fio: not installed, left out; hint: apt-get install fio", file=sys.stderr)
        else:
            self._run("write", 8)

    def _run(self, way: str, depth: int) -> float:
        command = ["fio", "--name=log", f"--filename={self.file}", f"--rw={way}", "--bs=4M"]
        command += ["--direct=1", "--ioengine=libaio", f"--iodepth={depth}"]
        command += [f"--size={self.size}", "--output-format=json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        # Warnings may stand before the JSON.
        found = json.loads(done.stdout[done.stdout.index(b"{") :])
        return float(found["jobs"][0][way]["bw_bytes"])

    def read(self) -> dict[int, float]:
        """Bytes a second by depth; nothing without fio."""
        return {} if self.missing else {depth: self._run("read", depth) for depth in DEPTHS}
