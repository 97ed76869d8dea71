"""Processes that tests start, and what a process holds: threads and file descriptors."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest

# Only guards against a hang: no test measures time by it.
LONG = 180
FATAL = ("Fatal Python error", "terminate called", "panicked", "Segmentation", "not rethrown")


def census():
    """Threads and file descriptors of this process."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def wait_for(condition):
    """True once the condition holds: a thread that was joined leaves /proc a moment later."""
    end = time.monotonic() + LONG / 3
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def back_at(baseline):
    """Fails, with the figures, unless threads and descriptors come down to the baseline."""
    wait_for(lambda: census() <= baseline and census()[1] <= baseline[1])
    threads, descriptors = census()
    assert threads <= baseline[0], f"{threads} threads, {baseline[0]} before"
    assert descriptors <= baseline[1], f"{descriptors} descriptors, {baseline[1]} before"


PROLOGUE = f"""
import os, random, signal, sys, threading, time
sys.path.insert(0, {os.path.dirname(__file__)!r})
from processes import *

# Tests that run in the background of a shell have it ignored, and hand that on.
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def start(script, *arguments):
    """A Python that runs ``script``, with this directory's modules in reach."""
    code = PROLOGUE + textwrap.dedent(script)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Exit code, stdout and stderr; a hang is a failure, a crash too."""
    try:
        out, err = process.communicate("\n", timeout=LONG)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"it hangs; so far it said:\n{out}\n{err}")
    for word in FATAL:
        assert word not in err, err
    return process.returncode, out, err


def run_python(script, *arguments):
    """What a script said, on stdout and stderr, that must end well."""
    code, out, err = finish(start(script, *arguments))
    assert code == 0, f"exit code {code}\n{out}\n{err}"
    return SimpleNamespace(stdout=out, stderr=err)


def run(script, *arguments):
    """The same, if only stdout counts."""
    return run_python(script, *arguments).stdout


def join_child(pid):
    """The exit code of a forked child; one that hangs is killed and fails."""
    status = []

    def ended():
        if not status:
            found, code = os.waitpid(pid, os.WNOHANG)
            status.extend([code] if found else [])
        return bool(status)

    if not wait_for(ended):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError("the child hangs")
    return os.waitstatus_to_exitcode(status[0])
