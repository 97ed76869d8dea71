"""Class folders listed in Python, for a rule that only Python knows."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import tempfile
from collections.abc import Callable


def manifest_of_valid_files(
    root: str | os.PathLike[str], is_valid: Callable[[str], bool], allow_empty: bool
) -> tuple[str, list[str]]:
    """A manifest of the files that ``is_valid`` likes, and the class names.

    The order is torchvision's. The manifest lies in the cache, named by its content, so
    that processes that agree share it.
    """
    root = os.fspath(root)
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["path", "label"])
    for label, name in enumerate(classes):
        found = False
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if is_valid(path):
                    found = True
                    rows.writerow([os.path.relpath(path, root), label])
        if not found and not allow_empty:
            raise FileNotFoundError(f"Found no valid file for the classes {name}.")
    return _keep(text.getvalue().encode()), classes


def _keep(content: bytes) -> str:
    base = os.environ.get("FOREBAY_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "forebay"
    )
    folder = os.path.join(base, "manifests")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, hashlib.sha256(content).hexdigest()[:32] + ".csv")
    if not os.path.exists(path):
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    return path
