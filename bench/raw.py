"""Raw bytes from class folders, page cache warm: forebay against torch's DataLoader.

Every contender runs in a process of its own, in turn, several times over; the best of each
counts, since what a busy machine adds is not the loader's. A whole first epoch of another loader
goes before, untimed: memory that lies free may be the host's, and come back slowly, whoever asks
for it; just after use it is the machine's own. The contender's first epoch (with the start
of its threads or workers) and its later ones are told apart. All feed the same consumer,
which touches one byte of every 4 KiB page, by the cheapest way that the form of the batch
allows. What the consumer's thread spends on the hand-over is measured in an epoch of its own,
which is not timed.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import images
import loaders
from report import Progress, example, save, table, tree_cpu

PAGE = 4096


def touch(batch: Any) -> int:
    """Reads one byte of each page, as cheaply as Python can; gives the bytes of the batch."""
    samples = batch[0]
    if hasattr(samples, "numpy"):
        samples = [samples]
    for sample in joint(samples) or samples:
        sample.numpy()[::PAGE].tobytes()
    return sum(map(len, samples))


def joint(samples: Any) -> list[Any]:
    """The one tensor that all samples of a list are views of, if there is one."""
    base = samples[0]._base if len(samples) else None
    return [] if base is None else [base]


def epoch(loader: Any, touching: bool, making_too: bool = False) -> dict[str, float]:
    """Takes all batches of an epoch: wall and CPU seconds, and the consumer's own in `next`."""
    cpu, start = tree_cpu(), time.perf_counter()
    batches = samples = size = waiting = making = 0
    iterator = iter(loader)
    while True:
        before = time.thread_time_ns()
        batch = next(iterator, None)
        waiting += time.thread_time_ns() - before
        if batch is None:
            break
        batches += 1
        samples += len(batch[-1])
        if making_too:
            making += making_tensors_ns(batch)
        if touching:
            size += touch(batch)
        del batch
    return {
        "seconds": time.perf_counter() - start,
        "cpu": tree_cpu() - cpu,
        "samples": samples,
        "bytes": size,
        "next_us": waiting / 1e3 / max(1, batches),
        "making_us": making / 1e3 / max(1, batches),
    }


def making_tensors_ns(batch: Any) -> int:
    """CPU that it takes to make a batch's tensors once more, as views of the same buffer."""
    import torch

    samples = batch[0]
    if hasattr(samples, "numpy") or not joint(samples):
        return 0  # not views: nothing to compare with
    [base], starts = joint(samples), [sample.storage_offset() for sample in samples]
    # Where samples begin at pages, what lies between them is cut off as well.
    cuts = [starts[0] - base.storage_offset()]
    for sample, start, after in zip(samples, starts, [*starts[1:], None], strict=True):
        gap = 0 if after is None else after - start - len(sample)
        cuts += [len(sample), gap] if gap else [len(sample)]
    cuts = cuts if cuts[0] else cuts[1:]
    before = time.thread_time_ns()
    made = list(torch.split(base, cuts))
    spent = time.thread_time_ns() - before
    del made
    return spent


def life(root: Path, contender: loaders.Contender, touching: bool) -> dict[str, Any]:
    """One loader from its making to its end, in this process."""
    import torch

    # More workers than cores, and tensors of bytes that are only read: both are meant.
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    make = loaders.loader(root, contender)
    before = make()
    epoch(before, touching)
    getattr(before, "close", lambda: None)()
    del before
    gc.collect()
    start, cpu = time.perf_counter(), tree_cpu()
    loader = make()
    made, made_cpu = time.perf_counter() - start, tree_cpu() - cpu
    found = [epoch(loader, touching) for _ in range(contender.epochs)]
    found[0]["seconds"] += made
    found[0]["cpu"] += made_cpu
    consumer = epoch(loader, touching, making_too=True)
    result: dict[str, Any] = {"first": found[0], "later": found[1:], "consumer": consumer}
    if hasattr(loader, "stats"):
        result["stats"] = json.loads(json.dumps(loader.stats(), default=str))
    del loader
    gc.collect()
    return result


