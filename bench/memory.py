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
PIECE = 1 << 25
LOOKS = 0.02
# Memory is filled at up to 10 GB/s, and what lies free for half a second may be gone.
MOST_AHEAD = 1 << 29


def hold(size: int) -> None:
    """Touches `size` bytes, and from now on lets them go as memory is used, by whomever."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, PAGE):
        memory[at] = 1
    threading.Thread(target=let_go, args=(memory, free()), daemon=True).start()


def let_go(memory: mmap.mmap, at_first: int) -> None:
    """Keeps a little of what was held free for the next to ask: what is used between two looks."""
    given = last = 0
    ahead = MOST_AHEAD // 4
    while given < len(memory):
        used = at_first - free() + given
        ahead = min(max(ahead // 2, 4 * (used - last), PIECE), MOST_AHEAD)
        given += release(memory, given, used + ahead - given)
        last = used
        time.sleep(LOOKS)


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
