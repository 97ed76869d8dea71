"""forebay under torchrun: DistributedDataParallel on two CPU processes.

    torchrun --nproc-per-node 2 examples/torchrun_gloo.py .data/demo

Stop in mid-epoch, then go on with exactly the samples that are left of it:

    torchrun --nproc-per-node 2 examples/torchrun_gloo.py .data/demo --stop-after 10
    torchrun --nproc-per-node 2 examples/torchrun_gloo.py .data/demo --resume
"""

from __future__ import annotations

import argparse

import forebay
import torch
import torch.distributed
from tiny_job import Seen, options, small_image, tiny_network
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(opts: argparse.Namespace, seen: Seen) -> None:
    """The usual loop; forebay shows in the loader, its epoch and its state."""
    dataset = forebay.ImageFolder(opts.data, transform=small_image)
    # No DistributedSampler: rank and world size are found from the process group, and the
    # order is the one that DistributedSampler(shuffle=True, seed=...) would deal.
    loader = forebay.DataLoader(
        dataset,
        opts.batch_size,
        shuffle=True,
        num_workers=2,
        seed=opts.seed,
        return_index=True,  # only to write down which samples were seen
    )
    torch.manual_seed(opts.seed)
    model = DistributedDataParallel(tiny_network(len(dataset.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = opts.first_epoch
    if opts.resume:
        saved = torch.load(opts.checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        # One rank's state serves all of them: they all stopped after the same step.
        loader.load_state_dict(saved["loader"])
        first = saved["loader"]["epoch"]

    steps = 0
    for epoch in range(first, opts.epochs):
        loader.set_epoch(epoch)
        for images, labels, ids in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.add(epoch, ids)
            steps += 1
            if steps == opts.stop_after:
                if torch.distributed.get_rank() == 0:
                    state = {
                        "model": model.module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        # What was yielded counts, not what was fetched ahead.
                        "loader": loader.state_dict(),
                    }
                    torch.save(state, opts.checkpoint)
                return


def main() -> None:
    """Sets up the process group, trains, writes what was seen."""
    opts = options(__doc__)
    torch.distributed.init_process_group("gloo")
    seen = Seen()
    train(opts, seen)
    seen.write(opts.seen)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