def in_a_process(
    root: Path, contender: loaders.Contender, options: argparse.Namespace
) -> dict[str, Any]:
    """A life in a fresh process: nothing is left over from the contender before."""
    command = [sys.executable, __file__, "--life", json.dumps(asdict(contender))]
    command += ["--root", str(root)]
    command += [] if options.touch else ["--no-touch"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        return {"failed": done.returncode}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def warm(root: Path) -> int:
    """Brings all files into the page cache; gives their bytes."""
    return sum(len(loaders.read(path)) for path, _ in loaders.files(root))


def least(root: Path) -> float:
    """Samples a second of a bare loop that fills memory, without a loader; 0: none."""
    program = example("keep")
    if not program.exists():
        return 0.0
    done = subprocess.run([program, root], stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout.split()[0])


def best(lives: list[dict[str, Any]]) -> dict[str, float]:
    """The best of the repetitions, each figure by itself."""
    first = [life["first"] for life in lives]
    later = [epoch for life in lives for epoch in life["later"]]
    consumer = [life["consumer"] for life in lives]
    return {
        "first": max(e["samples"] / e["seconds"] for e in first),
        "later": max(e["samples"] / e["seconds"] for e in later),
        "first_cpu": min(1000 * e["cpu"] / e["samples"] for e in first),
        "later_cpu": min(1000 * e["cpu"] / e["samples"] for e in later),
        "next_us": min(e["next_us"] for e in consumer),
        "beyond_us": min(max(0.0, e["next_us"] - e["making_us"]) for e in consumer),
    }


def check(lives: list[dict[str, Any]], samples: int, size: int, touching: bool) -> None:
    """A loader that gives less is not fast."""
    for life_ in lives:
        for found in [life_["first"], *life_["later"]]:
            assert found["samples"] == samples, found
            assert found["bytes"] == size or not touching, (found, size)


def report(results: dict[str, dict[str, float]]) -> dict[str, list[float]]:
    """Prints rates and ratios; gives the ratios."""
    header = ["loader", "first, samples/s", "later, samples/s"]
    header += ["CPU s/1000 first", "later", "next() us", "beyond tensors"]
    keys = ("first", "later", "first_cpu", "later_cpu", "next_us", "beyond_us")
    forms = ("{:,.0f}", "{:,.0f}", "{:.3f}", "{:.3f}", "{:,.0f}", "{:,.0f}")
    rows = [
        [name, *(form.format(found[key]) for key, form in zip(keys, forms, strict=True))]
        for name, found in results.items()
    ]
    print(table(header, rows))
    groups = {
        "torch with workers (best of all)": [c.name for c in loaders.TORCH if c.workers],
        "torch, num_workers=0 (best of both)": [c.name for c in loaders.TORCH if not c.workers],
    }
    groups |= {c.name: [c.name] for c in loaders.OTHERS.values() if c.name in results}
    ratios: dict[str, list[float]] = {}
    rows = []
    for ours in [c.name for c in loaders.FOREBAYS if c.name in results]:
        for group, names in groups.items():
            against = [results[name] for name in names if name in results]
            if against:
                best_of = {key: max(found[key] for found in against) for key in ("first", "later")}
                pair = [results[ours][key] / rate for key, rate in best_of.items()]
                ratios[f"{ours} / {group}"] = pair
                rows.append([ours, group, *(f"{ratio:.2f}x" for ratio in pair)])
    print("\n" + table(["", "against", "first epoch", "later epochs"], rows))
    return ratios


def arguments() -> argparse.Namespace:
    """The options; `--life` is for the processes that this one starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="class folders; default: 12,000 made for it")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--no-touch", dest="touch", action="store_false")
    parser.add_argument("--only", default="", help="contenders whose name contains this")
    parser.add_argument("--also", default="", help="others, if installed: webdataset,dali")
    parser.add_argument("--life", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Runs the contenders in turn and prints their table."""
    options = arguments()
    if options.life:
        contender = loaders.Contender(**json.loads(options.life))
        print(json.dumps(life(options.root, contender, options.touch)))
        return
    root = options.root or images.make(images.Settings())
    others = [loaders.OTHERS[name] for name in options.also.split(",") if name]
    wanted = [c for c in [*loaders.FOREBAYS, *loaders.TORCH, *others] if options.only in c.name]
    for contender in [c for c in wanted if c.missing()]:
        print(f"{contender.name}: not installed, left out", file=sys.stderr)
        wanted.remove(contender)
    samples = len(loaders.files(root))
    lives: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in wanted}
    progress = Progress("lives", options.repetitions * len(wanted))
    bare = 0.0
    for _ in range(options.repetitions):
        size = warm(root)
        bare = max(bare, least(root))
        for contender in wanted:
            found = in_a_process(root, contender, options)
            if "failed" in found:
                print(f"{contender.name}: ended with {found['failed']}", file=sys.stderr)
            else:
                exact = contender.loader in ("forebay", "torch")
                check([found] if exact else [], samples, size, options.touch)
                lives[contender.name].append(found)
            progress.step()
    progress.close()
    results = {name: best(found) for name, found in lives.items() if found}
    ratios = report(results)
    if bare and loaders.FOREBAY.name in results:
        ratio = results[loaders.FOREBAY.name]["first"] / bare
        ratios["bare loop that fills memory"] = [ratio]
        print(
            f"\nbare loop that fills memory: {bare:,.0f} samples/s, first epoch {ratio:.2f} of it"
        )
    if not options.only:
        save("raw", {"samples": samples, "bytes": size, "results": results, "ratios": ratios})


if __name__ == "__main__":
    main()
