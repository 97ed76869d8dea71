"""Raw bytes from a bucket: forebay against s3torchconnector and boto3.

A real S3 server on loopback behind a proxy that adds 10 ms to every request, as a bucket in
the same region does. Every contender reads the same objects in shuffled batches, in a process
of its own, in turn, several times over; the best of each counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import images
from report import Progress, save, table, tree_cpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
import servers

BATCH = 256
BUCKET = "train"
PREFIX = "images/"
CONTENDERS = {
    "forebay": "forebay, 2 threads",
    "s3torchconnector": "s3torchconnector (map), 2 workers",
    "boto3": "boto3, 16 threads",
}


def read_object(reader: Any) -> bytes:
    """The whole object: what s3torchconnector calls a transform."""
    found: bytes = reader.read()
    return found


def forebay_loader(endpoint: str, epoch_seed: int) -> Callable[[], Iterable[Any]]:
    """Ours, with the memory that it has by default."""
    import forebay

    options = servers.storage_options(endpoint)
    dataset = forebay.FileFolder(f"s3://{BUCKET}/{PREFIX}", storage_options=options)
    return lambda: forebay.DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=2, seed=epoch_seed
    )


def s3torchconnector_loader(endpoint: str, epoch_seed: int) -> Callable[[], Iterable[Any]]:
    """Amazon's own map-style dataset in torch's workers; the listing is made beforehand."""
    import torch
    from s3torchconnector import S3ClientConfig, S3MapDataset
    from torch.utils.data import DataLoader

    os.environ["AWS_ACCESS_KEY_ID"] = servers.ACCESS_KEY
    os.environ["AWS_SECRET_ACCESS_KEY"] = servers.SECRET_KEY
    dataset = S3MapDataset.from_prefix(
        f"s3://{BUCKET}/{PREFIX}",
        region=servers.REGION,
        endpoint=endpoint,
        transform=read_object,
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    len(dataset)
    return lambda: DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=list,
        generator=torch.Generator().manual_seed(epoch_seed),
    )


class Boto3Loader:
    """What many write by hand: a pool of threads that runs one batch ahead."""

    def __init__(self, endpoint: str, epoch_seed: int) -> None:
        import random

        self.client = servers.s3_client(endpoint)
        pages = self.client.get_paginator("list_objects_v2")
        listing = pages.paginate(Bucket=BUCKET, Prefix=PREFIX)
        self.keys = [found["Key"] for page in listing for found in page["Contents"]]
        self.random = random.Random(epoch_seed)

    def read(self, key: str) -> bytes:
        """One object."""
        found: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return found

    def __iter__(self) -> Iterator[list[bytes]]:
        self.random.shuffle(self.keys)
        with ThreadPoolExecutor(16) as pool:
            ahead: list[Any] = []
            for start in range(0, len(self.keys), BATCH):
                ahead.append([pool.submit(self.read, k) for k in self.keys[start : start + BATCH]])
                if len(ahead) > 1:
                    yield [future.result() for future in ahead.pop(0)]
            for batch in ahead:
                yield [future.result() for future in batch]


def boto3_loader(endpoint: str, epoch_seed: int) -> Callable[[], Iterable[Any]]:
    """See `Boto3Loader`; it lists when it is made."""
    loader = Boto3Loader(endpoint, epoch_seed)
    return lambda: loader


LOADERS = {
    "forebay": forebay_loader,
    "s3torchconnector": s3torchconnector_loader,
    "boto3": boto3_loader,
}


def sizes(batch: Any) -> list[int]:
    """Bytes of each sample, whatever the loader gives."""
    samples = batch if isinstance(batch[0], bytes) else batch[0]
    return [len(sample) for sample in samples]


def life(name: str, endpoint: str, epochs: int) -> list[dict[str, float]]:
    """One loader, epoch by epoch. The listing is not timed; the making of the loader is, since
    one that starts to read there would have a head start."""
    make = LOADERS[name](endpoint, 1)
    loader = None
    found = []
    for _ in range(epochs):
        start, cpu = time.perf_counter(), tree_cpu()
        loader = make() if loader is None else loader
        taken = [size for batch in loader for size in sizes(batch)]
        seconds, cpu = time.perf_counter() - start, tree_cpu() - cpu
        found.append({"samples": len(taken), "bytes": sum(taken), "seconds": seconds, "cpu": cpu})
    return found


def in_a_process(name: str, endpoint: str, epochs: int) -> list[dict[str, float]]:
    """A life in a fresh process; empty where it failed."""
    command = [sys.executable, __file__, "--life", name]
    command += ["--endpoint", endpoint, "--epochs", str(epochs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        print(f"{name}: ended with {done.returncode}", file=sys.stderr)
        return []
    found: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def upload(server: servers.SeaweedFS, count: int) -> int:
    """Puts the first images of the raw benchmark into the bucket; gives their bytes."""
    root = images.make(images.Settings())
    paths = sorted(root.glob("*/*.jpg"))
    # Every class is there: the first few of each, not all of the first few classes.
    paths = sorted(paths, key=lambda path: path.name)[:count]
    progress = Progress("upload", count)
    for start in range(0, count, 200):
        part = paths[start : start + 200]
        keys = [PREFIX + str(path.relative_to(root)) for path in part]
        server.fill(BUCKET, dict(zip(keys, part, strict=True)))
        progress.step(len(part))
    progress.close()
    return sum(path.stat().st_size for path in paths)


def report(lives: dict[str, list[list[dict[str, float]]]]) -> dict[str, dict[str, float]]:
    """Prints rates and ratios; gives the rates."""
    results = {}
    for name, runs in lives.items():
        first = [run[0] for run in runs]
        second = [run[1] for run in runs]
        results[name] = {
            "first": max(e["samples"] / e["seconds"] for e in first),
            "second": max(e["samples"] / e["seconds"] for e in second),
            "cpu": min(1000 * e["cpu"] / e["samples"] for e in first),
        }
    ours = results.get("forebay")
    rows = []
    for name, found in results.items():
        row = [CONTENDERS[name], f"{found['first']:,.0f}", f"{found['second']:,.0f}"]
        row.append(f"{found['cpu']:.2f}")
        for key in ("first", "second"):
            row.append(f"{ours[key] / found[key]:.1f}x" if ours else "-")
        rows.append(row)
    header = ["loader", "first, samples/s", "second", "CPU s/1000"]
    print(table([*header, "forebay, first", "forebay, second"], rows))
    return results


def arguments() -> argparse.Namespace:
    """The options; `--life` is for the processes that this one starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=4000, help="objects of about 100 KB")
    parser.add_argument("--delay-ms", type=int, default=10, help="added to each request")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--only", default="", help="contenders whose name contains this")
    parser.add_argument("--life", choices=LOADERS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Starts the server and the proxy, runs the contenders in turn, prints their table."""
    options = arguments()
    if options.life:
        print(json.dumps(life(options.life, options.endpoint, options.epochs)))
        return
    wanted = [name for name in CONTENDERS if options.only in name]
    for name in [name for name in wanted if importlib.util.find_spec(name) is None]:
        print(f"{name}: not installed, left out", file=sys.stderr)
        wanted.remove(name)
    lives: dict[str, list[list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="forebay-s3-") as directory:
        server = servers.SeaweedFS(Path(directory))
        proxy = None
        try:
            size = upload(server, options.count)
            proxy = servers.FaultyProxy(server.endpoint, delay_ms=options.delay_ms)
            progress = Progress("lives", options.repetitions * len(wanted))
            for _ in range(options.repetitions):
                for name in wanted:
                    run = in_a_process(name, proxy.endpoint, options.epochs)
                    for epoch in run:
                        assert (epoch["samples"], epoch["bytes"]) == (options.count, size), epoch
                    if run:
                        lives.setdefault(name, []).append(run)
                    progress.step()
            progress.close()
        finally:
            if proxy is not None:
                proxy.close()
            server.close()
    settings = {"objects": options.count, "bytes": size, "delay_ms": options.delay_ms}
    save("s3", {**settings, "results": report(lives)})


if __name__ == "__main__":
    main()
