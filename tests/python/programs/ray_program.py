"""Training by Ray Train on workers of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from common import Record, arguments, network, small
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def train(settings: dict[str, Any]) -> None:
    """Two epochs on one worker."""
    context = ray.train.get_context()
    record = Record(Path(settings["out"]), context.get_world_rank())
    model = ray.train.torch.prepare_model(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dataset = ImageFolder(settings["data"], small)
    loader = DataLoader(dataset, batch_size=3, shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    for epoch in range(2):
        if context.get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.batch("train", images, labels, loss)


def main() -> None:
    """Ray started here, on this machine alone, and gone afterwards."""
    opts = arguments()
    ray.init(
        num_cpus=opts.ranks,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
    )
    try:
        ray.train.torch.TorchTrainer(
            train,
            train_loop_config={"data": opts.data, "out": str(opts.out)},
            scaling_config=ray.train.ScalingConfig(num_workers=opts.ranks),
            run_config=ray.train.RunConfig(storage_path=str(opts.out / "ray")),
        ).fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
