"""Images ready for training, page cache warm: forebay against other loaders.

12,000 JPEGs of 500x375: decode, RandomResizedCrop(224), flip, normalise to float32, batches
of 256. Every contender runs in a process of its own, in turn, several times over; the best of
each counts, since what a busy machine adds is not the loader's. Its first epoch (with the
start of its threads or workers, and FFCV's compiler) and its later ones are told apart. All
feed the same consumer, which checks the shape and touches one value of each image.

The yardstick is a bare loop over the same files, without a loader: crates/prepare's example
`bare_loop`. CPU seconds are those of the whole process tree; they are steadier than rates.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import images
import loaders
import memory
import peers
from peers import Contender
from peers.pixels import BATCH, SIDE
from report import Progress, example, save, table, tree_cpu

COUNT = 12_000
BARE = Contender("bare loop, 2 threads, no loader", "bare")


def epoch(loader: Any) -> dict[str, float]:
    """Takes all batches of an epoch: wall and CPU seconds, and how many samples they held."""
    cpu, start = tree_cpu(), time.perf_counter()
    samples = 0
    total = 0.0
    for batch, labels in loader:
        check_batch(batch, labels)
        total += float(batch[:, 0, 0, 0].sum())
        samples += len(labels)
        del batch, labels
    assert total == total, "an image holds a NaN"
    return {"seconds": time.perf_counter() - start, "cpu": tree_cpu() - cpu, "samples": samples}


def check_batch(batch: Any, labels: Any) -> None:
    """A loader that gives something else is not fast."""
    found = (str(batch.dtype), tuple(batch.shape))
    assert found == ("torch.float32", (len(labels), 3, SIDE, SIDE)), found
    assert len(labels) <= BATCH, len(labels)


def life(root: Path, contender: Contender) -> dict[str, Any]:
    """One loader from its making to its end, in this process."""
    import torch

    # More workers than cores, and arrays that are only read: both are meant.
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    make = peers.maker(root, contender)
    memory.hold(contender.fills)
    start, cpu = time.perf_counter(), tree_cpu()
    loader = make()
    made, made_cpu = time.perf_counter() - start, tree_cpu() - cpu
    found = [epoch(loader) for _ in range(contender.epochs)]
    found[0]["seconds"] += made
    found[0]["cpu"] += made_cpu
    result: dict[str, Any] = {"first": found[0], "later": found[1:]}
    if hasattr(loader, "stats") and contender.loader == "forebay":
        result["stats"] = json.loads(json.dumps(loader.stats(), default=str))
    if hasattr(loader, "explain"):
        print(f"{contender.name}: {loader.explain()}", file=sys.stderr)
    del loader
    gc.collect()
    return result


def in_a_process(root: Path, contender: Contender, what: str) -> dict[str, Any]:
    """A life (or a conversion) in a fresh process: nothing is left over from the one before.

    The result is the last line on stdout; peers may say something there before.
    """
    command = [sys.executable, __file__, what, json.dumps(asdict(contender)), "--root", str(root)]
    # Workers are as many as cores: threads of OpenMP in each would only fight over those. torch
    # sees to that in its own workers alone.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True, env=environment)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        return {"failed": done.returncode}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def bare(root: Path, contender: Contender) -> dict[str, Any]:
    """One pass of the bare loop, as it measures itself; it has no first epoch of its own."""
    command = [example("bare_loop"), str(root), str(contender.workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    rate = re.search(r"([\d.,]+) samples/s", done.stdout)
    cpu = re.search(r"([\d.,]+) (?:CPU )?ms", done.stdout)
    if done.returncode != 0 or not rate or not cpu:
        print(f"{contender.name}: not understood: {done.stdout!r}", file=sys.stderr)
        return {"failed": done.returncode}
    per_second, milliseconds = (float(found[1].replace(",", "")) for found in (rate, cpu))
    found = {"seconds": 1.0, "samples": per_second, "cpu": per_second * milliseconds / 1000}
    return {"first": found, "later": [found]}


def warm(directory: Path) -> None:
    """Brings all files of a directory into the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 22):
                    pass


def run(root: Path, contender: Contender) -> dict[str, Any]:
    """One life of a contender on warm files; empty where it failed, which stderr says."""
    warm(peers.data(root, contender))
    if contender.loader == BARE.loader:
        found = bare(root, contender)
    else:
        found = in_a_process(root, contender, "--life")
    if "failed" in found:
        print(f"{contender.name}: ended with {found['failed']}, left out", file=sys.stderr)
        return {}
    if contender.loader in ("forebay", "torch"):
        samples = len(loaders.files(root))
        for epoch_ in [found["first"], *found["later"]]:
            assert epoch_["samples"] == samples, (contender.name, epoch_, samples)
    return found


def best(lives: list[dict[str, Any]]) -> dict[str, float]:
    """The best of the repetitions, each figure by itself."""
    first = [life["first"] for life in lives]
    later = [epoch for life in lives for epoch in life["later"]]
    return {
        "first": max(e["samples"] / e["seconds"] for e in first),
        "later": max(e["samples"] / e["seconds"] for e in later),
        "whole": max(whole_rate(life) for life in lives),
        "first_cpu": min(1000 * e["cpu"] / e["samples"] for e in first),
        "later_cpu": min(1000 * e["cpu"] / e["samples"] for e in later),
    }


def whole_rate(life: dict[str, Any]) -> float:
    """Samples a second from the making of the loader to its end."""
    epochs = [life["first"], *life["later"]]
    return float(sum(e["samples"] for e in epochs) / sum(e["seconds"] for e in epochs))


