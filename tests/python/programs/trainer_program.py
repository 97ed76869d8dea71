"""Training by Hugging Face's Trainer, with loaders of the user's own."""

from __future__ import annotations

from typing import Any

import torch
from common import Record, arguments, network, small
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from transformers import Trainer, TrainingArguments


def named(samples: list[Any]) -> dict[str, torch.Tensor]:
    """The form in which Trainer hands a batch to the model."""
    images, labels = zip(*samples, strict=True)
    return {"images": torch.stack(images), "labels": torch.tensor(labels)}


class Classifier(nn.Module):
    """Answers with the loss, as models for Trainer do."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.network = network()
        self.record = record

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss, and what was found."""
        found = self.network(images)
        loss = nn.functional.cross_entropy(found, labels)
        self.record.batch("train" if self.training else "validate", images, labels, loss)
        return {"loss": loss, "logits": found}


class Job(Trainer):
    """Trainer with the loaders overridden, as its documentation shows."""

    def get_train_dataloader(self) -> Any:
        """Shuffled."""
        loader = DataLoader(self.train_dataset, batch_size=3, shuffle=True, collate_fn=named)
        return self.accelerator.prepare(loader)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """In order."""
        loader = DataLoader(eval_dataset or self.eval_dataset, batch_size=4, collate_fn=named)
        return self.accelerator.prepare(loader)


def main() -> None:
    """Two epochs, each with an evaluation."""
    opts = arguments()
    settings = TrainingArguments(
        output_dir=str(opts.out / "checkpoints"),
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        gradient_accumulation_steps=2,
        disable_tqdm=True,
        label_names=["labels"],
        remove_unused_columns=False,
        learning_rate=0.05,
        optim="sgd",
        seed=3,
    )
    record = Record(opts.out, settings.process_index)
    dataset = ImageFolder(opts.data, small)
    job = Job(Classifier(record), settings, train_dataset=dataset, eval_dataset=dataset)
    done = job.train()
    record.note("steps", done.global_step)
    record.note("loss", round(job.evaluate()["eval_loss"], 5))


if __name__ == "__main__":
    main()
