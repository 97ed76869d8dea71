"""forebay with Lightning: `Trainer.fit` with DDP on two CPU processes.

    python examples/lightning_fit.py .data/demo

Stop in mid-epoch, then go on with exactly the samples that are left of it:

    python examples/lightning_fit.py .data/demo --stop-after 10
    python examples/lightning_fit.py .data/demo --resume
"""

from __future__ import annotations

import argparse

import forebay
import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from tiny_job import Seen, options, small_image, tiny_network
from torch import nn


class Images(lightning.LightningDataModule):
    """The training images."""

    def __init__(self, opts: argparse.Namespace) -> None:
        super().__init__()
        self.opts = opts
        self.dataset = forebay.ImageFolder(opts.data, transform=small_image)

    def train_dataloader(self) -> forebay.DataLoader:
        """With a seed the loader deals to the ranks by itself, and Lightning leaves it to that.

        Lightning calls `set_epoch` before each epoch, and puts the loader's state into its
        checkpoints and back: there is nothing to do for either.
        """
        return forebay.DataLoader(
            self.dataset,
            self.opts.batch_size,
            shuffle=True,
            num_workers=2,
            seed=self.opts.seed,
            return_index=True,  # only to write down which samples were seen
        )


class Network(lightning.LightningModule):
    """Trains the tiny network."""

    def __init__(self, classes: int, seen: Seen) -> None:
        super().__init__()
        self.network = tiny_network(classes)
        self.seen = seen

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """One step; the loss."""
        images, labels, ids = batch
        self.seen.add(self.current_epoch, ids)
        return nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


def checkpoint_after(opts: argparse.Namespace) -> list[ModelCheckpoint]:
    """Saves within the epoch: after `fit` Lightning would call the epoch finished."""
    if not opts.stop_after:
        return []
    return [
        ModelCheckpoint(
            dirpath=opts.checkpoint.parent,
            filename=opts.checkpoint.stem,
            every_n_train_steps=opts.stop_after,
            enable_version_counter=False,
        )
    ]


def main() -> None:
    """Trains, saves if asked to stop, writes what was seen."""
    opts = options(__doc__, counts_epochs=True)
    opts.checkpoint = opts.checkpoint.with_suffix(".ckpt")  # as Lightning names them
    lightning.seed_everything(opts.seed, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=opts.epochs,
        max_steps=opts.stop_after or -1,
        callbacks=checkpoint_after(opts),
        enable_checkpointing=bool(opts.stop_after),
        enable_progress_bar=False,
        logger=False,
    )
    seen = Seen()
    images = Images(opts)
    model = Network(len(images.dataset.classes), seen)
    trainer.fit(model, images, ckpt_path=str(opts.checkpoint) if opts.resume else None)
    seen.write(opts.seen)
    # Lightning leaves it open, and gloo's thread may then drop a tensor while Python ends.
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
