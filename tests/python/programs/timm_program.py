"""Training with timm's transforms, samplers, collation and prefetching."""

from __future__ import annotations

import torch
from common import Record, arguments, network
from timm.data import FastCollateMixup, create_transform
from timm.data.distributed_sampler import OrderedDistributedSampler, RepeatAugSampler
from timm.data.loader import PrefetchLoader, fast_collate
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def main() -> None:
    """What timm's own create_loader puts together, for both of two ranks."""
    opts = arguments()
    torch.manual_seed(3)
    transform = create_transform((3, 8, 8), is_training=False, use_prefetcher=True, crop_pct=1.0)
    dataset = ImageFolder(opts.data, transform)
    for rank in range(opts.ranks):
        record = Record(opts.out, rank)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        repeated = RepeatAugSampler(dataset, opts.ranks, rank, num_repeats=2)
        train = PrefetchLoader(
            DataLoader(dataset, 3, sampler=repeated, collate_fn=fast_collate, drop_last=True),
            device=torch.device("cpu"),
        )
        ordered = OrderedDistributedSampler(dataset, opts.ranks, rank)
        evaluation = PrefetchLoader(
            DataLoader(dataset, 4, sampler=ordered, collate_fn=fast_collate),
            device=torch.device("cpu"),
        )
        record.note("lengths", [len(train), len(evaluation), len(train.dataset)])
        for epoch in range(2):
            train.sampler.set_epoch(epoch)
            for images, labels in train:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.batch("train", images, labels, loss)
            for images, labels in evaluation:
                loss = nn.functional.cross_entropy(model(images), labels)
                record.batch("validate", images, labels, loss)
        mixed = DataLoader(
            dataset, 4, shuffle=True, collate_fn=FastCollateMixup(num_classes=3), drop_last=True
        )
        record.note("mixed", [list(images.shape) for images, _ in mixed])


if __name__ == "__main__":
    main()
