"""Images by the native path, from the user's own transform to the batch."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import forebay
import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from servers import storage_options
from torchvision.transforms import v2

tv = torchvision.transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
EVAL = tv.Compose([tv.Resize(40), tv.CenterCrop(32), tv.ToTensor(), tv.Normalize(MEAN, STD)])
TRAIN = tv.Compose(
    [tv.RandomResizedCrop(32), tv.RandomHorizontalFlip(), tv.ToTensor(), tv.Normalize(MEAN, STD)]
)


def photo(number: int) -> Image.Image:
    """A smooth picture of its own size, with some noise."""
    draw = np.random.default_rng(number)
    width, height = int(draw.integers(50, 90)), int(draw.integers(45, 80))
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    waves = [np.sin(x / draw.uniform(4, 20) + y / draw.uniform(4, 20)) for _ in range(3)]
    pixels = 128 + 90 * np.stack(waves, -1) + draw.normal(0, 6, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 pictures in 3 classes, JPEG, PNG and WebP."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(48):
        folder = root / f"class{number % 3}"
        folder.mkdir(exist_ok=True)
        kind = ("jpg", "png", "webp")[number % 4 % 3]
        photo(number).save(folder / f"{number:03}.{kind}", quality=92)
    return root


def loader(root: Path, transform: object = TRAIN, **options: object) -> forebay.DataLoader:
    settings: dict[str, object] = {"batch_size": 10, "shuffle": True, "num_workers": 2, "seed": 5}
    dataset_options = {"target_transform": options.pop("target_transform", None)}
    dataset = forebay.ImageFolder(root, transform=transform, **dataset_options)
    return forebay.DataLoader(dataset, **(settings | options))


def everything(made: forebay.DataLoader, epochs: int = 1) -> list[torch.Tensor]:
    return [images.clone() for _ in range(epochs) for images, _ in made]


def same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_a_batch_is_what_default_collate_gives(photos):
    batch = next(iter(loader(photos, EVAL, shuffle=False)))
    items = torchvision.datasets.ImageFolder(photos, EVAL)
    expected = torch.utils.data.default_collate([items[i] for i in range(10)])
    assert type(batch) is type(expected)
    for ours, theirs in zip(batch, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert ours.is_contiguous()
    assert torch.equal(batch[1], expected[1])


def test_pixels_are_torchvisions(photos):
    theirs = torchvision.datasets.ImageFolder(photos, EVAL)
    std = torch.tensor(STD).view(3, 1, 1)
    position = 0
    for images, labels in loader(photos, EVAL, shuffle=False):
        for image, label in zip(images, labels, strict=True):
            expected, number = theirs[position]
            assert number == label
            levels = ((image - expected) * std * 255).abs().round()
            assert levels.max() <= 1
            position += 1
    assert position == 48


@pytest.mark.parametrize("form", ["auto", "encoded", "decoded"])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_same_seed_gives_the_same_bytes_whatever_the_threads_and_the_form(
    photos, workers, form
):
    expected = everything(loader(photos, num_workers=1, cache_form="encoded"), 2)
    found = everything(loader(photos, num_workers=workers, cache_form=form), 2)
    assert same(found, expected)
    assert not torch.equal(found[0], found[len(found) // 2]), "each epoch is augmented anew"


@pytest.mark.parametrize("seed", [5, None])
def test_a_resume_goes_on_with_the_same_images(photos, seed):
    torch.manual_seed(1)
    whole = loader(photos, seed=seed)
    for _ in whole:
        pass
    rest = iter(whole)
    for _ in range(2):
        next(rest)
    state = whole.state_dict()
    expected = [images.clone() for images, _ in rest] + everything(whole) * (seed is not None)
    torch.manual_seed(2)
    again = loader(photos, seed=seed)
    again.load_state_dict(state)
    found = everything(again) + everything(again) * (seed is not None)
    assert same(found, expected)


def test_a_resume_on_another_number_of_ranks_augments_each_sample_alike(photos):
    options = {"batch_size": 4, "return_index": True}

    def seen(made, batches=None):
        found = {}
        for at, (images, _, ids) in enumerate(made):
            found |= {int(number): image.clone() for number, image in zip(ids, images, strict=True)}
            if batches is not None and at + 1 == batches:
                break
        return found

    expected = seen(loader(photos, rank=0, world_size=1, **options))
    first = loader(photos, rank=0, world_size=1, **options)
    found = seen(first, batches=3)
    for rank in range(2):
        other = loader(photos, rank=rank, world_size=2, **options)
        other.load_state_dict(first.state_dict())
        found |= seen(other)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[number], expected[number]) for number in expected)


def test_without_a_seed_two_loaders_under_one_manual_seed_agree(photos):
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append(everything(loader(photos, seed=None), 2))
    assert same(*runs)


def test_explain_and_the_log_say_what_is_native(photos, caplog):
    def mine(image):
        return image

    transform = tv.Compose([tv.RandomResizedCrop(32), mine, tv.ToTensor()])
    with caplog.at_level(logging.INFO, "forebay"):
        made = loader(photos, transform)
    told = made.explain()
    assert told.partition("\n")[2] in caplog.text  # the first line is about the order
    assert "native  RandomResizedCrop" in told
    assert "Python  mine" in told
    assert "Python  ToTensor: comes after mine" in told


def test_steps_of_the_users_get_what_torchvision_would_give_them(photos):
    def mine(image):
        assert isinstance(image, Image.Image)
        assert (image.mode, image.size) == ("RGB", (32, 32))
        return torch.tensor([*np.asarray(image)[0, 0].astype(int).tolist(), os.getpid()])

    transform = tv.Compose([tv.Resize(40), tv.CenterCrop(32), mine])
    made = loader(photos, transform, shuffle=False)
    assert "0 of" not in made.explain()
    rows = torch.cat([images for images, _ in made])
    theirs = torchvision.datasets.ImageFolder(photos, transform)
    expected = torch.stack([theirs[i][0] for i in range(48)])
    assert (rows[:, :3] - expected[:, :3]).abs().max() <= 1
    assert os.getpid() not in rows[:, 3].tolist(), "they run in processes of their own"
    for _ in made:
        pass
    assert made.stats()["origin_reads"] == 48, "the second time from our cache"


def test_tensor_steps_of_the_users_come_after_native_ones(photos):
    transform = tv.Compose([tv.CenterCrop(32), tv.ToTensor(), lambda tensor: tensor.mean()])
    ours = torch.cat([means for means, _ in loader(photos, transform, num_workers=0)])
    theirs = torchvision.datasets.ImageFolder(photos, transform)
    order = loader(photos, transform).order(0)
    expected = torch.stack([theirs[int(i)][0] for i in order])
    assert torch.allclose(ours, expected, atol=1e-3)


@pytest.mark.parametrize("workers", [0, 2])
def test_labels_collate_fn_and_ids_work(photos, workers):
    made = loader(
        photos,
        EVAL,
        num_workers=workers,
        target_transform=lambda label: label * 10,
        return_index=True,
    )
    images, labels, ids = next(iter(made))
    targets = np.array(made.dataset.targets)
    assert torch.equal(labels, torch.tensor(targets[ids.numpy()] * 10))
    assert images.shape == (10, 3, 32, 32)
    collated = loader(photos, EVAL, num_workers=workers, collate_fn=lambda items: items)
    items = next(iter(collated))
    assert len(items) == 10
    assert items[0][0].shape == (3, 32, 32)
    assert isinstance(items[0][1], int)


def test_single_samples_without_batches(photos):
    image, label = next(iter(loader(photos, EVAL, batch_size=None, shuffle=False)))
    assert image.shape == (3, 32, 32)
    assert int(label) == 0


def test_channels_last_is_a_matter_of_memory_only(photos):
    plain = next(iter(loader(photos)))[0]
    last = next(iter(loader(photos, channels_last=True)))[0]
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, last)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_every_type_of_tensor_is_made(photos, dtype):
    steps = [v2.ToImage(), v2.RandomResizedCrop(32)]
    if dtype != torch.uint8:
        steps.append(v2.ToDtype(dtype, scale=True))
    made = loader(photos, v2.Compose(steps))
    assert f"{len(steps)} of {len(steps)} steps" in made.explain()
    images = next(iter(made))[0]
    assert (images.dtype, images.shape) == (dtype, (10, 3, 32, 32))
    assert images.float().std() > 0


def test_decoded_images_are_read_once(photos):
    made = loader(photos, cache_form="decoded", memory="64MiB")
    everything(made, 3)
    stats = made.stats()
    assert stats["origin_reads"] == 48
    assert stats["memory_hits"] >= 96
    assert stats["cache_form"] == "decoded"


def test_fast_decoding_is_close_and_the_same_each_time(photos):
    exact = everything(loader(photos))
    fast = everything(loader(photos, decode="fast"))
    assert same(fast, everything(loader(photos, decode="fast", num_workers=1)))
    apart = [(one - other).abs().mean() for one, other in zip(exact, fast, strict=True)]
    assert max(apart) < 0.2


def test_python_on_request(photos):
    made = loader(photos, EVAL, prepare="python", shuffle=False)
    native = loader(photos, EVAL, shuffle=False)
    for ours, theirs in zip(native, made, strict=True):
        assert (ours[0] - theirs[0]).abs().max() < 2 / 255 / min(STD) + 1e-4


def test_native_only_refuses_a_slow_path_by_name(photos):
    slow = tv.Compose([tv.RandomResizedCrop(32), lambda image: image, tv.ToTensor()])
    with forebay.transforms.native_only():
        loader(photos)
        with pytest.raises(forebay.InvalidError, match="lambda"):
            loader(photos, slow)
    loader(photos, slow)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Ten pictures; number 3 is cut off in the middle."""
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for number in range(10):
        photo(number).save(folder / f"{number}.jpg")
    cut = folder / "3.jpg"
    cut.write_bytes(cut.read_bytes()[:600])
    return tmp_path / "data"


