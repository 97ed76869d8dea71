"""The order of an epoch of 14.2 million samples: CPU time of the plan against torch's.

Both permute in turn, several times over, and the best of each counts. torch's RandomSampler
pays for a list of Python integers on top, which is shown beside it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

from report import REPOSITORY, save, table


def torch_seconds(n: int, as_list: bool) -> float:
    """CPU seconds of `torch.randperm`, one thread."""
    import torch

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    before = time.process_time()
    order = torch.randperm(n, generator=generator)
    if as_list:
        order.tolist()
    return time.process_time() - before


def build() -> Path:
    """Builds the plan's own example once, outside of what is timed."""
    command = ["cargo", "build", "--quiet", "--release", "-p", "forebay-plan"]
    subprocess.run([*command, "--example", "randperm"], cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / "release" / "examples" / "randperm"


def plan_seconds(program: Path, n: int) -> float:
    """CPU seconds of the plan, as the example measures them itself."""
    done = subprocess.run([program, str(n), "0"], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    """Runs both in turn and prints the best of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=14_200_000)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    program = build()
    times: dict[str, list[float]] = {"plan": [], "torch.randperm": [], "with tolist()": []}
    for _ in range(options.repetitions):
        times["plan"].append(plan_seconds(program, options.samples))
        times["torch.randperm"].append(torch_seconds(options.samples, as_list=False))
        times["with tolist()"].append(torch_seconds(options.samples, as_list=True))
    best = {name: min(found) for name, found in times.items()}
    rows = [
        [name, f"{seconds:.3f}", f"{seconds / best['plan']:.1f}x"] for name, seconds in best.items()
    ]
    print(table([f"order of {options.samples:,} samples", "CPU s", "against the plan"], rows))
    save("randperm", {"samples": options.samples, "seconds": best})


if __name__ == "__main__":
    main()
