"""What the benchmarks share: progress, CPU time of a process tree, tables, results."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = REPOSITORY / ".data"
TICK = os.sysconf("SC_CLK_TCK")


def example(name: str) -> Path:
    """A crate's example, which scripts/bench_setup.sh builds."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return target / "release" / "examples" / name


class Progress:
    """A bar on stderr, so that stdout holds the result alone; silent where nobody looks."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done, self.drawn = what, total, 0, 0.0
        self.start = time.monotonic()

    def step(self, done: int = 1) -> None:
        """Moves on; draws at most ten times a second."""
        self.done += done
        now = time.monotonic()
        if sys.stderr.isatty() and (now - self.drawn > 0.1 or self.done >= self.total):
            self.drawn = now
            width = 30 * self.done // max(1, self.total)
            bar = "#" * width + "." * (30 - width)
            sys.stderr.write(f"\r{self.what} [{bar}] {self.done}/{self.total}")

    def close(self) -> None:
        """Ends the line with the time it took."""
        seconds = time.monotonic() - self.start
        start = "\r" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{start}{self.what}: {self.done} in {seconds:.1f} s{' ' * 40}\n")
        sys.stderr.flush()


def tree_cpu() -> float:
    """CPU seconds of this process, its living descendants and those it has waited for.

    Loaders with worker processes spend most of their time there; `time.process_time` would
    not see it while the workers live.
    """
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + waited.ru_utime + waited.ru_stime
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(stat[1]), []).append(int(entry))
            ticks[int(entry)] = sum(int(field) for field in stat[11:15])
    todo = list(parents.get(os.getpid(), []))
    while todo:
        process = todo.pop()
        total += ticks[process] / TICK
        todo += parents.get(process, [])
    return total


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def table(header: list[str], rows: list[list[str]]) -> str:
    """A markdown table, padded so that it reads well as text too."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def save(name: str, result: dict[str, Any]) -> None:
    """Keeps the figures with the machine that they are of."""
    path = DATA / "bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    print(f"\nwritten to {path}", file=sys.stderr)
