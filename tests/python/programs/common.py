"""What the programs share: a network, and a record of what each rank was given.

The programs are written as users of torch write them, against torch's own loader.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision import transforms

small = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])


def arguments() -> argparse.Namespace:
    """Where the images are, where the record goes, on how many ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--style", default="plain")
    return parser.parse_args()


def network(classes: int = 3) -> nn.Module:
    """The same weights in every run."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes))


class Record:
    """What a rank was given: the brightness and label of every sample, and the losses."""

    def __init__(self, out: Path, rank: int) -> None:
        self.path = out / f"rank{rank}.json"
        self.told: list[Any] = []

    def batch(self, kind: str, images: torch.Tensor, labels: torch.Tensor, loss: Any) -> None:
        """One batch. The brightness of an image tells which one it is."""
        seen = [round(float(image.double().sum()), 6) for image in images]
        self.told.append([kind, seen, labels.tolist(), round(float(loss), 6)])
        self._write()

    def note(self, kind: str, value: Any) -> None:
        """Anything else that must be the same in every run."""
        self.told.append([kind, value])
        self._write()

    def _write(self) -> None:
        self.path.write_text(json.dumps(self.told))
