"""Batches that once never came: every loader here has a timeout, so a wait for ever is an error."""

import random

import forebay
import pytest
import torch
from buckets import objects_of
from data import class_folders, content
from PIL import Image
from servers import storage_options
from torchvision.transforms import v2

SECONDS = 60


def photographs(root, samples=192):
    """Images of 10 to 40 KB."""
    for number in range(samples):
        draw = random.Random(number)
        side = draw.randint(100, 200)
        folder = root / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = draw.randbytes(side * side * 3)
        Image.frombytes("RGB", (side, side), pixels).save(folder / f"{number:03}.jpg", quality=85)
    return root


def test_ranks_in_lockstep_all_get_their_batches_from_memory_that_holds_a_part(
    tmp_path, bucket, s3
):
    name = bucket(objects_of(photographs(tmp_path / "photos")))
    steps = [v2.Resize((32, 32)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    dataset = forebay.ImageFolder(
        f"s3://{name}/train",
        transform=v2.Compose(steps),
        storage_options=storage_options(s3.endpoint),
    )
    ranks = 4
    for seed in range(4):
        engine = forebay.Engine(memory="2MiB")
        loaders = [
            forebay.DataLoader(
                dataset,
                8,
                shuffle=True,
                seed=seed,
                rank=rank,
                world_size=ranks,
                engine=engine,
                cache_form="encoded",
                timeout=SECONDS,
            )
            for rank in range(ranks)
        ]
        for _ in range(3):
            assert len(list(zip(*loaders, strict=True))) == 6
        engine.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_after_every_error_the_next_batch_comes(tmp_path, threads):
    samples, bad = 24, (0, 1, 9, 16, 23)
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=samples))
    for number in bad:
        (tmp_path / "d" / dataset.path(number)).unlink()
    for seed in range(20):
        loader = forebay.DataLoader(
            dataset,
            2,
            shuffle=True,
            seed=seed,
            num_workers=threads,
            return_index=True,
            on_error="raise",
            timeout=SECONDS,
        )
        planned = torch.tensor(loader.order(0).tolist()).reshape(-1, 2).tolist()
        iterator = iter(loader)
        for numbers in planned:
            if set(numbers) & set(bad):
                with pytest.raises(forebay.CorruptError):
                    next(iterator)
            else:
                batch = next(iterator)
                assert batch[2].tolist() == numbers
                for sample, number in zip(batch[0], numbers, strict=True):
                    assert sample.numpy().tobytes() == content(number, 1000 + number % 7)
        assert next(iterator, None) is None
