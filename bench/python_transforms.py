"""A transform written in Python, about 3 ms a sample: forebay's workers against torch's.

The same PIL code on the same JPEGs with the same number of worker processes; what differs is
who reads and decodes the files, and what of that is left to do in later epochs. The transform
itself (about 3 ms on an image that is decoded, twice what decoding takes) is nobody's to save.
Every contender runs in a process of its own, in turn, several times over, and starts with
memory that the machine has (`memory.py`); the best of each counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import images
import memory
from PIL import Image, ImageFilter
from prepared import best
from report import Progress, save, table, tree_cpu

CONTENDERS = ("forebay", "torch")
EPOCHS = 3
CACHE = ("memory_hits", "origin_reads", "decoded_samples", "cache_form")
WARM = 2 << 30  # what a loader and its workers may come to use


class Augment:
    """What a user might write: a crop, a filter of PIL's, a tensor."""

    def __init__(self) -> None:
        from torchvision import transforms

        self.crop = transforms.RandomResizedCrop(224)
        self.flip = transforms.RandomHorizontalFlip()
        self.tensor = transforms.PILToTensor()

    def __call__(self, image: Image.Image) -> Any:
        cropped = self.flip(self.crop(image)).filter(ImageFilter.GaussianBlur(1))
        return self.tensor(cropped)


def loader(name: str, root: Path, options: argparse.Namespace) -> Any:
    """The contender's loader; the arguments are the same."""
    arguments = {
        "batch_size": options.batch,
        "shuffle": True,
        "num_workers": options.workers,
        "persistent_workers": options.persistent,
    }
    if name == "forebay":
        import forebay

        return forebay.DataLoader(forebay.ImageFolder(root, Augment()), **arguments)
    import torch
    from torchvision.datasets import ImageFolder

    return torch.utils.data.DataLoader(ImageFolder(root, Augment()), **arguments)


def import_all(name: str) -> None:
    """What a user's program has imported before it makes a loader."""
    import torchvision.datasets
    import torchvision.transforms  # noqa: F401

    if name == "forebay":
        import forebay  # noqa: F401


def epoch(batches: Any) -> dict[str, float]:
    """Takes all batches: wall and CPU seconds, of the workers too."""
    cpu, start = tree_cpu(), time.perf_counter()
    samples = 0
    for pixels, labels in batches:
        assert pixels.shape[1:] == (3, 224, 224)
        samples += len(labels)
    return {
        "seconds": time.perf_counter() - start,
        "cpu": tree_cpu() - cpu,
        "samples": samples,
    }


def life(name: str, root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One loader from its making to its end, in this process."""
    import torch

    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    import_all(name)
    memory.hold(WARM)
    start, cpu = time.perf_counter(), tree_cpu()
    batches = loader(name, root, options)
    made, made_cpu = time.perf_counter() - start, tree_cpu() - cpu
    found = [epoch(batches) for _ in range(EPOCHS)]
    found[0]["seconds"] += made
    found[0]["cpu"] += made_cpu
    result: dict[str, Any] = {"first": found[0], "later": found[1:]}
    if hasattr(batches, "stats"):
        stats = batches.stats()
        result["cache"] = {key: stats.get(key) for key in CACHE}
    del batches
    gc.collect()
    return result


def in_a_process(name: str, root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A life in a fresh process: nothing is left over from the contender before."""
    command = [sys.executable, __file__, "--life", name, "--root", str(root)]
    command += ["--batch", str(options.batch), "--workers", str(options.workers)]
    command += ["--persistent"] if options.persistent else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def check(found: dict[str, Any], count: int) -> None:
    """All samples came, and ours from the cache but once."""
    for figures in [found["first"], *found["later"]]:
        assert figures["samples"] == count, figures
    cache = found.get("cache")
    assert cache is None or cache["origin_reads"] == count, cache
    assert cache is None or cache["memory_hits"] >= count * (EPOCHS - 1), cache


def arguments() -> argparse.Namespace:
    """The options; `--life` is for the processes that this one starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="class folders; default: images made for it")
    parser.add_argument("--count", type=int, default=2048, help="how many images to make")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--persistent", action="store_true", help="keep workers over epochs")
    parser.add_argument("--life", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Runs the contenders in turn and prints what each reached."""
    options = arguments()
    root = options.root or images.make(images.Settings(count=options.count, classes=16))
    if options.life:
        print(json.dumps(life(options.life, root, options)))
        return
    paths = list(root.glob("*/*.jpg"))
    lives: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    progress = Progress("lives", options.repetitions * len(CONTENDERS))
    for repetition in range(options.repetitions):
        for path in paths:
            path.read_bytes()  # into the page cache
        for name in CONTENDERS[:: -1 if repetition % 2 else 1]:
            found = in_a_process(name, root, options)
            check(found, len(paths))
            lives[name].append(found)
            if "cache" in found:
                print(f"{name}: {found['cache']}", file=sys.stderr)
            progress.step()
    progress.close()
    results = {name: best(found) for name, found in lives.items()}
    keys = ("first", "later", "whole", "first_cpu", "later_cpu")
    ratio = {key: results["forebay"][key] / results["torch"][key] for key in keys}
    header = ["loader", "first, samples/s", "later", "whole run", "CPU s/1000 first", "later"]
    rows = [
        [f"{name}, {options.workers} workers", *(f"{found[key]:,.2f}" for key in keys)]
        for name, found in results.items()
    ]
    rows.append(["forebay / torch", *(f"{ratio[key]:.3f}" for key in keys)])
    print(table(header, rows))
    save("python_transforms", {"samples": len(paths), "results": results, "ratio": ratio})


if __name__ == "__main__":
    main()
