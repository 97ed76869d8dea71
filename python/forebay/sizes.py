"""Sizes in bytes, as people write them."""

import re

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def in_bytes(size: int | str, name: str) -> int:
    """``"2GiB"`` or a number as bytes; ``name`` is the argument it came from."""
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(f"{name} is a number of bytes or a text such as '2GiB', not {size!r}")
    if isinstance(size, int):
        value = size
    else:
        match = _PATTERN.fullmatch(size)
        unit = _UNITS.get(match[2].upper()) if match else None
        if match is None or unit is None:
            raise ValueError(f"{name}={size!r} is not a size; hint: write it as '512MiB' or '2GiB'")
        value = int(float(match[1]) * unit)
    if not 0 <= value < 2**63:
        raise ValueError(f"{name}={size!r} is out of range")
    return value
