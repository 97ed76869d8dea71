"""The crew: threads that go where they are needed, against threads that were put somewhere.

| part | shows |
|---|---|
| `balance` | four ranks in lockstep with unequal shares from the origin; the paper's ablation |
| `shift` | the origin slows, then decoding gets dearer: against every fixed split |
| `steps` | the origin's latency steps in mid-run: against a fresh run |
| `idle` | CPU where training is the slower side |
| `auto` | `num_workers="auto"` against 1, 2, 4, 8 and 16 |

Every run is a process of its own; the best of several counts. Slow files are a mount, which needs
root: without it `balance` has its table of the bucket alone, and `shift` and `steps` none.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
from dataclasses import replace
from typing import Any

import crew_auto
import crew_balance
import crew_idle
import crew_shift
import crew_steps
from crew_life import need_engines
from report import DATA, machine, save


def with_repetitions(scale: Any, options: argparse.Namespace) -> Any:
    """The part's own, unless the options say otherwise."""
    return replace(scale, repetitions=options.repetitions) if options.repetitions else scale


def balance(options: argparse.Namespace) -> dict[str, Any]:
    """See `crew_balance`."""
    quick = crew_balance.Scale(first=4, iterations=10, repetitions=1, lengths=(1, 2, 4, 8))
    scale = with_repetitions(quick if options.quick else crew_balance.Scale(), options)
    tables = [options.table] if options.table else list(crew_balance.TABLES)
    return crew_balance.run(scale, tables)


def shift(options: argparse.Namespace) -> dict[str, Any]:
    """See `crew_shift`."""
    quick = crew_shift.Scale(batch=16, batches=24, repetitions=1)
    return crew_shift.run(with_repetitions(quick if options.quick else crew_shift.Scale(), options))


def steps(options: argparse.Namespace) -> dict[str, Any]:
    """See `crew_steps`."""
    quick = crew_steps.Scale(before=3.0, measured=3.0, repetitions=1)
    return crew_steps.run(with_repetitions(quick if options.quick else crew_steps.Scale(), options))


def idle(options: argparse.Namespace) -> dict[str, Any]:
    """See `crew_idle`."""
    quick = crew_idle.Scale(skip=5, batches=10, repetitions=1)
    return crew_idle.run(with_repetitions(quick if options.quick else crew_idle.Scale(), options))


def auto(options: argparse.Namespace) -> dict[str, Any]:
    """See `crew_auto`."""
    quick = crew_auto.Scale(1, 1, objects=500, object_epochs=1, repetitions=1)
    return crew_auto.run(with_repetitions(quick if options.quick else crew_auto.Scale(), options))


PARTS = {"balance": balance, "shift": shift, "steps": steps, "idle": idle, "auto": auto}


def keep(name: str, part: str, figures: dict[str, Any]) -> None:
    """Puts a part's figures beside those of other runs, each with the machine as it was."""
    path = DATA / "bench" / f"{name}.json"
    found = json.loads(path.read_text()).get("parts", {}) if path.exists() else {}
    # One table of a part does not throw the others away.
    before = found.get(part, {}) if part == "balance" else {}
    save(name, {"parts": {**found, part: {**before, **figures, "machine": machine()}}})


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="one part; default: all")
    parser.add_argument("--table", choices=crew_balance.TABLES, help="one table of balance")
    parser.add_argument("--repetitions", type=int, help="default: the part's own")
    parser.add_argument("--quick", action="store_true", help="little of each: does it run?")
    return parser.parse_args()


def stop(*_: object) -> None:
    """A polite kill unwinds like Ctrl-C: nothing stays mounted."""
    if multiprocessing.parent_process() is not None:
        os._exit(1)  # one that makes images, which has nothing to unwind
    raise SystemExit("stopped")


def main() -> None:
    """Runs the parts one after another, so that none disturbs another."""
    options = arguments()
    signal.signal(signal.SIGTERM, stop)
    need_engines()
    name = "crew-quick" if options.quick else "crew"
    failed = []
    for part in [options.only] if options.only else list(PARTS):
        print(f"\n## {part}", flush=True)
        try:
            keep(name, part, PARTS[part](options))
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
