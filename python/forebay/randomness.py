"""Randomness of the user's functions, apart from the training loop's own."""

from __future__ import annotations

import hashlib
import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.utils.data

# Threads of libraries that only wait, write or send: they draw nothing.
_HARMLESS = ("tqdm.", "tensorboard.", "torch.utils.data._utils.", "multiprocessing.queues.")

_log = logging.getLogger("forebay")
_told = False


@contextmanager
def seeded(*key: object) -> Iterator[None]:
    """Let torch, ``random`` and numpy draw from a stream of this key, then go on as before.

    torch's worker processes have generators of their own; here transforms run beside the
    training loop, and what they draw must change neither its numbers nor the order of
    the coming epochs. One key for each batch makes a resumed run draw the same again.

    The generators are the whole process's. Where another thread might draw from them meanwhile
    they are left alone, and the functions draw as they do with torch and no workers.
    """
    if torch.utils.data.get_worker_info() is None and _others_may_draw():
        before = _states()
        yield
        if not _equal(before, _states()):
            _tell_once()
        return
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little") >> 1
    torch_state, python_state, numpy_state = _states()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _states() -> tuple[torch.Tensor, Any, Any]:
    return torch.default_generator.get_state(), random.getstate(), np.random.get_state()


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, tuple):
        return all(_equal(a, b) for a, b in zip(left, right, strict=True))
    return (
        np.array_equal(left, right)
        if isinstance(left, np.ndarray)
        else bool(torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right)
    )


def _others_may_draw() -> bool:
    """Whether a thread is alive, beside this one, that is not known to draw nothing."""
    if threading.active_count() == 1:
        return False
    this = threading.current_thread()
    return any(
        thread is not this and not _origin(thread).startswith(_HARMLESS)
        for thread in threading.enumerate()
    )


def _origin(thread: threading.Thread) -> str:
    """The module that a thread's work is from."""
    if type(thread) is not threading.Thread:
        return f"{type(thread).__module__}."
    target = getattr(thread, "_target", None)
    return f"{getattr(target, '__module__', '')}."


def _tell_once() -> None:
    # By the log: a warning that is an error would lose the batch.
    global _told
    if not _told:
        _told = True
        _log.warning(
            "other Python threads are alive, so random transforms draw from the process's own "
            "generators and a resumed epoch draws other numbers; hint: num_workers=1 gives them "
            "generators of their own"
        )
