"""What the framework examples share: options, images, a network, a record of what was seen.

Nothing here is about forebay; the three scripts show how it goes with each framework.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torchvision import transforms

# To the size that the network takes, as a tensor; any transform of torchvision's will do.
small_image = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])


def options(description: str | None, counts_epochs: bool = False) -> argparse.Namespace:
    """The options of an example; a framework that counts epochs itself starts at 0."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="images in class folders: a path, or a URL such as s3://...")
    parser.add_argument("--epochs", type=int, default=3, help="train up to this epoch")
    if not counts_epochs:
        parser.add_argument("--first-epoch", type=int, default=0, help="train from this epoch on")
    parser.add_argument("--batch-size", type=int, default=16, help="samples a rank and step")
    parser.add_argument("--seed", type=int, default=7, help="of the order and the weights")
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="save and end then")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint"), metavar="PATH")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--seen", type=Path, metavar="FILE", help="write the samples seen, as JSON")
    return parser.parse_args()


def tiny_network(classes: int) -> nn.Module:
    """As little as learns anything."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(8 * 16, classes),
    )


class Seen:
    """The numbers of the samples this rank trained on, by epoch."""

    def __init__(self) -> None:
        self.by_epoch: dict[int, list[int]] = {}

    def add(self, epoch: int, ids: torch.Tensor) -> None:
        """One more batch."""
        self.by_epoch.setdefault(epoch, []).extend(ids.tolist())

    def write(self, path: Path | None) -> None:
        """All ranks' records into one file: a list by rank. Every rank calls this."""
        ranks: list[dict[int, list[int]]] = [{}] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(ranks, self.by_epoch)
        if path is not None and torch.distributed.get_rank() == 0:
            path.write_text(json.dumps(ranks))
