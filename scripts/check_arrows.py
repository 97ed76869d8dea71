#!/usr/bin/env python3
"""Check that each crate depends only on the crates it may: the arrows of ARCHITECTURE.md.

A new arrow is a decision: it is made here and in ARCHITECTURE.md, or not at all.
"""

import json
import subprocess
import sys

MAY_USE = {
    "balance": set(),
    "plan": set(),
    "policy": set(),
    "format": set(),
    "origin": {"format"},
    "cache": {"policy", "format"},
    "prepare": set(),
    "engine": {"balance", "plan", "origin", "cache", "prepare"},
    "sim": {"plan", "policy"},
    "cli": {"plan", "policy", "format", "origin", "cache", "prepare", "engine", "sim"},
    "testkit": {"plan", "policy", "format", "origin", "cache", "prepare", "engine", "sim"},
    "python": {"engine", "cli"},
}
PURE = {"balance", "plan", "policy", "format", "sim"}
# What would make a pure crate do I/O, start threads or read a clock.
IMPURE = {"tokio", "rustix", "libc", "memmap2", "object_store", "rand"}


def main() -> int:
    """Print every forbidden arrow; 1 if there is one."""
    command = ["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    wrong = []
    for package in metadata["packages"]:
        name = package["name"].removeprefix("forebay-")
        if name not in MAY_USE:
            wrong.append(f"{name}: not in the table of {__file__}")
            continue
        # Tests may look anywhere: dev-dependencies are not arrows.
        uses = {d["name"] for d in package["dependencies"] if d["kind"] is None}
        ours = {use.removeprefix("forebay-") for use in uses if use.startswith("forebay-")}
        wrong += [f"{name} uses {use}, which it may not" for use in sorted(ours - MAY_USE[name])]
        if name in PURE:
            wrong += [f"{name} is pure, but uses {use}" for use in sorted(uses & IMPURE)]
    for line in wrong:
        print(f"arrows: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
