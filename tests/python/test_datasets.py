"""Samples and batches of each dataset, against the files and against torchvision."""

import json
import os
import pickle
from functools import partial

import forebay
import numpy as np
import pytest
import torch
import torchvision
from data import class_folders, content, image_folders, tar_shards
from torchvision import transforms


def test_raw_files_come_with_their_bytes_and_labels(folder):
    dataset = forebay.FileFolder(folder)
    loader = forebay.DataLoader(dataset, batch_size=4, return_index=True, num_workers=2)
    seen = []
    for samples, labels, ids in loader:
        assert labels.dtype == torch.int64
        for sample, label, number in zip(samples, labels.tolist(), ids.tolist(), strict=True):
            assert sample.numpy().tobytes() == content(number, 1000 + number % 7)
            assert label == dataset.targets[number]
            seen.append(number)
    assert seen == list(range(25))
    assert len(loader) == 7


def test_bytes_are_right_when_everything_goes_through_a_tiny_memory(tmp_path):
    class_folders(tmp_path / "d", samples=300, size=5000)
    dataset = forebay.FileFolder(tmp_path / "d")
    for policy in ("farthest", "reuse", "lru", "lfu", "minio", "none"):
        loader = forebay.DataLoader(
            dataset, 16, shuffle=True, seed=1, memory="256KiB", policy=policy, return_index=True,
            num_workers=3,
        )  # fmt: skip
        for _ in range(3):
            numbers = []
            for samples, _, ids in loader:
                for sample, number in zip(samples, ids.tolist(), strict=True):
                    assert sample.numpy().tobytes() == content(number, 5000 + number % 7)
                    numbers.append(number)
            assert sorted(numbers) == list(range(300))
        assert loader.stats()["memory"]["peak_bytes"] <= 256 * 1024


