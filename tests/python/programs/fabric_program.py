"""Training by a loop of the user's own under Lightning Fabric."""

from __future__ import annotations

import lightning as L
import torch
from common import Record, arguments, network, small
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def main() -> None:
    """Two epochs."""
    opts = arguments()
    strategy = "ddp" if opts.ranks > 1 else "auto"
    fabric = L.Fabric(accelerator="cpu", devices=opts.ranks, strategy=strategy)
    fabric.launch()
    record = Record(opts.out, fabric.global_rank)
    model = network()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05))
    dataset = ImageFolder(opts.data, small)
    loader = fabric.setup_dataloaders(DataLoader(dataset, batch_size=3, shuffle=True))
    for _ in range(2):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            fabric.backward(loss)
            optimizer.step()
            record.batch("train", images, labels, loss)


if __name__ == "__main__":
    main()
