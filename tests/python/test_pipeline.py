"""What the engine does between a plan and its batches: ahead, in order, within its figures."""

import os

import forebay
import pytest
import torch
from data import class_folders, content, image_folders, tar_shards
from processes import wait_for
from silence import Silence


def ids(loader):
    return [number for *_, numbers in loader for number in numbers.tolist()]


def make(dataset, batch_size=5, **more):
    options = {"seed": 3, "shuffle": True, "num_workers": 2, "return_index": True, **more}
    return forebay.DataLoader(dataset, batch_size, **options)


def epochs(loader, count):
    """Everything a user sees, in plain Python."""
    return [
        [
            ([s.numpy().tobytes() for s in samples], labels.tolist(), numbers.tolist())
            for samples, labels, numbers in loader
        ]
        for _ in range(count)
    ]


def fetched(loader):
    """Samples brought in so far, from memory or from the origin."""
    stats = loader.stats()
    return stats["memory_hits"] + stats["origin_reads"]


# -- determinism --------------------------------------------------------------------------


def test_threads_memory_and_policy_change_nothing_that_a_user_sees(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=60, size=3000))
    expected = epochs(make(dataset, num_workers=1), 3)
    settings = [
        {"num_workers": workers, "memory": memory, "policy": policy}
        for workers, memory in ((1, "64KiB"), (2, "1GiB"), (3, "100KiB"), (8, "128KiB"))
        for policy in ("farthest", "lru", "none")
    ]
    for setting in [*settings, {"prefetch_factor": 20, "readahead": 1}, {"num_workers": 0}]:
        assert epochs(make(dataset, **setting), 3) == expected, setting


# -- across the epoch's edge --------------------------------------------------------------


def test_the_next_epochs_first_batch_gets_ready_before_it_is_asked_for(folder):
    loader = make(forebay.FileFolder(folder))
    iterator = iter(loader)
    ready = 0
    for epoch in range(10):
        ids(iterator)
        assert wait_for(lambda epoch=epoch: fetched(loader) == 25 * (epoch + 2))
        before = loader.stats()
        assert before["epochs_foreseen"] == epoch, "the next one has not begun"
        iterator = iter(loader)
        next(iterator)
        after = loader.stats()
        assert after["epochs_foreseen"] == epoch + 1
        ready += after["ready_samples"] - before["ready_samples"]
    # Between the last count of a sample and its batch a thread may be put to sleep.
    assert ready >= 5 * 5
    assert after["origin_reads"] == 25, "with enough memory, once each"


def test_a_known_order_is_foreseen_at_every_edge(folder):
    loader = make(forebay.FileFolder(folder))
    for _ in range(6):
        ids(loader)
    stats = loader.stats()
    assert stats["epochs_foreseen"] == 5
    assert stats["origin_reads"] == 25
    assert stats["samples"] == 150


