"""Training by Lightning's Trainer, with loaders handed over or from a LightningDataModule."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from common import Record, arguments, network, small
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


class Job(L.LightningModule):
    """A classifier that notes every batch."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out
        self.network = network()

    def on_fit_start(self) -> None:
        """The rank is known from here on."""
        self.record = Record(self.out, self.global_rank)

    def training_step(self, batch: Any, _number: int) -> torch.Tensor:
        """The loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.record.batch("train", images, labels, loss)
        return loss

    def validation_step(self, batch: Any, _number: int) -> None:
        """The same, without learning."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.record.batch("validate", images, labels, loss)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Data(L.LightningDataModule):
    """The loaders, made when the trainer asks for them."""

    def __init__(self, data: str) -> None:
        super().__init__()
        self.data = data

    def train_dataloader(self) -> DataLoader:
        """Shuffled."""
        dataset = ImageFolder(self.data, small)
        return DataLoader(dataset, batch_size=3, shuffle=True, num_workers=1)

    def val_dataloader(self) -> DataLoader:
        """In order."""
        return DataLoader(ImageFolder(self.data, small), batch_size=4)


def main() -> None:
    """Two epochs."""
    opts = arguments()
    if opts.style == "module":
        L.seed_everything(3)
    job, data = Job(opts.out), Data(opts.data)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=opts.ranks,
        strategy="ddp" if opts.ranks > 1 else "auto",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    if opts.style == "module":
        trainer.fit(job, datamodule=data)
    else:
        trainer.fit(job, data.train_dataloader(), data.val_dataloader())


if __name__ == "__main__":
    main()
