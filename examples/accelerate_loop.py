"""forebay with Hugging Face accelerate, on two CPU processes.

    torchrun --nproc-per-node 2 examples/accelerate_loop.py .data/demo

(`accelerate launch --cpu` starts several processes only where MPI is installed; torchrun
needs nothing, and the script is the same.)

Stop in mid-epoch, then go on with exactly the samples that are left of it:

    torchrun --nproc-per-node 2 examples/accelerate_loop.py .data/demo --stop-after 10
    torchrun --nproc-per-node 2 examples/accelerate_loop.py .data/demo --resume
"""

from __future__ import annotations

import argparse

import forebay
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tiny_job import Seen, options, small_image, tiny_network
from torch import nn


def train(opts: argparse.Namespace, accelerator: Accelerator, seen: Seen) -> None:
    """accelerate's usual loop: it deals the loader's batches to the ranks in turn."""
    dataset = forebay.ImageFolder(opts.data, transform=small_image)
    ours = forebay.DataLoader(
        dataset,
        opts.batch_size,
        shuffle=True,
        num_workers=2,
        seed=opts.seed,
        return_index=True,  # only to write down which samples were seen
    )
    set_seed(opts.seed)
    model = tiny_network(len(dataset.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, ours)
    # accelerate saves the states of its own samplers only, so the loader is registered.
    accelerator.register_for_checkpointing(loader)
    first = opts.first_epoch
    if opts.resume:
        accelerator.load_state(str(opts.checkpoint))
        first = loader.base_dataloader.state_dict()["epoch"]

    steps = 0
    for epoch in range(first, opts.epochs):
        loader.set_epoch(epoch)
        for images, labels, ids in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            seen.add(epoch, ids)
            steps += 1
            if steps == opts.stop_after:
                accelerator.save_state(str(opts.checkpoint))
                return


def main() -> None:
    """Trains, writes what was seen."""
    opts = options(__doc__)
    accelerator = Accelerator(cpu=True)
    seen = Seen()
    train(opts, accelerator, seen)
    seen.write(opts.seen)
    accelerator.end_training()


if __name__ == "__main__":
    main()
