"""Samples that cannot be read: raised by name, or replaced by the same other one everywhere."""

import json

import forebay
import pytest
from data import class_folders, content

BAD = (4, 11, 17)


@pytest.fixture
def damaged(tmp_path):
    """A dataset of 25 samples, three of which are gone, cut off or grown."""
    root = class_folders(tmp_path / "d")
    dataset = forebay.FileFolder(root)
    gone, cut, grown = (root / dataset.path(number) for number in BAD)
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:100])
    grown.write_bytes(grown.read_bytes() * 2)
    return dataset


def make(dataset, **more):
    options = {"shuffle": True, "seed": 5, "num_workers": 2, "on_error": "replace", **more}
    return forebay.DataLoader(dataset, 4, return_index=True, **options)


def seen(loader):
    """Sample numbers as they came; the bytes are checked to be theirs."""
    found = []
    for samples, labels, ids in loader:
        for sample, label, number in zip(samples, labels.tolist(), ids.tolist(), strict=True):
            assert sample.numpy().tobytes() == content(number, 1000 + number % 7)
            assert label == loader.dataset.targets[number]
            found.append(number)
    return found


def stand_ins(loader, epoch=0, share=slice(None)):
    """Who came in the place of each bad sample."""
    loader.set_epoch(epoch)
    planned = loader.order(epoch).tolist()[share]
    came = seen(loader)
    assert len(came) == len(planned)
    replaced = {want: got for want, got in zip(planned, came, strict=True) if want != got}
    assert set(replaced) == set(BAD) & set(planned)
    return replaced


def test_a_bad_sample_is_raised_by_name_with_its_cause_and_the_loader_goes_on(damaged):
    loader = make(damaged, on_error="raise", shuffle=False)
    for _ in range(3):
        iterator = iter(loader)
        assert next(iterator)[2].tolist() == [0, 1, 2, 3]
        with pytest.raises(forebay.CorruptError, match=r"sample 4 \(class0/00004.bin\).*No such"):
            next(iterator)
    assert loader.stats()["bad_samples"] == []


def test_a_loader_that_raised_works_once_the_sample_is_mended(damaged, tmp_path):
    loader = make(damaged, on_error="raise")
    with pytest.raises(forebay.CorruptError):
        seen(loader)
    for number in BAD:
        (tmp_path / "d" / damaged.path(number)).write_bytes(content(number, 1000 + number % 7))
    assert sorted(seen(loader)) == list(range(25))


def test_the_first_bad_sample_of_a_batch_is_the_one_that_is_named(damaged):
    for _ in range(20):
        loader = make(damaged, on_error="raise", sampler=[17, 4, 11, 0], shuffle=None, seed=None)
        with pytest.raises(forebay.CorruptError, match="sample 17 "):
            next(iter(loader))


def test_a_stand_in_is_the_same_in_every_epoch_run_and_number_of_threads(damaged):
    expected = stand_ins(make(damaged))
    assert not set(expected.values()) & set(BAD)
    for threads in (1, 2, 5):
        loader = make(damaged, num_workers=threads)
        for epoch in range(4):
            assert stand_ins(loader, epoch) == expected
    for policy in ("none", "lru"):
        assert stand_ins(make(damaged, memory="64KiB", policy=policy), 7) == expected


@pytest.mark.parametrize("world", [2, 3])
def test_a_stand_in_is_the_same_on_every_rank(damaged, world):
    expected = stand_ins(make(damaged))
    found = {}
    for rank in range(world):
        found |= stand_ins(make(damaged, rank=rank, world_size=world), 2)
    assert found == expected


def test_a_stand_in_is_the_same_after_a_resume(damaged):
    whole = seen(make(damaged))
    for stop in range(len(make(damaged)) + 1):
        loader = make(damaged)
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        resumed = make(damaged)
        resumed.load_state_dict(state)
        assert seen(resumed) == whole[4 * stop :]


def test_a_stand_in_that_is_bad_itself_gives_way_to_another(damaged, tmp_path):
    first = stand_ins(make(damaged))[BAD[0]]
    (tmp_path / "d" / damaged.path(first)).unlink()
    loader = make(damaged)
    came = dict(zip(loader.order(0).tolist(), seen(loader), strict=True))
    assert came[BAD[0]] not in (*BAD, first)
    assert came[first] not in (*BAD, first)


def test_replaced_samples_are_listed_with_name_and_reason(damaged):
    loader = make(damaged)
    for epoch in range(2):
        seen(loader)
        stats = loader.stats()
        assert stats["replaced_samples"] == 3 * (epoch + 1)
        bad = stats["bad_samples"]
        assert [entry["sample"] for entry in bad] == list(BAD)
        for entry, reason in zip(bad, ("No such file", "100 bytes", "2006 bytes"), strict=True):
            assert entry["name"] in damaged.path(entry["sample"])
            assert reason in entry["reason"]
    assert json.loads(json.dumps(loader.stats())) == loader.stats()


@pytest.mark.parametrize("allowed", [0, 2])
def test_more_bad_samples_than_allowed_are_an_error_that_names_the_setting(damaged, allowed):
    loader = make(damaged, max_bad_samples=allowed)
    with pytest.raises(forebay.ExhaustedError) as caught:
        seen(loader)
    message = str(caught.value)
    assert f"{allowed + 1} samples could not be read, at most {allowed} are allowed" in message
    assert "hint: raise max_bad_samples=" in message
    assert len(loader.stats()["bad_samples"]) == allowed


def test_as_many_bad_samples_as_allowed_are_borne(damaged):
    assert len(seen(make(damaged, max_bad_samples=3))) == 25


def test_a_dataset_of_nothing_but_bad_samples_is_an_error(damaged, tmp_path):
    for path in (tmp_path / "d").rglob("*.bin"):
        path.unlink()
    with pytest.raises(forebay.CorruptError, match=r"stand-ins were tried.*hint: check"):
        seen(make(damaged))


def test_a_damaged_image_is_replaced_too(tmp_path):
    from data import image_folders

    root = image_folders(tmp_path / "d")
    bad = sorted((root / "class0").iterdir())[1]
    bad.write_bytes(b"this is no image")
    dataset = forebay.ImageFolder(root, transform=lambda image: image.size)
    loader = forebay.DataLoader(dataset, 4, on_error="replace", collate_fn=list)
    assert sum(len(batch) for batch in loader) == 12
    (entry,) = loader.stats()["bad_samples"]
    assert entry["sample"] == 1
    assert bad.name in entry["name"]