class Numbers(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


def both(dataset, between, **options):
    """Three epochs of ours and torch's, with ``between`` called after each; and the loader."""
    results = []
    for ours in (False, True):
        torch.manual_seed(11)
        if ours:
            loader = forebay.DataLoader(dataset, 5, shuffle=True, return_index=True, **options)
        else:
            loader = torch.utils.data.DataLoader(Numbers(len(dataset)), 5, shuffle=True, **options)
        seen = []
        for _ in range(3):
            seen.append([(batch[2] if ours else batch).tolist() for batch in loader])
            between()
        results.append(seen)
    return *results, loader


@pytest.mark.parametrize("workers", [0, 2])
def test_a_forecast_from_the_default_generator_is_right_if_nobody_draws(folder, workers):
    dataset = forebay.FileFolder(folder)
    theirs, ours, loader = both(dataset, lambda: None, num_workers=workers)
    assert ours == theirs
    assert loader.stats()["epochs_foreseen"] == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_forecast_that_somebody_spoils_by_drawing_is_harmless(folder, workers):
    dataset = forebay.FileFolder(folder)
    theirs, ours, loader = both(dataset, lambda: torch.rand(3), num_workers=workers)
    assert ours == theirs
    stats = loader.stats()
    assert stats["epochs_foreseen"] == 0
    assert stats["samples"] == 75
    assert stats["origin_reads"] == 25


def test_an_epoch_that_was_set_otherwise_than_foreseen_is_the_one_that_comes(folder):
    loader = make(forebay.FileFolder(folder))
    for epoch in (0, 7, 3, 3):
        loader.set_epoch(epoch)
        assert ids(loader) == loader.order(epoch).tolist()


# -- figures ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["farthest", "lru", "minio", "none"])
def test_every_sample_is_either_a_hit_or_a_read(tmp_path, policy):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=90, size=4000))
    loader = make(dataset, memory="200KiB", policy=policy)
    for epoch in range(1, 5):
        ids(loader)
        stats = loader.stats()
        assert stats["samples"] == epoch * 90
        assert stats["batches"] == epoch * 18
        # What was fetched ahead is counted before it is taken.
        assert epoch * 90 <= fetched(loader) <= (epoch + 1) * 90
        assert stats["ready_samples"] <= stats["samples"]
        assert stats["waited_seconds"] > 0
        assert stats["origin_bytes"] >= stats["origin_reads"] * 4000
        assert stats["memory"]["peak_bytes"] <= stats["memory"]["capacity_bytes"]
        assert stats["bytes"] == epoch * sum(4000 + at % 7 for at in range(90))
    if policy == "none":
        # Only what is in hand for the end of one epoch when the next one wants it.
        assert stats["memory_hits"] <= 4 * 200 // 4 // 4


def hits(dataset, policy, epochs, memory):
    """Hits of an epoch, on average of all after the first."""
    loader = make(dataset, 10, policy=policy, memory=memory, readahead="128KiB", num_workers=1)
    ids(loader)
    first = loader.stats()["memory_hits"]
    for _ in range(epochs):
        ids(loader)
    return (loader.stats()["memory_hits"] - first) / epochs


def test_policies_that_know_shuffling_keep_their_share_and_lru_does_not(tmp_path):
    """With memory for a share c of n samples, a shuffled epoch finds about c*n of them there;
    with LRU only (c + (1 - c) * ln(1 - c)) * n, which is 0.09 * n for c = 0.4."""
    n, size = 400, 16_000
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=n, size=size))
    memory = n * size * 4 // 10
    found = {policy: hits(dataset, policy, 5, memory) for policy in ("farthest", "minio", "lru")}
    assert 0.30 * n <= found["farthest"] <= 0.45 * n, found
    assert 0.30 * n <= found["minio"] <= 0.45 * n, found
    assert found["lru"] <= 0.16 * n, found


# -- shapes of datasets -------------------------------------------------------------------


def test_many_tiny_files(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=5000, classes=5, size=100))
    loader = make(dataset, 64, num_workers=2)
    for _ in range(2):
        seen = []
        for samples, _, numbers in loader:
            for sample, number in zip(samples, numbers.tolist(), strict=True):
                assert sample.numpy().tobytes() == content(number, 100 + number % 7)
                seen.append(number)
        assert sorted(seen) == list(range(5000))
    assert loader.stats()["origin_reads"] == 5000


@pytest.mark.parametrize(
    ("samples", "batch_size", "drop_last", "sizes"),
    [
        (3, 10, False, [3]),
        (3, 10, True, []),
        (3, 1, False, [1, 1, 1]),
        (1, 1, False, [1]),
        (1, 5, False, [1]),
        (1, 5, True, []),
        (10, 5, True, [5, 5]),
        (11, 5, True, [5, 5]),
    ],
)
@pytest.mark.parametrize("options", [{}, {"seed": None}, {"seed": None, "sampler": True}])
def test_batches_have_torchs_sizes(tmp_path, samples, batch_size, drop_last, sizes, options):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=samples, classes=1))
    if options.get("sampler"):
        options = {**options, "sampler": list(range(samples)), "shuffle": None}
    loader = make(dataset, batch_size, drop_last=drop_last, **options)
    for _ in range(3):
        assert [len(numbers) for *_, numbers in loader] == sizes
    assert len(loader) == len(sizes)


