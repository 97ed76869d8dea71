"""``forebay.Engine``: memory, disk cache, threads and network that loaders share."""

from __future__ import annotations

import operator
import os
import threading
from typing import Any

from forebay import _forebay
from forebay.disk import NEEDS_THE_ORDER, CacheDir, chunk_of, directories
from forebay.sizes import in_bytes

# More would only stand in each other's way, and a million would not start.
MOST_THREADS = 256

# Held while an engine is started, so that threads that share one start it once.
_starting = threading.Lock()


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()  # a thread that is not in the child may have held the old one


os.register_at_fork(after_in_child=_after_fork)


class Engine:
    """What several loaders of a process share, one for each local rank, say.

    Each loader has a queue of its own; the crew's threads go where batches would come late::

        engine = forebay.Engine(memory="8GiB")
        loaders = [forebay.DataLoader(data, 256, seed=0, rank=rank, world_size=4, engine=engine)
                   for rank in range(4)]

    - ``memory``, ``readahead``, ``policy``: as of a ``DataLoader``, for all of them together.
    - ``num_workers``: threads, of which those rest that would only crowd the cores; ``"auto"``: as
      many as turn out to be of use.
    - ``split``: (loading, preparing) threads, once and for all, each loader with an equal share of
      the loading ones; ``None``: found, and changed as the run goes on.
    - ``cache_dir``, ``disk``, ``chunk``: as of a ``DataLoader``, but nothing is kept on disk unless
      asked for.
    """

    def __init__(
        self,
        *,
        memory: int | str = "2GiB",
        readahead: int | str = "256MiB",
        policy: str = "farthest",
        num_workers: int | str = "auto",
        split: tuple[int, int] | None = None,
        cache_dir: CacheDir | None = None,
        disk: int | str | None = None,
        chunk: int | str | None = None,
    ) -> None:
        settings = engine_settings(memory, readahead, policy, num_workers, split)
        size = chunk_of(chunk)
        if cache_dir is not None or disk is not None:
            budget = None if disk is None else in_bytes(disk, "disk")
            if budget != 0:
                # Several loaders are several ranks: an order of one of them is not the log's.
                dirs = directories(cache_dir)
                settings |= {"cache_dirs": dirs, "disk": budget, "layout": "packed", "chunk": size}
        self._settings = settings
        self._native: _forebay.Engine | None = None

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Engine:
        """One with settings that were checked already."""
        engine = cls.__new__(cls)
        engine._settings = settings
        engine._native = None
        return engine

    @property
    def memory(self) -> int:
        """Bytes of the memory tier."""
        return int(self._settings["memory"])

    @property
    def is_shared(self) -> bool:
        """Whether worker processes may map its memory tier."""
        return bool(self._settings.get("shared"))

    @property
    def settings(self) -> dict[str, Any]:
        """What the native engine is told."""
        return dict(self._settings)

    @property
    def native(self) -> _forebay.Engine | None:
        """What runs in this process, if it was started."""
        native = self._native
        return native if native is not None and native.is_ours else None

    def serve_several_ranks(self) -> None:
        """Told before the start by a loader that is one of several ranks."""
        if self.native is None and self._settings.get("layout", "packed") != "packed":
            if self._settings["layout"] == "reorder":
                raise ValueError(NEEDS_THE_ORDER)
            self._settings["layout"] = "packed"

    def start(self) -> _forebay.Engine:
        """What runs in this process; started by the first loader that is iterated."""
        with _starting:
            native = self.native
            if native is None:
                native = self._native = _forebay.Engine(**self._settings)
            return native

    def stats(self) -> dict[str, Any]:
        """Figures so far of memory, disk cache and crew; none before it is used."""
        return {} if self.native is None else self.native.stats()

    def close(self) -> None:
        """End threads and network now, rather than when the last loader is dropped."""
        native, self._native = self._native, None
        if native is not None:
            native.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew on the other side: what runs belongs to its process.
        return Engine.of, (self._settings,)

    def __repr__(self) -> str:
        return f"forebay.Engine(memory={self.memory})"


def engine_settings(
    memory: int | str,
    readahead: int | str,
    policy: str,
    num_workers: int | str,
    split: tuple[int, int] | None,
) -> dict[str, Any]:
    """What the native engine is told, checked."""
    if policy not in _forebay.POLICIES:
        names = ", ".join(map(repr, _forebay.POLICIES))
        raise ValueError(f"policy={policy!r} is not one of {names}")
    return {
        "memory": in_bytes(memory, "memory"),
        "readahead": in_bytes(readahead, "readahead"),
        "policy": policy,
        "threads": threads_of(num_workers),
        "split": _split_of(split),
    }


def threads_of(num_workers: int | str) -> int:
    """How many threads are asked for; 0 for as many as are of use."""
    if num_workers == "auto":
        return 0
    if isinstance(num_workers, bool | str):
        raise ValueError(f'num_workers={num_workers!r} is neither a number nor "auto"')
    try:
        number = operator.index(num_workers)  # numpy's numbers too
    except TypeError:
        raise ValueError(f'num_workers={num_workers!r} is neither a number nor "auto"') from None
    if number < 0:
        raise ValueError(f"num_workers={number} is negative")
    return min(number, MOST_THREADS)


def _split_of(split: tuple[int, int] | None) -> tuple[int, int] | None:
    if split is None:
        return None
    numbers = list(split) if isinstance(split, tuple | list) else []
    # One of each at the least: nobody does another's work, and both must be done.
    whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in numbers)
    if len(numbers) != 2 or not whole or sum(numbers) > MOST_THREADS:
        raise ValueError(
            f"split={split!r} is not (loading, preparing): two numbers of threads from 1, together "
            f"at most {MOST_THREADS}"
        )
    return numbers[0], numbers[1]
