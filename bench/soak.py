"""Does any batch ever fail to come? Random loaders for as long as is wanted, every wait watched.

| part | what is run |
|---|---|
| `raise` | loaders with samples that cannot be read: `next()` again after each error, to the end |
| `ranks` | ranks of one engine asked in turn, with memory for a part of the dataset |

Each round draws source (files, or a bucket of a real S3 server on loopback), form (raw bytes, or
images with native or Python transforms), ranks, memory, threads, batch size and the rank that is
asked next. A wait longer than `--limit` prints what was drawn, all stacks and figures, and ends
with status 1.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
import servers

# How many there are, of up to how many bytes or pixels a side.
FILES, IMAGES = (300, 100_000), (200, 400)
# Loaders that fail are many, and each is short.
BAD_FILES, BAD_IMAGES = (24, 20_000), (24, 120)
BAD = (3, 10, 11, 20)


class Watch:
    """Ends the process once a wait is longer than the limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.longest = 0.0
        self.waits = 0
        self.since: float | None = None
        self.round: dict[str, Any] = {}
        self.loaders: list[Any] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(0.5)
            since = self.since
            if since is not None and time.monotonic() - since > self.limit:
                print(f"a wait of more than {self.limit:g} s: {json.dumps(self.round)}", flush=True)
                faulthandler.dump_traceback(file=sys.stdout)
                for loader in self.loaders:
                    print(json.dumps(loader.stats(), default=str), flush=True)
                os._exit(1)

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Around whatever may not come."""
        self.since = begun = time.monotonic()
        try:
            yield
        finally:
            self.since = None
            self.waits += 1
            self.longest = max(self.longest, time.monotonic() - begun)


def make_files(root: Path, count: int, most: int) -> None:
    """Files of up to so many bytes."""
    draw = np.random.default_rng(0)
    for number in range(count):
        place(root, number).write_bytes(draw.bytes(int(draw.integers(100, most))))


def make_images(root: Path, count: int, most: int) -> None:
    """Images of up to so many pixels a side."""
    draw = np.random.default_rng(0)
    for number in range(count):
        side = int(draw.integers(most // 4, most))
        pixels = draw.integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place(root, number), quality=85)


def place(root: Path, number: int) -> Path:
    """Where a sample is."""
    folder = root / f"class{number % 3}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{number:04}.jpg"


def damage(dataset: Any, root: Path) -> None:
    """Cuts samples off after they were listed."""
    for number in BAD:
        path = root / dataset.path(number)
        path.write_bytes(path.read_bytes()[:50])


def transform(form: str) -> Any:
    """What is made of images: natively, or with a step that only Python knows."""
    native = [v2.RandomResizedCrop(64), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    python = [v2.Lambda(lambda image: image)] if form == "python" else []
    return v2.Compose(python + native)


class Data:
    """The datasets by source and form, and damaged ones on this machine."""

    def __init__(self, root: Path, endpoint: str) -> None:
        self.root = root
        self.options = servers.storage_options(endpoint)
        self.opened: dict[tuple[str, str, bool], Any] = {}

    def open(self, source: str, form: str, bad: bool) -> Any:
        """Opened once; the index is kept."""
        key = (source, form, bad)
        if key not in self.opened:
            self.opened[key] = self._open(*key)
        return self.opened[key]

    def _open(self, source: str, form: str, bad: bool) -> Any:
        name = "files" if form == "raw" else "images"
        where = f"s3://soak/{name}"
        more: dict[str, Any] = {"storage_options": self.options}
        if bad:
            folder = self.root / f"bad-{form}"
            make_files(folder, *BAD_FILES) if form == "raw" else make_images(folder, *BAD_IMAGES)
            where, more = str(folder), {}
        elif source == "local":
            where, more = str(self.root / name), {}
        index = tempfile.mkdtemp(dir=self.root)
        if form == "raw":
            dataset = forebay.FileFolder(where, index_dir=index, **more)
        else:
            dataset = forebay.ImageFolder(where, transform=transform(form), index_dir=index, **more)
        if bad:
            damage(dataset, Path(where))
        return dataset


def draw_round(rng: random.Random, **fixed: Any) -> dict[str, Any]:
    """What is run next."""
    drawn = {
        "source": rng.choice(["local", "bucket"]),
        "form": rng.choice(["raw", "images", "python"]),
        "ranks": rng.randint(1, 6),
        "memory": rng.choice(["1MiB", "2MiB", "4MiB", "8MiB", "16MiB", "64MiB"]),
        "threads": rng.choice([0, 1, 2, 4]),
        "batch": rng.choice([1, 4, 16, 32]),
        "cache_form": rng.choice(["encoded", "auto"]),
        "asked": rng.choice(["in turn", "at random"]),
        "epochs": rng.randint(1, 3),
        "given_up": rng.random() < 0.2,
        "seed": rng.randrange(1 << 30),
    }
    return {**drawn, **fixed}


def loader(dataset: Any, drawn: dict[str, Any], **more: Any) -> Any:
    options = dict(more)
    if drawn["form"] == "images":
        options["cache_form"] = drawn["cache_form"]
    return forebay.DataLoader(dataset, drawn["batch"], shuffle=True, seed=drawn["seed"], **options)


def ranks_round(data: Data, drawn: dict[str, Any], watch: Watch) -> None:
    """Ranks of one engine, one thread asking all of them."""
    rng = random.Random(drawn["seed"])
    dataset = data.open(drawn["source"], drawn["form"], False)
    threads = {"num_workers": drawn["threads"]} if drawn["threads"] else {}
    engine = forebay.Engine(memory=drawn["memory"], **threads)
    ranks = drawn["ranks"]
    watch.loaders = [
        loader(dataset, drawn, rank=rank, world_size=ranks, engine=engine) for rank in range(ranks)
    ]
    for _ in range(drawn["epochs"]):
        iterators = [iter(each) for each in watch.loaders]
        left = [len(each) for each in watch.loaders]
        if drawn["given_up"]:
            left = [rng.randint(0, count) for count in left]
        while any(left):
            open_ranks = [rank for rank in range(ranks) if left[rank]]
            if drawn["asked"] == "at random":
                open_ranks = [rng.choice(open_ranks)]
            for rank in open_ranks:
                with watch.wait():
                    next(iterators[rank])
                left[rank] -= 1
    with watch.wait():
        engine.close()


def raise_round(data: Data, drawn: dict[str, Any], watch: Watch) -> None:
    """One loader to its end, through all errors."""
    dataset = data.open("local", drawn["form"], True)
    threads = {"num_workers": drawn["threads"]} if drawn["threads"] else {}
    each = loader(dataset, drawn, memory=drawn["memory"], on_error="raise", **threads)
    watch.loaders = [each]
    iterator, came, failed = iter(each), 0, 0
    while True:
        try:
            with watch.wait():
                next(iterator)
            came += 1
        except StopIteration:
            break
        except forebay.CorruptError:
            failed += 1
    if came + failed != len(each) or not failed:
        raise AssertionError(f"{came} batches and {failed} errors of {len(each)}: {drawn}")
    with watch.wait():
        each.close()


def main() -> None:
    """Runs what is asked for, and tells the longest wait."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="ranks", choices=["ranks", "raise"])
    parser.add_argument("--seconds", type=float, default=20, help="how long (default 20)")
    parser.add_argument("--loaders", type=int, default=sys.maxsize, help="how many at most")
    parser.add_argument("--limit", type=float, default=30, help="longest wait in seconds")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--only", default="{}", help='drawn values that are fixed: {"ranks": 4}')
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    watch = Watch(arguments.limit)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FOREBAY_CACHE"] = str(Path(folder) / "cache")
        root = Path(folder) / "data"
        server = None
        try:
            if arguments.part == "ranks":
                make_files(root / "files", *FILES)
                make_images(root / "images", *IMAGES)
                server = servers.SeaweedFS(Path(folder) / "server")
                files = root.rglob("*.jpg")
                server.fill("soak", {path.relative_to(root).as_posix(): path for path in files})
            data = Data(root, server.endpoint if server else "")
            run = ranks_round if arguments.part == "ranks" else raise_round
            end = time.monotonic() + arguments.seconds
            loaders = 0
            while time.monotonic() < end and loaders < arguments.loaders:
                watch.round = draw_round(rng, **json.loads(arguments.only))
                run(data, watch.round, watch)
                loaders += len(watch.loaders)
        finally:
            if server:
                server.close()
    print(f"{loaders} loaders, {watch.waits} waits, the longest {watch.longest:.2f} s")


if __name__ == "__main__":
    main()
