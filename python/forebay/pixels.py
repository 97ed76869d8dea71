"""Images that the engine has decoded, for steps of a transform that are written in Python.

They lie in the memory tier. A worker process maps that, and reads them where they are:

    | width u32 | height u32 | pixels, RGB | the file up to its first scan |

From the file's head Pillow reads what it would have read of the whole: EXIF, colour profile, and
whatever else is in ``info``; and it refuses what it would have refused.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any

from PIL import Image

Pieces = list[tuple[int, int]]  # offsets and lengths

_SIZE = struct.Struct("<II")


@dataclass(frozen=True)
class Decoded:
    """An image in the engine's form; only for as long as it is lent."""

    data: memoryview | bytes

    def image(self) -> Image.Image:
        """What ``convert("RGB")`` gives of the file, in memory of its own."""
        data = memoryview(self.data)
        width, height = _SIZE.unpack_from(data)
        end = _SIZE.size + width * height * 3
        with Image.open(io.BytesIO(data[end:])) as opened:
            info = opened.info
        image = Image.new("RGB", (width, height), None)
        image.frombytes(data[_SIZE.size : end], "raw", "RGB")
        image.info = dict(info)
        return image


class SharedTier:
    """The engine's memory tier, for processes that may read it."""

    def __init__(self, descriptor: int) -> None:
        self._fd = os.dup(descriptor)
        self._map: mmap.mmap | None = None

    def read(self, pieces: Pieces) -> Decoded:
        """An image that is lent to this process."""
        if self._map is None:
            self._map = mmap.mmap(self._fd, 0, prot=mmap.PROT_READ)
        view = memoryview(self._map)
        parts = [view[offset : offset + length] for offset, length in pieces]
        return Decoded(parts[0] if len(parts) == 1 else b"".join(parts))

    def __getstate__(self) -> Any:
        return DupFd(self._fd)  # to a process that is being spawned

    def __setstate__(self, duplicate: Any) -> None:
        self._fd = duplicate.detach()
        self._map = None

    def __del__(self) -> None:
        if "_fd" in self.__dict__:
            os.close(self._fd)
