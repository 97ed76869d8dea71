"""A torch generator's state as text: small, checked, and put back where it came from."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import numpy as np
import torch

from forebay import _forebay

_CHECK_BYTES = 8


def packed(state: np.ndarray) -> str:
    """A generator's state in 3.4 KB of text, for a JSON file.

    It ends with a checksum: one wrong character would still be a generator's state, and
    the epoch an order that nobody asked for.
    """
    data = bytes(_forebay.pack_generator(state))
    return base64.b64encode(data + _check(data)).decode()


def unpacked(text: Any, field: str, live: np.ndarray | None = None) -> np.ndarray:
    """The state that ``packed`` wrote, in the place of ``live``, whose cached normals stay.

    ``field`` is where it was found, for the error.
    """
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        content, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if _check(content) != check:
            raise ValueError("its checksum does not match")
        if live is None:
            live = torch.Generator().get_state().numpy()
        return _forebay.unpack_generator(content, live)
    except (ValueError, binascii.Error, _forebay.Error) as error:
        raise _forebay.InvalidError(
            f"the state is damaged: {field} is not the state of a generator: {error}"
        ) from None


def put_back(generator: torch.Generator, text: str, field: str) -> None:
    """Make the generator go on from where it was when it was packed."""
    live = generator.get_state().numpy()
    generator.set_state(torch.from_numpy(unpacked(text, field, live)))


def _check(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECK_BYTES).digest()
