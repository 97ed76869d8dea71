"""The disk cache from the user's line: ``cache_dir=``, ``disk=``, ``layout=``."""

import os
import subprocess
import time

import forebay
import pytest
import torch
from buckets import batches, in_bucket, load, objects_of
from data import class_folders, content, held_on_disk, image_folders
from torchvision import transforms

SAMPLES = 300


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """300 files of about 20 KB; nobody changes them."""
    return class_folders(tmp_path_factory.mktemp("files"), samples=SAMPLES, size=20_000)


def on_disk(dataset, cache, batch_size=16, **more):
    """A loader that keeps nothing in memory, so that what is not on disk is read again.

    Little is fetched ahead: otherwise the next epoch would have begun before this one is written.
    """
    memory = {"memory": "128MiB", "readahead": "256KiB", "policy": "none"}
    options = {**memory, "cache_dir": cache, "disk": "64MiB", **more}
    return load(dataset, batch_size, **options)


def du(path):
    done = subprocess.run(["du", "-s", "--block-size=1", path], capture_output=True, check=True)
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("layout", ["auto", "packed", "reorder"])
def test_the_origin_is_read_once_and_batches_are_the_same(root, tmp_path, layout):
    plain = load(forebay.FileFolder(root), 16)
    loader = on_disk(forebay.FileFolder(root), tmp_path, layout=layout)
    for epoch in range(4):
        assert list(batches(loader)) == list(batches(plain)), f"epoch {epoch}"
    stats = loader.stats()
    assert stats["log"]["layout"] == ("reorder" if layout == "reorder" else "packed")
    assert stats["log"]["device"] in ("io_uring", "threads")
    assert stats["log"]["corrupt_samples"] == 0
    if layout == "reorder":
        assert stats["origin_reads"] == SAMPLES, stats
    # A packed log never waits for its writer, which leaves samples out when it is behind. What it
    # has taken is on the disk once it is closed, and only the rest is read.
    loader.close()
    lacking = SAMPLES - len(held_on_disk([tmp_path], SAMPLES, 20_000))
    loader = on_disk(forebay.FileFolder(root), tmp_path, layout=layout)
    loader.set_epoch(4)
    assert list(batches(loader)) == list(batches(plain))
    assert loader.stats()["origin_reads"] == lacking
    loader.close()


def test_another_process_another_seed_reads_nothing_from_the_origin(root, tmp_path):
    loader = on_disk(forebay.FileFolder(root), tmp_path)
    list(batches(loader))
    loader.close()
    again = on_disk(forebay.FileFolder(root), tmp_path, seed=99)
    found = sorted(sample for batch in batches(again) for sample in batch)
    assert [data for _, _, data in found] == [content(i, 20_000 + i % 7) for i in range(SAMPLES)]
    assert again.stats()["origin_reads"] == 0


def test_a_dataset_in_a_bucket_is_kept_by_itself_and_local_files_are_not(root, bucket, s3):
    local = load(forebay.FileFolder(root), 16)
    list(batches(local))
    assert "log" not in local.stats()
    remote = in_bucket(bucket(objects_of(root)), s3.endpoint)
    first = load(remote, 16)
    assert list(batches(first)) == list(batches(load(forebay.FileFolder(root), 16)))
    assert first.stats()["log"]["written_samples"] > 0
    first.close()
    second = load(remote, 16, seed=6)
    expected = load(forebay.FileFolder(root), 16, seed=6)
    assert list(batches(second)) == list(batches(expected))
    assert second.stats()["origin_reads"] == 0
    without = load(remote, 16, disk=0)
    list(batches(without))
    assert "log" not in without.stats()


def test_what_was_written_once_is_not_written_again(root, tmp_path):
    loader = on_disk(forebay.FileFolder(root), tmp_path, layout="packed")
    for _ in range(10):
        list(batches(loader))
    written = loader.stats()["log"]["written_bytes"]
    total = sum(path.stat().st_size for path in root.rglob("*.bin"))
    assert total <= written <= 1.02 * total


def test_a_changed_object_is_read_again(tmp_path):
    root = class_folders(tmp_path / "files", samples=30, size=20_000)
    cache = tmp_path / "cache"
    loader = on_disk(forebay.FileFolder(root), cache)
    list(batches(loader))
    loader.close()
    changed = root / "class1" / "00003.bin"
    changed.write_bytes(b"new" * 7000)
    (root / "class0" / "00000a.bin").write_bytes(b"one more" * 100)
    dataset = forebay.FileFolder(root)
    assert len(dataset) == 31
    loader = on_disk(dataset, cache)
    assert list(batches(loader)) == list(batches(load(dataset, 16)))
    stats = loader.stats()
    # The new one and the one that changed; again, if the coming epoch wants them at once.
    assert 2 <= stats["origin_reads"] <= 4
    assert stats["log"]["corrupt_samples"] == 0


