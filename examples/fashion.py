"""Train on Fashion-MNIST with torchvision's loader and with forebay's: the same accuracy?

Both loaders get the same transform objects, the same initial weights and the same order of
samples; only the dice of the augmentation differ. Accuracy is that on the test set. The
curves of all seeds are plotted to a PNG.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fashion_data
import forebay
import torch
import torch.utils.data
from torch import nn
from torchvision import datasets, transforms

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = """examples:
  python examples/fashion.py                              # all of it: up to half an hour
  python examples/fashion.py --samples 5000 --epochs 2    # a quick look
  python examples/fashion.py --loader forebay --seeds 1
  python examples/fashion.py --data DIR                   # your own DIR/train/*/ and DIR/test/*/

needs: torch torchvision numpy pillow matplotlib, and npm to fetch the images once"""
BATCH = 128
WORKERS = 2

to_tensor = [transforms.ToTensor(), transforms.Normalize([0.286] * 3, [0.353] * 3)]
augment = [transforms.RandomCrop(28, padding=2), transforms.RandomHorizontalFlip()]
TRAINING = transforms.Compose([*augment, *to_tensor])
TESTING = transforms.Compose(to_tensor)

Curve = list[float]


def torchvision_loader(root: Path, transform: Any, seed: int | None) -> Iterable[Any]:
    """What most scripts have. With a seed shuffled, else in order."""
    return torch.utils.data.DataLoader(
        datasets.ImageFolder(root, transform),
        BATCH,
        shuffle=seed is not None,
        num_workers=WORKERS,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(seed or 0),
    )


def forebay_loader(root: Path, transform: Any, seed: int | None) -> Iterable[Any]:
    """The same with two names changed."""
    return forebay.DataLoader(
        forebay.ImageFolder(root, transform),
        BATCH,
        shuffle=seed is not None,
        num_workers=WORKERS,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(seed or 0),
    )


LOADERS: dict[str, Callable[[Path, Any, int | None], Iterable[Any]]] = {
    "torchvision": torchvision_loader,
    "forebay": forebay_loader,
}


def network(classes: int) -> nn.Module:
    """A small convolutional network."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 3 * 3, classes))


def accuracy(model: nn.Module, loader: Iterable[Any]) -> float:
    """Share of the samples that the network names rightly."""
    model.eval()
    right = samples = 0
    with torch.no_grad():
        for images, labels in loader:
            right += int((model(images).argmax(1) == labels).sum())
            samples += len(labels)
    model.train()
    return right / samples


def train(loader: str, root: Path, seed: int, epochs: int) -> Curve:
    """Test accuracy after each epoch."""
    torch.manual_seed(seed)
    make = LOADERS[loader]
    training, testing = make(root / "train", TRAINING, seed), make(root / "test", TESTING, None)
    model = network(len(datasets.folder.find_classes(root / "train")[0]))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    curve: Curve = []
    for epoch in range(epochs):
        start, samples = time.perf_counter(), 0
        for images, labels in training:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples += len(labels)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{loader}, seed {seed}, epoch {epoch + 1}: {samples} samples")
        schedule.step()
        seconds = time.perf_counter() - start
        curve.append(accuracy(model, testing))
        sys.stderr.write(
            f"{chr(13) if sys.stderr.isatty() else ''}{loader}, seed {seed}, "
            f"epoch {epoch + 1} of {epochs}: {curve[-1]:.2%}, {samples / seconds:,.0f} samples/s\n"
        )
    return curve


def report(curves: dict[str, list[Curve]], seeds: range) -> None:
    """The last accuracy of each seed, then mean and spread, and the difference of the means."""
    print("loader       " + "".join(f"  seed {seed}" for seed in seeds) + "     mean   spread")
    means, spreads = [], []
    for loader, found in curves.items():
        last = [curve[-1] for curve in found]
        means.append(statistics.mean(last))
        spreads.append(statistics.stdev(last) if len(last) > 1 else 0.0)
        cells = "".join(f"  {value:6.2%}" for value in last)
        print(f"{loader:13}{cells}   {means[-1]:6.2%}   {spreads[-1]:6.2%}")
    if len(means) == 2:
        print(f"difference of the means: {means[1] - means[0]:+.2%} (spread: standard deviation)")


def plot(curves: dict[str, list[Curve]], path: Path) -> None:
    """All curves, a colour for each loader."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for (loader, found), colour in zip(curves.items(), ("tab:blue", "tab:orange"), strict=False):
        epochs = range(1, len(found[0]) + 1)
        for curve in found:
            axes.plot(epochs, [100 * value for value in curve], color=colour, alpha=0.3)
        mean = [100 * statistics.mean(values) for values in zip(*found, strict=True)]
        axes.plot(epochs, mean, "o-", color=colour, label=f"{loader}, mean of {len(found)}")
    axes.set(xlabel="epoch", ylabel="test accuracy, %", title="same transforms, either loader")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def arguments() -> argparse.Namespace:
    """The options, checked before anything is fetched or trained."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--loader", choices=(*LOADERS, "both"), default="both")
    parser.add_argument("--seeds", type=positive, default=3, help="trainings with each loader")
    parser.add_argument("--epochs", type=positive, default=5)
    parser.add_argument("--samples", type=positive, help="train on so many only, for a quick run")
    parser.add_argument(
        "--data", type=Path, help="class folders in DIR/train and DIR/test; default: fetched"
    )
    parser.add_argument(
        "--plot", type=Path, default=Path("fashion.png"), help="where the curves go: %(default)s"
    )
    options = parser.parse_args()
    if options.data is not None:
        for part in ("train", "test"):
            if not (options.data / part).is_dir():
                parser.error(f"--data {options.data}: there is no directory {part} in it")
    return options


def main() -> None:
    """The images, the trainings in turns, the table and the plot."""
    options = arguments()
    try:
        import matplotlib  # noqa: F401  (told now rather than after the training)
    except ModuleNotFoundError:
        sys.exit("the plot needs matplotlib\nhint: pip install matplotlib")
    # One core for the network, the others for the loader: sharing them slows all of it.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    root = options.data or fashion_data.make(REPOSITORY / ".data" / "fashion")
    names = list(LOADERS) if options.loader == "both" else [options.loader]
    curves: dict[str, list[Curve]] = {name: [] for name in names}
    seeds = range(1, options.seeds + 1)
    with tempfile.TemporaryDirectory(prefix="fashion-") as directory:
        if options.samples is not None:
            root = fashion_data.subset(root, options.samples, Path(directory))
        for seed in seeds:
            for name in names:
                curves[name].append(train(name, root, seed, options.epochs))
    report(curves, seeds)
    plot(curves, options.plot)
    print(f"curves: {options.plot}")


def only_here(action: Callable[[], None]) -> None:
    """Ctrl-C reaches worker processes too; this one alone answers it, and ends them."""
    process = os.getpid()

    def interrupt(*_: Any) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        action()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    only_here(main)
