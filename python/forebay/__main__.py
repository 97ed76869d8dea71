"""The ``forebay`` command: ``python -m forebay`` and the installed script."""

import signal
import sys

from forebay._forebay import run_command


def main() -> int:
    """Run the command with the process's arguments; its exit code."""
    # The command runs in Rust, without the interpreter's own handling of Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["forebay", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