def test_images_come_out_the_same(tmp_path):
    root = image_folders(tmp_path / "images", samples=60)
    steps = [transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip()]
    transform = transforms.Compose([*steps, transforms.ToTensor()])
    dataset = forebay.ImageFolder(root, transform)
    options = {"batch_size": 8, "shuffle": True, "seed": 3}
    plain = forebay.DataLoader(dataset, **options)
    cached = forebay.DataLoader(
        dataset, **options, readahead=0, cache_dir=tmp_path / "cache", policy="none"
    )
    until = time.monotonic() + 60
    while cached.stats().get("log_hits", 0) < 60:  # written in the background
        assert time.monotonic() < until
        for (one, _), (other, _) in zip(plain, cached, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("layout", ["packed", "reorder"])
def test_the_budget_is_never_passed_and_what_fits_is_kept(root, tmp_path, layout):
    budget = 3 << 20
    loader = on_disk(forebay.FileFolder(root), tmp_path, disk=budget, layout=layout)
    plain = load(forebay.FileFolder(root), 16)
    # A small log that is written anew has much of its room under way.
    useful = 0.5 if layout == "reorder" else 0.75
    for _ in range(40):  # a busy disk takes what it can, epoch by epoch
        hits = loader.stats().get("log_hits", 0)
        for one, other in zip(batches(loader), batches(plain), strict=True):
            assert one == other
            assert du(tmp_path) - os.stat(tmp_path).st_blocks * 512 <= budget
        kept = loader.stats()["log_hits"] - hits
        if kept * 20_000 >= budget * useful:
            return
    pytest.fail(f"{kept} of the samples that would fit are kept")


def test_several_directories_and_one_that_cannot_be_used(root, tmp_path):
    dirs = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    loader = on_disk(forebay.FileFolder(root), dirs)
    list(batches(loader))
    loader.close()
    assert all(list(folder.rglob("*.segment")) for folder in dirs)
    subprocess.run(["rm", "-r", dirs[1]], check=True)
    dirs[1].write_text("a file")
    loader = on_disk(forebay.FileFolder(root), dirs)
    with pytest.warns(RuntimeWarning, match="going on without it") as said:
        assert list(batches(loader)) == list(batches(load(forebay.FileFolder(root), 16)))
    assert len(said) == 1
    assert 0 < loader.stats()["origin_reads"] < SAMPLES


def test_a_resumed_run_reads_on_from_the_log(root, tmp_path):
    loader = on_disk(forebay.FileFolder(root), tmp_path)
    list(batches(loader))
    expected = list(batches(loader))
    loader.close()
    loader = on_disk(forebay.FileFolder(root), tmp_path)
    loader.set_epoch(1)
    running = batches(loader)
    begun = [next(running) for _ in range(7)]
    state = loader.state_dict()
    running.close()
    resumed = on_disk(forebay.FileFolder(root), tmp_path)
    resumed.load_state_dict(state)
    assert begun + list(batches(resumed)) == expected
    assert resumed.stats()["origin_reads"] == 0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"layout": "sorted"}, ValueError, "'auto', 'packed', 'reorder'"),
        ({"disk": "much"}, ValueError, "disk='much' is not a size"),
        ({"disk": -1}, ValueError, "out of range"),
        ({"cache_dir": 7}, TypeError, "neither a path nor a list"),
        ({"cache_dir": []}, TypeError, "neither a path nor a list"),
        ({"cache_dir": ["a", ""]}, TypeError, "not a path"),
        ({"cache_dir": ["a", "./a"]}, ValueError, "twice"),
        ({"layout": "reorder", "rank": 0, "world_size": 2}, ValueError, "one rank"),
        (
            {"layout": "reorder", "sampler": [1, 2], "seed": None, "shuffle": None},
            ValueError,
            "hint",
        ),
    ],
)
def test_bad_arguments_are_told_before_anything_is_made(root, options, error, words):
    with pytest.raises(error, match=words):
        load(forebay.FileFolder(root), **options)


def test_too_little_memory_is_said_once(root, tmp_path):
    loader = load(forebay.FileFolder(root), 16, memory="1MiB", cache_dir=tmp_path)
    with pytest.warns(RuntimeWarning, match="raise memory= to at least 4MiB"):
        list(batches(loader))
    assert "log" not in loader.stats()
