"""Class folders listed in Python, for a rule that only Python knows."""

from __future__ import annotations

import atexit
import csv
import functools
import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable

from forebay._forebay import InvalidError


def manifest_of_valid_files(
    root: str | os.PathLike[str], is_valid: Callable[[str], bool], allow_empty: bool
) -> tuple[str, list[str]]:
    """A manifest of the files that ``is_valid`` likes, and the class names.

    The order is torchvision's. The manifest lies in the cache, named by its content, so
    that processes that agree share it.
    """
    root = os.fspath(root)
    if "://" in root:
        raise InvalidError(
            "is_valid_file= is asked about local files; hint: name those of a bucket "
            "in a manifest, for forebay.Files"
        )
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


def cache_home() -> str:
    """Where caches are by default: FOREBAY_CACHE, else where XDG says."""
    return os.environ.get("FOREBAY_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "forebay"
    )


def _keep(content: bytes) -> str:
    base = cache_home()
    name = hashlib.sha256(content).hexdigest()[:32] + ".csv"
    try:
        return _write(os.path.join(base, "manifests"), name, content)
    except OSError as error:
        print(f"forebay: manifest cannot be kept in {base}: {error}", file=sys.stderr)
        return _write(_folder_of_this_process(), name, content)


@functools.cache
def _folder_of_this_process() -> str:
    folder = tempfile.mkdtemp(prefix="forebay-")
    atexit.register(_remove_unless_forked, folder, os.getpid())
    return folder


def _remove_unless_forked(folder: str, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: str, name: str, content: bytes) -> str:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    return path
