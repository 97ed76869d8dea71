"""Programs of several processes: started as a user starts them, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from servers import free_ports

HANG_SECONDS = 300


def torchrun(ranks: int) -> list[str]:
    """The command before a script that starts it on so many ranks of this machine."""
    port = free_ports(1)[0]
    address = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    command = str(Path(sys.executable).parent / "torchrun")
    return [command, "--nproc-per-node", str(ranks), *address]


def launch(command: list[str], log: Path, **environment: str) -> str:
    """Runs the command to its good end, and gives what it said."""
    with _running(command, log, environment) as process:
        code = process.wait(timeout=HANG_SECONDS)
    said = log.read_text(errors="replace")
    assert code == 0, said[-20000:]
    return said


@contextlib.contextmanager
def _running(
    command: list[str], log: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher in a process group of its own, which is gone afterwards."""
    # One thread a process: two networks on two cores are slower with more.
    alone = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **alone, **environment},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # A launcher that is asked to end ends its workers, wherever they are.
        for end in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, end)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
