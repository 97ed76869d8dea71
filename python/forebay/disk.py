"""The disk cache's settings: where, how much, laid out how."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.listing import cache_home
from forebay.sizes import in_bytes

if TYPE_CHECKING:
    from forebay.views import View

LAYOUTS = ("auto", "packed", "reorder")

# What a request of the disk cache may have. Its buffers are a part of memory=: a chunk that they do
# not hold is shortened, which is said.
LEAST_CHUNK = 64 << 10
MOST_CHUNK = 1 << 30

# With less memory nothing is kept on disk by itself: its buffers take an eighth of it.
_WORTHWHILE = 16 << 20

NEEDS_THE_ORDER = (
    'layout="reorder" needs the order of the next epoch, of all samples: one rank, and an order '
    'that forebay makes; hint: layout="packed"'
)

CacheDir = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def disk_settings(
    view: View | None,
    cache_dir: CacheDir | None,
    disk: int | str | None,
    layout: str,
    chunk: int | str | None,
    *,
    memory: int,
    known_ahead: bool,
) -> dict[str, Any]:
    """What the engine is to know of the disk; nothing if nothing is kept there.

    Datasets behind a network are kept by default. Local files are only if that is asked for:
    a copy on the same disk gains little.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} is not one of {', '.join(map(repr, LAYOUTS))}")
    if not known_ahead:
        if layout == "reorder":
            raise ValueError(NEEDS_THE_ORDER)
        layout = "packed"
    budget = None if disk is None else in_bytes(disk, "disk")
    size = chunk_of(chunk)
    dirs = directories(cache_dir)
    asked_for = cache_dir is not None or disk is not None
    if view is None or budget == 0:
        return {}
    if not asked_for and (view.native.is_local or memory < _WORTHWHILE):
        return {}
    return {"cache_dirs": dirs, "disk": budget, "layout": layout, "chunk": size}


def chunk_of(chunk: int | str | None) -> int | None:
    """Bytes of a chunk, checked; None for what suits the layout."""
    if chunk is None:
        return None
    size = in_bytes(chunk, "chunk")
    if not LEAST_CHUNK <= size <= MOST_CHUNK:
        raise ValueError(
            f"chunk={chunk!r} is not between {LEAST_CHUNK >> 10}KiB and {MOST_CHUNK >> 20}MiB"
        )
    return size


def directories(cache_dir: CacheDir | None) -> list[str]:
    """The directories of a cache, checked; the default one if none is named."""
    if cache_dir is None:
        return [cache_home()]
    if isinstance(cache_dir, str | os.PathLike):
        cache_dir = [cache_dir]
    if not isinstance(cache_dir, Sequence) or not cache_dir:
        raise TypeError(f"cache_dir={cache_dir!r} is neither a path nor a list of paths")
    paths = []
    for path in cache_dir:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise TypeError(f"cache_dir has {path!r}, which is not a path")
        paths.append(os.path.abspath(os.path.expanduser(os.fspath(path))))
    if len(set(paths)) < len(paths):
        raise ValueError(f"cache_dir={cache_dir!r} names a directory twice")
    if len(paths) > 127:
        raise ValueError(f"cache_dir has {len(paths)} directories; at most 127 are used")
    return paths
