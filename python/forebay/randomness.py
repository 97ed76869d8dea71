"""Randomness of the user's functions, apart from the training loop's own."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(*key: object) -> Iterator[None]:
    """Let torch, ``random`` and numpy draw from a stream of this key, then go on as before.

    torch's worker processes have generators of their own; here transforms run beside the
    training loop, and what they draw must change neither its numbers nor the order of
    the coming epochs. One key for each batch makes a resumed run draw the same again.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little") >> 1
    torch_state = torch.default_generator.get_state()
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)
