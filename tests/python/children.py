"""Python in a process of its own, for what must not happen to the process of the tests."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

# Only against hanging for ever: importing torch alone takes seconds on a busy machine.
HANG_SECONDS = 300


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` with ``arguments`` in ``sys.argv``; its output, once it has ended well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
