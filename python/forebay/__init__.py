"""Forebay: a training-data cache and loader for PyTorch.

Change one import: ``forebay.DataLoader`` takes all of torch's arguments, in torch's
order, and yields the very indices that ``torch.utils.data.DataLoader`` would.
"""

from forebay import transforms
from forebay._forebay import (
    ClosedError,
    CorruptError,
    Error,
    ExhaustedError,
    InvalidError,
    UnavailableError,
    __version__,
)
from forebay.datasets import Dataset, FileFolder, Files, ImageFolder, TarFolder
from forebay.engine import Engine
from forebay.loader import DataLoader

__all__ = [
    "ClosedError",
    "CorruptError",
    "DataLoader",
    "Dataset",
    "Engine",
    "Error",
    "ExhaustedError",
    "FileFolder",
    "Files",
    "ImageFolder",
    "InvalidError",
    "TarFolder",
    "UnavailableError",
    "__version__",
    "transforms",
]
