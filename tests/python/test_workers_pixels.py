"""Images for the user's own steps: decoded by the engine once, and seen as Pillow gives them."""

import gc
import hashlib
import io
import multiprocessing
import os
import random
import warnings

import forebay
import numpy as np
import pytest
from PIL import Image, ImageCms
from processes import wait_for
from servers import storage_options
from torchvision.datasets import ImageFolder

GUARD = 60


def look(image):
    """All that a step can see of an image."""
    exif = {tag: str(value) for tag, value in image.getexif().items()}
    info = dict(sorted(image.info.items()))
    pixels = hashlib.sha256(image.tobytes()).hexdigest()
    return type(image), image.mode, image.size, image.format, pixels, exif, info


def look_and_paint(image):
    """A step that draws on what it was given, which nobody else may see."""
    seen = hashlib.sha256(image.tobytes()).hexdigest()
    image.paste((0, 0, 0), (0, 0, *image.size))
    return seen


def draw(image):
    return random.random() + float(np.asarray(image).sum())


def photo(number, size=(96, 64), mode="RGB"):
    """Soft colours with grain, no two alike."""
    rng = np.random.default_rng(number)
    small = rng.integers(0, 256, (5, 7, 3), np.uint8)
    soft = Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)
    grain = rng.integers(0, 25, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(np.asarray(soft) // 2 + grain).convert(mode)


def saved(image, **options):
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


def exif(orientation=6):
    made = Image.Exif()
    made[0x0112], made[0x010F] = orientation, "forebay"
    return made


def every_kind():
    """Files of all kinds that class folders hold."""
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    deep = Image.fromarray((np.arange(60 * 40, dtype=np.uint16) * 27).reshape(40, 60))
    two = {"format": "MPO", "save_all": True, "append_images": [photo(41)]}
    return {
        "plain.jpg": saved(photo(0), format="JPEG", quality=90),
        "odd.jpg": saved(photo(1, (37, 23)), format="JPEG", subsampling=2),
        "one.jpg": saved(photo(1, (1, 1)), format="JPEG"),
        "progressive.jpg": saved(photo(2), format="JPEG", progressive=True),
        "grey.jpg": saved(photo(3, mode="L"), format="JPEG"),
        "cmyk.jpg": saved(photo(4, mode="CMYK"), format="JPEG"),
        "exif.jpg": saved(photo(5), format="JPEG", exif=exif(), dpi=(72, 72), comment=b"hello"),
        "profile.jpg": saved(photo(6), format="JPEG", icc_profile=icc),
        "several.jpg": saved(photo(7), **two),
        "behind.jpg": saved(photo(8), format="JPEG") + b"what comes behind",
        "plain.png": saved(photo(10), format="PNG"),
        "palette.png": saved(photo(11).quantize(16), format="PNG", transparency=0),
        "alpha.png": saved(photo(12, mode="RGBA"), format="PNG", exif=exif()),
        "deep.png": saved(deep, format="PNG"),
        "plain.webp": saved(photo(13), format="WEBP", exif=exif(3)),
        "lossless.webp": saved(photo(14), format="WEBP", lossless=True),
        "plain.bmp": saved(photo(15), format="BMP"),
        "plain.tiff": saved(photo(16), format="TIFF"),
    }


@pytest.fixture
def kinds(tmp_path):
    root = tmp_path / "kinds" / "class0"
    root.mkdir(parents=True)
    for name, data in every_kind().items():
        (root / name).write_bytes(data)
    return root.parent


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    for number in range(24):
        folder = root / f"class{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}.jpg").write_bytes(saved(photo(number), format="JPEG"))
    return root


@pytest.fixture(autouse=True)
def nobody_is_left():
    yield
    gc.collect()
    for process in multiprocessing.active_children():
        process.join(10)
    assert not multiprocessing.active_children()


def make(root, transform=look, workers=2, **more):
    options = {"batch_size": 4, "shuffle": True, "seed": 7, "collate_fn": list, **more}
    if workers:
        options["timeout"] = GUARD
    return forebay.DataLoader(forebay.ImageFolder(root, transform), num_workers=workers, **options)


def epochs(loader, count=3):
    return [[sample for batch in loader for sample in batch] for _ in range(count)]


# -- what the user sees ---------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["auto", "encoded", "decoded"])
def test_a_step_sees_the_very_image_that_pillow_gives_it(kinds, workers, form):
    ours = make(kinds, workers=workers, cache_form=form, shuffle=False, seed=None)
    theirs = list(ImageFolder(kinds, look))
    for epoch in epochs(ours):
        assert epoch == theirs


def test_a_worker_that_was_spawned_reads_them_too(kinds):
    options = {"multiprocessing_context": "spawn", "persistent_workers": True, "shuffle": False}
    ours = make(kinds, workers=1, cache_form="decoded", **options)
    assert epochs(ours, 2) == [list(ImageFolder(kinds, look))] * 2
    assert ours.stats()["decoded_samples"] > 0


def test_images_are_decoded_once_and_come_from_memory_afterwards(photos):
    loader = make(photos, cache_form="decoded")
    first = epochs(loader, 1)
    assert loader.stats()["decoded_samples"] == loader.stats()["origin_reads"] == 24
    assert loader.stats()["cache_form"] == "decoded"
    later = epochs(loader, 3)
    assert loader.stats()["decoded_samples"] == loader.stats()["origin_reads"] == 24
    assert loader.stats()["memory_hits"] >= 3 * 24
    assert all(sorted(map(str, epoch)) == sorted(map(str, first[0])) for epoch in later)


def test_where_they_fit_they_are_kept_decoded_unasked(tmp_path):
    folder = tmp_path / "d" / "a"
    folder.mkdir(parents=True)
    for number in range(80):
        (folder / f"{number:03}.jpg").write_bytes(saved(photo(number), format="JPEG"))
    loader = make(folder.parent, memory="64MiB")
    epochs(loader)
    assert loader.stats()["cache_form"] == "decoded"
    assert loader.stats()["decoded_samples"] == 80


def test_what_is_asked_to_stay_encoded_or_in_python_is_not_decoded_by_the_engine(photos):
    for options in ({"cache_form": "encoded"}, {"prepare": "python"}):
        loader = make(photos, **options)
        epochs(loader, 2)
        assert loader.stats()["decoded_samples"] == 0


def test_a_dataset_far_beyond_the_memory_goes_encoded(photos):
    size = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
    loader = make(photos, memory=2 * size)
    epochs(loader, 2)
    assert loader.stats()["decoded_samples"] == 0


def test_what_a_step_draws_on_its_image_nobody_else_sees(photos):
    loader = make(photos, look_and_paint, cache_form="decoded", shuffle=False)
    one, *others = epochs(loader, 3)
    assert all(other == one for other in others)
    assert one == list(ImageFolder(photos, look_and_paint))


def test_the_same_seed_gives_the_same_batches_whatever_the_form_and_the_hands(photos):
    reference = epochs(make(photos, draw, workers=0, prepare="python"))
    for form in ("auto", "encoded", "decoded"):
        for workers in (0, 1, 3):
            assert epochs(make(photos, draw, workers=workers, cache_form=form)) == reference


def test_without_a_transform_the_users_own_collate_fn_gets_the_images(photos):
    loader = make(photos, None, shuffle=False, cache_form="decoded")
    for epoch in epochs(loader, 2):
        assert [look(image) for image, _ in epoch] == [
            look(image) for image, _ in ImageFolder(photos)
        ]


def test_a_class_that_decodes_by_itself_does_so(photos):
    class Own(forebay.ImageFolder):
        def _decode(self, raw, index):
            return super()._decode(raw, index).convert("L")

    options = {"num_workers": 2, "timeout": GUARD, "cache_form": "decoded", "collate_fn": list}
    loader = forebay.DataLoader(Own(photos, look), 4, **options)
    assert {image[1] for batch in loader for image, _ in batch} == {"L"}


# -- state, workers, memory -----------------------------------------------------------------


def test_a_resumed_epoch_goes_on_with_the_same_images(photos):
    whole = list(make(photos, draw, cache_form="decoded"))
    loader = make(photos, draw, cache_form="decoded")
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    again = make(photos, draw, cache_form="decoded")
    again.load_state_dict(loader.state_dict())
    assert list(again) == whole[2:]


def test_epochs_that_are_left_and_begun_anew_come_whole(photos):
    for persistent in (False, True):
        loader = make(photos, cache_form="decoded", persistent_workers=persistent)
        wanted = epochs(make(photos, prepare="python"), 5)
        for number in range(5):
            loader.set_epoch(number)
            if number % 2:
                next(iter(loader))
                loader.set_epoch(number)
            assert epochs(loader, 1)[0] == wanted[number]


def test_a_loader_that_was_closed_starts_with_new_memory_and_new_workers(photos):
    loader = make(photos, cache_form="decoded", persistent_workers=True)
    wanted = epochs(make(photos, prepare="python"), 4)
    assert epochs(loader, 2) == wanted[:2]
    iterator = iter(loader)
    next(iterator)
    loader.close()
    del iterator
    loader.set_epoch(2)
    assert epochs(loader, 2) == wanted[2:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("policy", ["farthest", "lru", "minio", "none"])
def test_too_little_memory_for_all_pixels_costs_time_and_changes_nothing(photos, workers, policy):
    wanted = epochs(make(photos, prepare="python"))
    # An image takes 18 KiB decoded; as many as are on their way would take all of this.
    options = {"cache_form": "decoded", "memory": "256KiB", "policy": policy, "batch_size": 8}
    loader = make(photos, workers=workers, **options)
    assert epochs(loader) == wanted
    memory = loader.stats()["memory"]
    assert memory["peak_bytes"] <= memory["capacity_bytes"] <= 256 << 10


def test_lent_images_are_given_back(photos):
    loader = make(photos, cache_form="decoded", policy="none")
    iterator = iter(loader)
    next(iterator)
    assert loader.stats()["memory"]["used_bytes"] > 0
    del iterator
    gc.collect()
    assert wait_for(lambda: loader.stats()["memory"]["used_bytes"] == 0)


def test_leaving_epochs_opens_no_more_files(photos):
    loader = make(photos, cache_form="decoded")
    counts = []
    for _ in range(4):
        next(iter(loader))
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]


# -- bad images -----------------------------------------------------------------------------


@pytest.fixture
def damaged(photos):
    """Photos of which one is cut off, one is no image and one has a damaged frame header."""
    names = [path for path, _ in ImageFolder(photos).samples]
    for at, harm in ((3, lambda data: data[: len(data) // 2]), (10, lambda data: b"no image")):
        with open(names[at], "rb+") as file:
            data = harm(file.read())
            file.seek(0)
            file.truncate()
            file.write(data)
    with open(names[17], "rb+") as file:
        data = file.read()
        file.seek(data.index(b"\xff\xc0") + 5)
        file.write(b"\0\0\0\0")
    return photos


def failures(loader):
    """What came, batch by batch: samples, or the error's words."""
    came, iterator = [], iter(loader)
    while True:
        try:
            came.append(next(iterator))
        except StopIteration:
            return came
        except forebay.CorruptError as error:
            came.append(str(error).partition("Traceback")[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_fail_their_batch_in_the_same_words(damaged, workers):
    python = failures(make(damaged, workers=workers, prepare="python"))
    ours = make(damaged, workers=workers, cache_form="decoded")
    assert failures(ours) == python
    assert sum(isinstance(batch, str) for batch in python) == len({3, 10, 17})
    ours.set_epoch(0)
    assert failures(ours) == python


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_are_replaced_by_the_same_ones_and_listed_alike(damaged, workers):
    options = {"workers": workers, "on_error": "replace"}
    python = make(damaged, prepare="python", **options)
    ours = make(damaged, cache_form="decoded", **options)
    assert epochs(ours) == epochs(python)
    assert ours.stats()["bad_samples"] == python.stats()["bad_samples"]
    assert len(ours.stats()["bad_samples"]) == 3
    assert ours.stats()["replaced_samples"] == python.stats()["replaced_samples"]


def test_an_image_over_the_cap_is_left_to_pillow_and_its_own_cap(photos, monkeypatch):
    loader = make(photos, cache_form="decoded", max_pixels=1000)
    assert epochs(loader, 1) == epochs(make(photos, prepare="python"), 1)
    assert loader.stats()["decoded_samples"] == 0
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 96 * 64 // 2 - 1)
    for options in ({"cache_form": "decoded"}, {"prepare": "python"}):
        with pytest.raises(forebay.CorruptError, match="decompression bomb"):
            epochs(make(photos, **options), 1)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 96 * 64 - 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        epochs(make(photos, workers=0, cache_form="decoded"), 1)
    assert any(issubclass(one.category, Image.DecompressionBombWarning) for one in caught)


def test_images_of_a_bucket_are_lent_too(photos, bucket, s3):
    name = bucket({f"d/{path.relative_to(photos)}": path for path in photos.rglob("*.jpg")})
    options = storage_options(s3.endpoint)
    dataset = forebay.ImageFolder(f"s3://{name}/d", look, storage_options=options)
    options = {"shuffle": True, "seed": 7, "num_workers": 2, "timeout": GUARD, "collate_fn": list}
    loader = forebay.DataLoader(dataset, 4, cache_form="decoded", **options)
    assert epochs(loader) == epochs(make(photos, prepare="python"))
    assert loader.stats()["decoded_samples"] == loader.stats()["origin_reads"] == 24