def test_samples_from_nothing_to_5_mb_pass_a_readahead_smaller_than_one(tmp_path):
    sizes = [0, 1, 5_000_000, 100, 0, 1_000_000, 4096, 3_000_000, 1, 65_536, 5_000_000, 7]
    (tmp_path / "d" / "only").mkdir(parents=True)
    for number, size in enumerate(sizes):
        (tmp_path / "d" / "only" / f"{number:03}").write_bytes(content(number, size))
    dataset = forebay.FileFolder(tmp_path / "d")
    for memory, readahead in (("8MiB", "64KiB"), ("8MiB", 0), ("6MiB", "1MiB"), ("1GiB", 1)):
        for policy in ("farthest", "lru", "minio", "none"):
            loader = make(dataset, 3, memory=memory, readahead=readahead, policy=policy)
            for _ in range(2):
                for samples, _, numbers in loader:
                    for sample, number in zip(samples, numbers.tolist(), strict=True):
                        assert sample.numpy().tobytes() == content(number, sizes[number])


# -- what does not come -------------------------------------------------------------------


def test_a_timeout_is_an_error_that_names_it_each_time_it_passes(tmp_path):
    silence = Silence(tmp_path)
    try:
        loader = forebay.DataLoader(silence.dataset(), 4, timeout=0.2)
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(forebay.UnavailableError, match=r"0\.2 seconds.*hint.*timeout="):
                next(iterator)
        loader.close()
    finally:
        silence.close()


def test_a_pipe_in_a_files_place_is_an_error_and_no_endless_wait(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=4, classes=1))
    path = tmp_path / "d" / "class0" / "00001.bin"
    path.unlink()
    os.mkfifo(path)
    loader = forebay.DataLoader(dataset, 2, timeout=60)
    with pytest.raises(forebay.Error, match=r"00001\.bin") as caught:
        list(loader)
    assert "timeout=" not in str(caught.value)


# -- arguments ----------------------------------------------------------------------------


def test_sample_numbers_come_with_batches_of_every_dataset(folder, tmp_path):
    image_folders(tmp_path / "images")
    tar_shards(tmp_path / "tars")
    (tmp_path / "m.csv").write_text("path,label\nclass1/00000.bin,7\nclass0/00001.bin,2\n")

    def tensor(image):
        return torch.tensor(image.size)

    datasets = [
        forebay.FileFolder(folder),
        forebay.FileFolder(folder, transform=len),
        forebay.Files(folder, manifest=tmp_path / "m.csv"),
        forebay.ImageFolder(tmp_path / "images", transform=tensor),
        forebay.TarFolder(str(tmp_path / "tars" / "train-{0000..0002}.tar")),
        forebay.TarFolder(str(tmp_path / "tars" / "train-{0000..0002}.tar"), transform=len),
    ]
    for dataset in datasets:
        seen = []
        for batch in make(dataset, 4):
            numbers = batch["__index__"] if isinstance(batch, dict) else batch[-1]
            assert numbers.dtype == torch.int64
            seen += numbers.tolist()
        assert sorted(seen) == list(range(len(dataset))), dataset
        singles = make(dataset, None, seed=None, shuffle=None)
        numbers = [one["__index__"] if isinstance(one, dict) else one[-1] for one in singles]
        assert [int(number) for number in numbers] == list(range(len(dataset))), dataset


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without CUDA")
def test_pinned_memory_without_cuda_is_harmless(folder):
    plain = epochs(make(forebay.FileFolder(folder)), 2)
    assert epochs(make(forebay.FileFolder(folder), pin_memory=True), 2) == plain