def test_a_truncated_image_is_an_error_that_names_it(damaged):
    with pytest.raises(forebay.CorruptError, match=r"sample 3 \(a/3\.jpg\).*cannot be decoded"):
        list(loader(damaged, EVAL))


def test_a_truncated_image_is_replaced_by_the_same_other_one(damaged):
    runs = []
    for workers in (1, 4):
        made = loader(damaged, EVAL, num_workers=workers, on_error="replace", return_index=True)
        runs.append([ids.tolist() for _, _, ids in made])
        stats = made.stats()
        assert [bad["sample"] for bad in stats["bad_samples"]] == [3]
        assert stats["replaced_samples"] == 1
    assert runs[0] == runs[1]
    assert 3 not in sum(runs[0], [])


def test_an_image_over_the_cap_names_the_setting(photos):
    with pytest.raises(forebay.ExhaustedError, match="max_pixels="):
        next(iter(loader(photos, max_pixels=100)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": "slow"}, "decode='slow'"),
        ({"cache_form": "jpeg"}, "cache_form='jpeg'"),
        ({"prepare": "gpu"}, "prepare='gpu'"),
        ({"max_pixels": 0}, "max_pixels=0"),
    ],
)
def test_bad_settings_are_named(photos, options, message):
    with pytest.raises((ValueError, forebay.InvalidError), match=message):
        loader(photos, **options)


def test_memory_does_not_grow_over_epochs(photos):
    def resident() -> int:
        fields = Path("/proc/self/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    made = loader(photos, cache_form="decoded", memory="32MiB")
    sizes = []
    for _ in range(20):
        for _ in made:
            pass
        sizes.append(resident())
    assert max(sizes[10:]) <= max(sizes[3:10]) + (4 << 20), sizes


def test_images_of_a_bucket_are_the_same_as_local_ones(photos, bucket, s3):
    objects = {f"train/{path.relative_to(photos)}": path for path in photos.rglob("*.*")}
    name = bucket(objects)
    for form in ("encoded", "decoded"):
        remote = forebay.ImageFolder(
            f"s3://{name}/train", transform=TRAIN, storage_options=storage_options(s3.endpoint)
        )
        made = forebay.DataLoader(
            remote, batch_size=10, shuffle=True, num_workers=2, seed=5, cache_form=form, disk=0
        )
        assert same(everything(made, 2), everything(loader(photos), 2))
        assert made.stats()["origin_reads"] == 48