def test_a_user_who_writes_into_a_batch_does_not_change_the_next_epoch(folder):
    loader = forebay.DataLoader(forebay.FileFolder(folder), 5, num_workers=2)
    before = [[s.clone() for s in samples] for samples, _ in loader]
    for samples, labels in loader:
        for sample in samples:
            sample.zero_()
        labels.zero_()
    after = [samples for samples, _ in loader]
    assert all(
        torch.equal(a, b)
        for x, y in zip(before, after, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def test_the_second_epoch_hits_memory_and_never_the_disk(folder):
    loader = forebay.DataLoader(forebay.FileFolder(folder), 5, shuffle=True, seed=3, num_workers=2)
    for _ in range(2):
        for _ in loader:
            pass
    stats = loader.stats()
    assert stats["origin_reads"] == 25
    assert stats["samples"] == 50
    assert stats["memory_hits"] >= 25


def test_an_image_folder_gives_torchvisions_samples_even_random_ones(tmp_path):
    image_folders(tmp_path / "images")
    transform = transforms.Compose(
        [transforms.RandomCrop(12), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    theirs = torchvision.datasets.ImageFolder(str(tmp_path / "images"), transform)
    ours = forebay.ImageFolder(tmp_path / "images", transform)
    assert ours.classes == theirs.classes
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.samples == theirs.samples
    assert ours.targets == theirs.targets
    batches = []
    # In Python the draws are torchvision's own; natively they are of a stream of each sample's.
    in_python = partial(forebay.DataLoader, prepare="python")
    for dataset, kind in ((theirs, torch.utils.data.DataLoader), (ours, in_python)):
        torch.manual_seed(0)
        batches.append(list(kind(dataset, batch_size=5, shuffle=True)))
    for (x, a), (y, b) in zip(*batches, strict=True):
        assert torch.equal(x, y)
        assert torch.equal(a, b)


def test_own_loaders_and_valid_file_rules_work_as_in_torchvision(tmp_path):
    image_folders(tmp_path / "images")
    arguments = {
        "loader": os.path.basename,
        "is_valid_file": lambda path: path.endswith(".png"),
        "allow_empty": True,
    }
    theirs = torchvision.datasets.ImageFolder(str(tmp_path / "images"), **arguments)
    ours = forebay.ImageFolder(tmp_path / "images", **arguments)
    assert [ours[i] for i in range(len(ours))] == [theirs[i] for i in range(len(theirs))]
    ours_in_batches = list(forebay.DataLoader(ours, 4, collate_fn=list))
    assert ours_in_batches == list(torch.utils.data.DataLoader(theirs, 4, collate_fn=list))
    assert ours.classes == theirs.classes


def test_transforms_target_transforms_and_collate_functions_are_honoured(folder):
    dataset = forebay.FileFolder(folder, transform=len, target_transform=lambda label: -label)
    batch = next(iter(forebay.DataLoader(dataset, batch_size=3)))
    assert batch[0].tolist() == [1000, 1001, 1002]
    assert batch[1].tolist() == [0, 0, 0]
    collated = next(iter(forebay.DataLoader(dataset, batch_size=3, collate_fn=lambda x: x)))
    assert collated == [(1000, 0), (1001, 0), (1002, 0)]


def test_without_batching_single_samples_come(folder):
    loader = forebay.DataLoader(forebay.FileFolder(folder), batch_size=None)
    samples = list(loader)
    assert len(samples) == len(loader) == 25
    assert samples[3][0].numpy().tobytes() == content(3, 1003)
    assert samples[3][1] == 0


def test_tar_shards_give_the_samples_that_webdataset_gives(tmp_path):
    import webdataset

    expected = tar_shards(tmp_path)
    pattern = str(tmp_path / "train-{0000..0002}.tar")
    dataset = forebay.TarFolder(pattern)
    assert [dataset[i] for i in range(len(dataset))] == expected
    theirs = list(webdataset.WebDataset(pattern, shardshuffle=False))
    ours = [dataset[i] for i in range(len(dataset))]
    names = [
        {k: v for k, v in sample.items() if k not in ("__url__", "__local_path__")}
        for sample in theirs
    ]
    assert names == ours
    loader = forebay.DataLoader(dataset, batch_size=4, shuffle=True, seed=2)
    keys = []
    for batch in loader:
        for at, key in enumerate(batch["__key__"]):
            sample = next(s for s in expected if s["__key__"] == key)
            assert batch["jpg"][at].numpy().tobytes() == sample["jpg"]
            if "seg.png" in sample:
                assert batch["seg.png"][at].numpy().tobytes() == sample["seg.png"]
            keys.append(key)
    assert sorted(keys) == sorted(s["__key__"] for s in expected)


def test_shards_may_be_named_in_a_list_whose_order_counts(tmp_path):
    expected = tar_shards(tmp_path / "a") + tar_shards(tmp_path / "b", shards=1)
    dataset = forebay.TarFolder(
        [tmp_path / "b" / "train-0000.tar", f"{tmp_path}/a/train-{{0001..0002}}.tar"]
    )
    wanted = expected[15:] + expected[5:15]
    for opened in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert [opened[i] for i in range(len(opened))] == wanted
    keys = [key for batch in forebay.DataLoader(dataset, 4) for key in batch["__key__"]]
    assert keys == [sample["__key__"] for sample in wanted]
    one = forebay.TarFolder([tmp_path / "a" / "train-0001.tar"])
    assert [one[i] for i in range(len(one))] == expected[5:10]


def test_a_list_of_shards_that_cannot_be_one_is_refused(tmp_path):
    tar_shards(tmp_path)
    with pytest.raises(ValueError, match="urls is an empty list"):
        forebay.TarFolder([])
    with pytest.raises(forebay.InvalidError, match=r"b/2\.tar: all shards of a list lie in one"):
        forebay.TarFolder([tmp_path / "train-0000.tar", "s3://b/2.tar"])
    with pytest.raises(forebay.InvalidError, match="a list names shards: files that end in"):
        forebay.TarFolder([tmp_path / "train-0000.tar", tmp_path])


def test_manifests_in_csv_and_json_lines(tmp_path):
    class_folders(tmp_path / "d")
    (tmp_path / "m.csv").write_text("path,label\nclass1/00000.bin,7\nclass0/00001.bin,2\n")
    rows = [
        {"path": "class0/00000.bin", "label": "cat", "offset": 10, "length": 5},
        {"path": "class0/00001.bin", "label": "ant"},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    of_csv = forebay.Files(tmp_path / "d", manifest=tmp_path / "m.csv")
    assert [of_csv[i][1] for i in range(2)] == [7, 2]
    assert of_csv[1][0].numpy().tobytes() == content(1, 1001)
    of_json = forebay.Files(tmp_path / "d", manifest=tmp_path / "m.jsonl")
    assert of_json.classes == ["ant", "cat"]
    assert of_json[0][0].numpy().tobytes() == content(0, 1000)[10:15]
    assert [of_json[i][1] for i in range(2)] == [1, 0]


def test_a_changed_directory_is_noticed_and_an_unchanged_one_is_not_listed_again(tmp_path):
    class_folders(tmp_path / "d", samples=6)
    for path in (tmp_path / "d", *(tmp_path / "d").iterdir()):
        os.utime(path, (10**9, 10**9))  # a directory changed this very moment is not trusted
    assert forebay.FileFolder(tmp_path / "d").native.report["built"]
    again = forebay.FileFolder(tmp_path / "d").native.report
    assert not again["built"]
    assert "refreshed" not in again
    (tmp_path / "d" / "class1" / "new.bin").write_bytes(b"new")
    os.remove(tmp_path / "d" / "class0" / "00000.bin")
    changed = forebay.FileFolder(tmp_path / "d")
    assert changed.native.report["refreshed"] == (1, 0, 1)
    assert len(changed) == 6


def test_datasets_work_in_torchs_own_loader_by_fork_and_by_spawn(folder):
    dataset = forebay.FileFolder(folder)
    for context in ("fork", "spawn", "forkserver"):
        loader = torch.utils.data.DataLoader(
            dataset,
            batch_size=4,
            num_workers=2,
            collate_fn=list,
            multiprocessing_context=context,
        )
        samples = [sample for batch in loader for sample in batch]
        assert [s.numpy().tobytes() for s, _ in samples] == [
            content(i, 1000 + i % 7) for i in range(25)
        ]


def test_datasets_and_loaders_can_be_pickled(folder):
    dataset = pickle.loads(pickle.dumps(forebay.FileFolder(folder)))
    assert dataset[4][0].numpy().tobytes() == content(4, 1004)
    loader = forebay.DataLoader(dataset, 4, shuffle=True, seed=1, return_index=True)
    first = [ids.tolist() for _, _, ids in loader]
    copy = pickle.loads(pickle.dumps(loader))
    copy.set_epoch(0)
    assert [ids.tolist() for _, _, ids in copy] == first


def test_negative_numbers_of_a_sampler_count_from_the_end_as_with_torch(folder):
    dataset = forebay.FileFolder(folder)
    loader = forebay.DataLoader(dataset, 2, sampler=[-1, 3, -25], return_index=True)
    assert [ids.tolist() for _, _, ids in loader] == [[24, 3], [0]]
    with pytest.raises(IndexError, match="the sampler gave -26"):
        list(forebay.DataLoader(dataset, 2, sampler=[-26]))


class Chosen:
    """Methods that torchvision lets a subclass have."""

    def find_classes(self, directory):
        classes, labels = super().find_classes(directory)
        kept = classes[:0:-1]
        return kept, {name: 10 + labels[name] for name in kept}


class Thinned(Chosen):
    def make_dataset(self, directory, class_to_idx, **more):
        found = torchvision.datasets.folder.make_dataset(directory, class_to_idx, **more)
        return found[::2]


@pytest.mark.parametrize("hooks", [Chosen, Thinned])
def test_classes_and_samples_that_a_subclass_chooses_are_torchvisions(tmp_path, monkeypatch, hooks):
    image_folders(tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    kinds = forebay.ImageFolder, torchvision.datasets.ImageFolder
    for root in ("images", tmp_path / "images"):
        ours, theirs = (
            type("Mine", (hooks, kind), {})(root, transforms.ToTensor()) for kind in kinds
        )
        assert (ours.classes, ours.class_to_idx) == (theirs.classes, theirs.class_to_idx)
        assert ours.samples == theirs.samples
        assert ours.targets == theirs.targets
        loader = forebay.DataLoader(ours, 1)
        assert loader.stats()["read_by"] == "forebay"
        assert [label.item() for _, label in loader] == theirs.targets


def test_a_class_that_a_subclass_makes_up_is_an_error(tmp_path):
    class MadeUp(forebay.ImageFolder):
        def find_classes(self, directory):
            return ["none"], {"none": 0}

    with pytest.raises(FileNotFoundError, match=r"class 'none'.*hint: allow_empty=True"):
        MadeUp(image_folders(tmp_path / "images"))


@pytest.mark.parametrize("root", ["images", "./images", "images/", "other/../images"])
def test_paths_of_samples_begin_as_the_user_wrote_the_root(tmp_path, monkeypatch, root):
    image_folders(tmp_path / "images")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    theirs = torchvision.datasets.ImageFolder(root).samples
    ours = forebay.ImageFolder(root)
    assert ours.samples == theirs
    ours.samples = theirs[1:3]
    assert ours.samples == theirs[1:3]
    ours.samples = [(str((tmp_path / path).resolve()), 7) for path, _ in theirs]
    assert len(ours) == len(theirs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: forebay.TarFolder(None), "urls=None is neither"),
        (lambda _: forebay.ImageFolder(""), "an address is needed"),
        (lambda file: forebay.ImageFolder(file), "is a file, not a directory"),
        (lambda file: forebay.FileFolder(file.parent, read_options={"dedline": 1}), "deadline"),
        (lambda file: forebay.FileFolder(file.parent, read_options={"deadline": "1"}), "deadline"),
        (lambda file: forebay.FileFolder(file.parent, read_options=5), "read_options=5 is not"),
    ],
)
def test_what_is_wrong_with_an_argument_is_named(tmp_path, make, message):
    file = tmp_path / "file"
    file.write_bytes(b"1")
    with pytest.raises((TypeError, ValueError, forebay.InvalidError), match=message):
        make(file)


def test_an_index_out_of_range_is_an_index_error_and_negative_ones_count_from_the_end(folder):
    dataset = forebay.FileFolder(folder)
    with pytest.raises(IndexError):
        dataset[25]
    assert torch.equal(dataset[-1][0], dataset[24][0])
    assert np.array_equal(dataset.native.labels(), np.array(dataset.targets))


def test_empty_files_are_samples_too(tmp_path):
    class_folders(tmp_path / "d", samples=3)
    (tmp_path / "d" / "class0" / "empty.bin").write_bytes(b"")
    loader = forebay.DataLoader(forebay.FileFolder(tmp_path / "d"), batch_size=2)
    sizes = [len(s) for samples, _ in loader for s in samples]
    assert sorted(sizes) == [0, 1000, 1001, 1002]


def test_a_subclass_with_samples_of_its_own_keeps_them(folder):
    class WithPath(forebay.FileFolder):
        def __getitem__(self, index):
            return len(super().__getitem__(index)[0]), self.path(index)

    sizes, paths = next(iter(forebay.DataLoader(WithPath(folder), 2)))
    assert sizes.tolist() == [1000, 1001]
    assert paths[1].endswith("class0/00001.bin")


def test_a_dataset_opened_again_reads_the_new_bytes(tmp_path):
    class_folders(tmp_path / "d", samples=3)
    path = tmp_path / "d" / "class0" / "00000.bin"
    assert forebay.FileFolder(tmp_path / "d")[0][0].numpy().tobytes() == content(0, 1000)
    path.write_bytes(content(77, 1000))
    again = forebay.FileFolder(tmp_path / "d", refresh="always")
    assert again[0][0].numpy().tobytes() == content(77, 1000)
    (tmp_path / "a.csv").write_text("path,offset,length\nclass0/00000.bin,0,500\n")
    (tmp_path / "b.csv").write_text("path,offset,length\nclass0/00000.bin,500,500\n")
    for name, part in (("a.csv", slice(0, 500)), ("b.csv", slice(500, 1000))):
        dataset = forebay.Files(tmp_path / "d", manifest=tmp_path / name)
        assert dataset[0][0].numpy().tobytes() == content(77, 1000)[part]
