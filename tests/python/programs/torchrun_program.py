"""A loop of the user's own under torchrun: torch's sampler, and rank 0 evaluates everything."""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import Record, arguments, network, small
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder


def main() -> None:
    """Two epochs, each with an evaluation by the first rank."""
    opts = arguments()
    dist.init_process_group("gloo")
    record = Record(opts.out, dist.get_rank())
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dataset = ImageFolder(opts.data, small)
    sampler = DistributedSampler(dataset, shuffle=True)
    train = DataLoader(dataset, batch_size=3, sampler=sampler)
    evaluation = DataLoader(dataset, batch_size=4)
    few = DataLoader(torch.utils.data.Subset(dataset, range(5, 20)), batch_size=4)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.batch("train", images, labels, loss)
        if dist.get_rank() == 0:
            for loader in (evaluation, few):
                for images, labels in loader:
                    loss = nn.functional.cross_entropy(model.module(images), labels)
                    record.batch("validate", images, labels, loss)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
