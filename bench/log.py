"""The log on disk: forebay's disk tier against other readers, and its layouts with each other.

| part | shows |
|---|---|
| `disk` | cold page cache: second epoch against torch, DALI, FFCV and fio |
| `layouts` | packed and reorder where all, half or a quarter fits |
| `slow-disk` | the same on a disk that is poor at random reads |
| `s3` | a bucket behind a slow line: first, second epoch, new process |

Parts but `s3` need root: they drop the page cache, and one makes a device.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import images
import log_disk
import log_files
import log_layouts
import log_s3
import log_slow
from report import DATA, machine, save


@dataclass(frozen=True)
class Scale:
    """How much is measured: samples of each kind, forebay's memory, repetitions."""

    large: int = 12_000
    small: int = 60_000
    slow: int = 3_000
    objects: int = 3_000
    memory: str = "256MiB"
    # The sets of the slow disk and of S3 are smaller.
    little_memory: str = "96MiB"
    repetitions: int = 3
    epochs: int = 3


QUICK = Scale(2_000, 10_000, 1_000, 1_000, "96MiB", "64MiB", 1, 2)


def large_files(scale: Scale) -> Path:
    """Files of 100 KB: the images of the other benchmarks, or less for a quick look."""
    if scale.large == images.Settings().count:
        return images.make(images.Settings())
    return log_files.make(log_files.Settings(scale.large, 100))


def disk(options: argparse.Namespace, scale: Scale) -> dict[str, Any]:
    """See `log_disk`."""
    repetitions = options.repetitions or scale.repetitions
    found = {}
    if options.files in ("both", "100"):
        root = large_files(scale)
        found["100 KB"] = log_disk.run(root, 3, scale.memory, repetitions)
    if options.files in ("both", "20"):
        root = log_files.make(log_files.Settings(scale.small, 20))
        found["20 KB"] = log_disk.run(root, 6, scale.memory, repetitions)
    return found


def layouts(options: argparse.Namespace, scale: Scale) -> dict[str, Any]:
    """See `log_layouts`."""
    repetitions = options.repetitions or scale.repetitions
    epochs = options.epochs or scale.epochs
    return log_layouts.run(large_files(scale), scale.memory, epochs, repetitions)


def slow_disk(options: argparse.Namespace, scale: Scale) -> dict[str, Any]:
    """See `log_slow`."""
    root = log_files.make(log_files.Settings(scale.slow, 100))
    epochs = options.epochs or scale.epochs
    return log_slow.run(root, scale.little_memory, epochs, options.iops)


def s3(_: argparse.Namespace, scale: Scale) -> dict[str, Any]:
    """See `log_s3`."""
    return log_s3.run(scale.objects, scale.little_memory)


PARTS = {"disk": disk, "layouts": layouts, "slow-disk": slow_disk, "s3": s3}


def keep(name: str, part: str, figures: dict[str, Any]) -> None:
    """Puts a part's figures beside those of other runs, each with the machine as it was."""
    path = DATA / "bench" / f"{name}.json"
    found = json.loads(path.read_text()).get("parts", {}) if path.exists() else {}
    before = found.get(part, {}) if part == "disk" else {}
    save(name, {"parts": {**found, part: {**before, **figures, "machine": machine()}}})


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="one part; default: all")
    parser.add_argument("--files", choices=("both", "100", "20"), default="both", help="KB, disk")
    parser.add_argument("--repetitions", type=int, help="of parts disk and layouts")
    parser.add_argument("--epochs", type=int, help="of parts layouts and slow-disk")
    parser.add_argument("--iops", type=int, default=log_slow.IOPS, help="of part slow-disk")
    parser.add_argument("--quick", action="store_true", help="few samples: does it run?")
    return parser.parse_args()


def stop(*_: object) -> None:
    """A polite kill unwinds like Ctrl-C: nothing stays mounted."""
    raise SystemExit("stopped")


def main() -> None:
    """Runs the parts one after another, so that none disturbs another."""
    options = arguments()
    signal.signal(signal.SIGTERM, stop)
    scale = QUICK if options.quick else Scale()
    name = "log-quick" if options.quick else "log"
    failed = []
    for part in [options.only] if options.only else list(PARTS):
        print(f"\n## {part}", flush=True)
        try:
            keep(name, part, PARTS[part](options, scale))
        except SystemExit as error:
            # One part's word is no reason to keep the others from running.
            if options.only or str(error) == "stopped":
                raise
            print(f"{part}: {error}", file=sys.stderr)
            failed.append(part)
    if failed:
        raise SystemExit(f"without figures: {', '.join(failed)}")


if __name__ == "__main__":
    main()
