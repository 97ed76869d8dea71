"""Batches of large samples, which lie in the cache itself while it fills, as a user has them."""

import warnings

import forebay
import pytest
import torch
from data import class_folders, content, tar_shards

SAMPLES = 40
SIZE = 70_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Samples that are worth a place of their own."""
    return class_folders(tmp_path_factory.mktemp("large") / "d", samples=SAMPLES, size=SIZE)


def make(dataset, **more):
    options = {"seed": 3, "shuffle": True, "num_workers": 2, "return_index": True, **more}
    return forebay.DataLoader(dataset, 5, **options)


def check(samples, ids):
    for sample, number in zip(samples, ids.tolist(), strict=True):
        assert sample.numpy().tobytes() == content(number, SIZE + number % 7), number


def test_what_a_user_writes_into_a_batch_is_not_in_later_epochs(large):
    loader = make(forebay.FileFolder(large))
    for _ in range(4):
        for samples, _, ids in loader:
            check(samples, ids)
            for sample in samples:
                sample.fill_(7)
    stats = loader.stats()
    assert 0 < stats["memory"]["changed_by_user"] <= SAMPLES
    # Only the first use is in place: what is read again stays.
    assert stats["origin_reads"] <= 3 * SAMPLES


def test_what_a_user_only_reads_is_read_once_from_the_files(large):
    loader = make(forebay.FileFolder(large))
    for _ in range(4):
        for samples, _, ids in loader:
            check(samples, ids)
            del samples
    stats = loader.stats()
    assert stats["memory"]["changed_by_user"] == 0
    assert stats["memory_hits"] >= 2 * SAMPLES


def test_batches_that_are_kept_stay_as_they_are(large):
    loader = make(forebay.FileFolder(large))
    kept = [batch for _ in range(4) for batch in loader]
    for samples, _, ids in kept:
        check(samples, ids)
    kept[0][0][0].zero_()
    for samples, _, ids in [*kept[1:], *loader]:
        check(samples, ids)


def test_batches_outlive_their_loader(large):
    loader = make(forebay.FileFolder(large))
    iterator = iter(loader)
    kept = [next(iterator), next(iterator)]
    loader.close()
    del loader, iterator
    for samples, _, ids in kept:
        check(samples, ids)
        samples[0].fill_(1)


def test_samples_are_tensors_of_their_own_length(large):
    for samples, labels, _ in make(forebay.FileFolder(large)):
        assert isinstance(samples, list)
        assert len(samples) == len(labels)
        for sample in samples:
            assert sample.dtype == torch.uint8
            assert sample.is_contiguous()
            assert sample.resize_(10).shape == (10,)  # nothing else holds on to its form


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_or_collate_function_gets_the_same_samples(large, workers):
    def first_bytes(samples):
        return torch.stack([sample[:100] for sample, _ in samples])

    expected = [content(number, SIZE + number % 7)[:100] for number in range(SAMPLES)]
    for options in ({"collate_fn": first_bytes}, {}):
        transform = None if options else _head
        loader = make(
            forebay.FileFolder(large, transform=transform), num_workers=workers, **options
        )
        for _ in range(2):
            for batch, *_, ids in loader:
                for row, number in zip(batch, ids.tolist(), strict=True):
                    assert row.numpy().tobytes() == expected[number]


def _head(sample):
    return sample[:100].clone()


def test_large_members_of_shards_are_as_they_were_packed(tmp_path):
    expected = tar_shards(tmp_path, shards=2, samples=8, size=50_000)
    by_key = {sample["__key__"]: sample["jpg"] for sample in expected}
    pattern = str(tmp_path / "train-{0000..0001}.tar")
    loader = make(forebay.TarFolder(pattern), return_index=False)
    for _ in range(3):
        for batch in loader:
            for key, jpg in zip(batch["__key__"], batch["jpg"], strict=True):
                assert jpg.numpy().tobytes() == by_key[key]


def test_a_file_cut_after_it_was_listed_is_named(tmp_path):
    root = class_folders(tmp_path / "d", samples=10, size=SIZE)
    dataset = forebay.FileFolder(root)
    [first, *_] = sorted(root.rglob("*.bin"))
    first.write_bytes(content(0, SIZE)[:66_000])
    with pytest.raises(forebay.Error, match=r"00000\.bin.*66000|66000.*00000\.bin"):
        list(make(dataset))
    loader = make(dataset, on_error="replace")
    assert sum(len(ids) for *_, ids in loader) == 10
    first.write_bytes(content(0, SIZE) + b"more")
    with pytest.raises(forebay.Error, match=r"00000\.bin"):
        list(make(dataset))


def test_sampling_with_replacement_has_a_sample_twice_in_a_batch(large):
    sampler = torch.utils.data.RandomSampler(range(SAMPLES), replacement=True, num_samples=200)
    loader = make(forebay.FileFolder(large), shuffle=False, sampler=sampler, seed=None)
    for _ in range(3):
        for samples, _, ids in loader:
            check(samples, ids)


def test_who_keeps_every_batch_is_told(tmp_path):
    root = class_folders(tmp_path / "d", samples=60, size=SIZE)
    loader = forebay.DataLoader(forebay.FileFolder(root), 1, seed=1, shuffle=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = list(loader)
    assert len(kept) == 60
    assert [w for w in caught if "still referred to" in str(w.message)]


def test_labels_that_are_kept_keep_nothing_of_the_cache(large):
    loader = make(forebay.FileFolder(large))
    kept = []
    for _ in range(3):
        for samples, labels, ids in loader:
            check(samples, ids)
            kept += [labels, ids]
            del samples
    # Only what the next epoch wanted while it was still in the user's hands was read again.
    assert loader.stats()["memory_hits"] >= SAMPLES + 10
    assert sum(len(labels) for labels in kept[::2]) == 3 * SAMPLES


def test_a_batch_that_is_kept_keeps_no_more_than_itself_of_a_closed_loader(tmp_path):
    root = class_folders(tmp_path / "d", samples=120, size=1_000_000)
    loader = make(forebay.FileFolder(root))
    kept = None
    for samples, _, _ in loader:
        kept = samples if kept is None else kept
        del samples
    before = resident()
    loader.close()
    del loader
    assert resident() < before - 60e6
    assert len(kept) == 5


def resident():
    """Bytes of memory that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
