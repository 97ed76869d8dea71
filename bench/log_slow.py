"""The layouts on a disk that is poor at random reads.

A loop device with a file system of its own, behind the kernel's limit of requests a second
(cgroup v1, blkio): a request costs the same whether it is short or long, as on a spinning disk.
First only reads are limited, then writes too. The origin is on the disk as it is, so a sample
that the log lacks is quick here: origin reads have to be seen beside the rate. Mounts,
devices and groups are gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import log_layouts
from loaders import files
from log_files import must_be_root, scratch

IOPS = 300
WAYS: tuple[tuple[str, ...], ...] = (("read",), ("read", "write"))
TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")


def command(*words: str) -> str:
    """Runs a program; its output, or its complaint as an error."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def patiently(*words: str) -> None:
    """The same for the way down: it may have to wait, and must not stop the rest of it."""
    for _ in range(20):
        if subprocess.run(words, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.25)
    print(f"left behind, please run: {' '.join(words)}", file=sys.stderr)


@contextmanager
def slow_directory(directory: Path, size: int) -> Iterator[tuple[Path, str]]:
    """A mounted loop device of this size, and its numbers."""
    image, mount = directory / "disk.img", directory / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    with ExitStack() as down:
        # Past the page cache: the image's file is not to be a second one.
        device = command("losetup", "--find", "--show", "--direct-io=on", str(image))
        down.callback(patiently, "losetup", "--detach", device)
        command("mkfs.ext4", "-q", "-F", "-m", "0", device)
        command("mount", device, str(mount))
        down.callback(patiently, "umount", str(mount))
        number = os.stat(device).st_rdev
        yield mount, f"{os.major(number)}:{os.minor(number)}"


@contextmanager
def blkio(directory: Path) -> Iterator[Path]:
    """Where the limits of cgroup v1 are; mounted for this run if nobody has."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and "blkio" in options.split(","):
            yield Path(place)
            return
    place_of_ours = directory / "blkio"
    place_of_ours.mkdir()
    try:
        command("mount", "-t", "cgroup", "-o", "blkio", "blkio", str(place_of_ours))
    except SystemExit as error:
        hint = "it needs cgroup v1 with blkio; hint: --only with another part"
        raise SystemExit(f"no limit of requests can be set: {error}; {hint}") from error
    try:
        yield place_of_ours
    finally:
        patiently("umount", str(place_of_ours))


@contextmanager
def limited(group_root: Path, numbers: str, iops: int, ways: tuple[str, ...]) -> Iterator[Path]:
    """A group whose processes do so many requests a second on the device."""
    group = group_root / f"forebay-bench-{os.getpid()}"
    group.mkdir()
    try:
        for way in ways:
            (group / f"blkio.throttle.{way}_iops_device").write_text(f"{numbers} {iops}")
        yield group
    finally:
        patiently("rmdir", str(group))


def run(root: Path, memory: str, epochs: int, iops: int) -> dict[str, Any]:
    """All layouts on the slow disk."""
    must_be_root("a loop device")
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed; hint: --only with another part")
    samples = files(root)
    size = sum(Path(path).stat().st_size for path, _ in samples)
    found = {}
    with ExitStack() as stack:
        directory = stack.enter_context(scratch(4 * size))
        mount, numbers = stack.enter_context(slow_directory(directory, 4 * size))
        place = stack.enter_context(blkio(directory))
        for ways in WAYS:
            with limited(place, numbers, iops, ways) as group:
                results = in_group(group, root, mount / "cache", 2 * size, memory, epochs)
            if not results:
                raise SystemExit("no layout ran: no figures")
            what = " and ".join(f"{way}s" for way in ways)
            where = f", {iops} {what} a second"
            log_layouts.report(results, len(samples), size, where)
            found[what] = results
    return {"iops": iops, "samples": len(samples), "bytes": size, "results": found}


def in_group(
    group: Path, root: Path, cache: Path, disk: int, memory: str, epochs: int
) -> list[dict[str, Any]]:
    """All layouts, each in a process that the group limits."""

    def join() -> None:
        """In the child, before it starts: all its threads are limited."""
        (group / "cgroup.procs").write_text(str(os.getpid()))

    lives = [
        log_layouts.measure(root, cache, layout, disk, memory, epochs, before_exec=join)
        for layout in log_layouts.LAYOUTS
    ]
    return [{**life, "least_origin_reads": 0} for life in lives if life]
