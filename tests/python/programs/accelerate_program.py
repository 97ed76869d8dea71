"""Training by accelerate: gradients over several batches, metrics gathered from all ranks."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from common import Record, arguments, network, small
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def main() -> None:
    """Two epochs, each with an evaluation of every sample once."""
    opts = arguments()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    set_seed(3)
    record = Record(opts.out, accelerator.process_index)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dataset = ImageFolder(opts.data, small)
    train = DataLoader(dataset, batch_size=3, shuffle=True)
    evaluation = DataLoader(dataset, batch_size=4)
    model, optimizer, train, evaluation = accelerator.prepare(model, optimizer, train, evaluation)
    for _ in range(2):
        steps = 0
        for images, labels in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                steps += accelerator.sync_gradients
                optimizer.step()
                optimizer.zero_grad()
            record.batch("train", images, labels, loss)
        record.note("steps of the optimizer", steps)
        gathered = []
        with torch.no_grad():
            for images, labels in evaluation:
                found = model(images).argmax(1) == labels
                gathered += accelerator.gather_for_metrics((found, labels))[1].tolist()
        record.note("gathered", gathered)
    weights = next(accelerator.unwrap_model(model).parameters())
    record.note("weights", round(float(weights.detach().double().abs().sum()), 6))
    accelerator.end_training()


if __name__ == "__main__":
    main()
