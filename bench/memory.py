"""Memory that the machine really has, for loaders that fill some of it.

A virtual machine may hand free memory back to its host within a second or two; whoever needs it
then gets it page by page, at seconds a gigabyte. That is the machine's affair, not a loader's. So
the process holds as much as its loader may come to fill, and lets go of it just ahead of the use.
"""

from __future__ import annotations

import mmap
import threading
import time
from pathlib import Path

PAGE = 4096
PIECE = 1 << 27
# What is free ahead of the use: memory is filled at up to 10 GB/s.
AHEAD = 4 * PIECE
LOOKS = 0.02


def hold(size: int) -> None:
    """Touches `size` bytes, and from now on lets them go as memory is used, by whomever."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, PAGE):
        memory[at] = 1
    released = release(memory, 0, AHEAD)
    follow = threading.Thread(target=let_go, args=(memory, released, free()), daemon=True)
    follow.start()


def let_go(memory: mmap.mmap, released: int, at_first: int) -> None:
    """Keeps `AHEAD` bytes of what was held free for the next to ask."""
    given = released
    while given < len(memory):
        time.sleep(LOOKS)
        used = at_first - free() + given - released
        given += release(memory, given, used + AHEAD - given)


def release(memory: mmap.mmap, start: int, wanted: int) -> int:
    """Gives `wanted` bytes back to the system, in whole pieces; how many it gave."""
    pieces = -(-max(0, wanted) // PIECE)
    length = min(pieces * PIECE, len(memory) - start)
    if length > 0:
        memory.madvise(mmap.MADV_DONTNEED, start, length)
    return length


def free() -> int:
    """Bytes that nobody uses."""
    [line] = [x for x in Path("/proc/meminfo").read_text().splitlines() if x.startswith("MemFree")]
    return int(line.split()[1]) << 10