def pairs(results: dict[str, dict[str, float]]) -> list[tuple[str, str, list[str]]]:
    """What is compared: a title, our contender, and those of which the best counts."""
    torchs = [contender.name for contender in peers.TORCH]
    exact = peers.EXACT.name
    found = [("exact / torch + ImageFolder, best of all workers", exact, torchs)]
    fixed = [*torchs, BARE.name]
    others = [name for name in results if not name.startswith("forebay") and name not in fixed]
    found += [(f"exact / {name}", exact, [name]) for name in others]
    found += [
        ("exact / bare loop", exact, [BARE.name]),
        ("fast / exact", peers.FAST.name, [exact]),
        ("fast / exact, 2000x1500", peers.PHOTOS_FAST.name, [peers.PHOTOS_EXACT.name]),
        ("decoded in memory / exact", peers.DECODED.name, [exact]),
    ]
    return found


def report(results: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Prints rates and ratios; gives the ratios."""
    header = ["loader", "first, samples/s", "later", "whole run", "CPU s/1000 first", "later"]
    rates, cpu = ("first", "later", "whole"), ("first_cpu", "later_cpu")
    rows = [
        [name, *(f"{found[key]:,.0f}" for key in rates), *(f"{found[key]:.2f}" for key in cpu)]
        for name, found in results.items()
    ]
    print(table(header, rows))
    ratios: dict[str, dict[str, float]] = {}
    for title, ours, names in pairs(results):
        against = [results[name] for name in names if name in results]
        if ours in results and against:
            # Of CPU, the other's by ours: more than 1 is better for us everywhere.
            ratios[title] = {
                key: results[ours][key] / max(found[key] for found in against) for key in rates
            } | {key: min(f[key] for f in against) / results[ours][key] for key in cpu[1:]}
    rows = [[title, *(f"{ratio:.2f}x" for ratio in row.values())] for title, row in ratios.items()]
    if rows:
        print(
            "\n" + table(["ratio", "first epoch", "later epochs", "whole run", "CPU, later"], rows)
        )
    return ratios


def arguments() -> argparse.Namespace:
    """The options; `--life` and `--convert` are for the processes that this one starts."""
    names = sorted({BARE.loader, *peers.MAKERS})
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"loaders: {', '.join(names)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=COUNT, help="images; photos: 1/20 of it")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", default="", help="contenders whose name contains this")
    parser.add_argument("--without", default="", help="loaders to leave out: dali,ffcv")
    parser.add_argument("--also", default="", help="more of them: LOADER:WORKERS, as in dali:4")
    parser.add_argument("--life", help=argparse.SUPPRESS)
    parser.add_argument("--convert", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in filter(None, options.without.split(",")):
        if name not in names:
            parser.error(f"--without {name}: no such loader; there are {', '.join(names)}")
    for name in filter(None, options.also.split(",")):
        loader, _, workers = name.partition(":")
        if loader not in peers.MAKERS or not workers.isdigit():
            parser.error(f"--also {name}: LOADER:WORKERS is wanted, with {', '.join(names)}")
    return options


def chosen(options: argparse.Namespace) -> list[Contender]:
    """The contenders that the options ask for and the machine has."""
    found = [BARE, *peers.CONTENDERS]
    for name in filter(None, options.also.split(",")):
        loader, _, workers = name.partition(":")
        like = next(c for c in peers.CONTENDERS if c.loader == loader)
        found.append(replace(like, name=f"{loader}, {workers} workers", workers=int(workers)))
    found = [c for c in found if options.only in c.name]
    found = [c for c in found if c.loader not in options.without.split(",")]
    ready = []
    for contender in found:
        missing = contender.missing()
        if contender.loader == BARE.loader:
            missing = (
                "" if example("bare_loop").exists() else f"{example('bare_loop')} is not built"
            )
        if missing:
            print(f"{contender.name}: {missing}, left out", file=sys.stderr)
        else:
            ready.append(contender)
    return ready


def roots(options: argparse.Namespace, wanted: list[Contender]) -> dict[bool, Path]:
    """The images, and the large photos if one wants them: made once."""
    count = options.count
    classes = max(1, min(100, count // 120))
    found = {False: images.make(images.Settings(count=count, classes=classes))}
    if any(contender.photos for contender in wanted):
        photos = max(1, count // 20)
        found[True] = images.make(
            images.Settings(
                count=photos,
                classes=max(1, photos // 150),
                width=2000,
                height=1500,
                kilobytes=1000,
            )
        )
    return found


def main() -> None:
    """Runs the contenders in turn and prints their table."""
    options = arguments()
    if options.life or options.convert:
        contender = Contender(**json.loads(options.life or options.convert))
        if options.convert:
            peers.convert(options.root, contender)
            print("{}")
        else:
            print("\n" + json.dumps(life(options.root, contender)), flush=True)
        return
    wanted = chosen(options)
    root = roots(options, wanted)
    for contender in list(wanted):
        if peers.data(root[contender.photos], contender) != root[contender.photos]:
            done = in_a_process(root[contender.photos], contender, "--convert")
            if "failed" in done:
                print(f"{contender.name}: cannot be converted to, left out", file=sys.stderr)
                wanted.remove(contender)
    lives: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in wanted}
    progress = Progress("lives", options.repetitions * len(wanted))
    for _ in range(options.repetitions):
        for contender in wanted:
            found = run(root[contender.photos], contender)
            lives[contender.name] += [found] if found else []
            progress.step()
    progress.close()
    results = {name: best(found) for name, found in lives.items() if found}
    ratios = report(results)
    if not options.only and not options.without:
        name = "images" if options.count == COUNT else f"images-{options.count}"
        save(name, {"samples": options.count, "results": results, "ratios": ratios})


if __name__ == "__main__":
    main()
