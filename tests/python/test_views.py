"""Subset, random_split and ConcatDataset: read by the engine, and the same as torch's loader."""

import pickle

import forebay
import numpy as np
import pytest
import torch
import torchvision
from data import class_folders, content, image_folders, tar_shards
from servers import storage_options
from torch.utils.data import ConcatDataset, Subset, random_split
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms

FINISHED = transforms.Compose(
    [transforms.Resize(12), transforms.CenterCrop(8), transforms.ToTensor()]
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return image_folders(tmp_path_factory.mktemp("photos"), samples=14)


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    """Ten other files, in two classes."""
    return class_folders(tmp_path_factory.mktemp("more"), samples=10, classes=2, size=300)


def pairs(batch):
    """Whatever there is, without collating."""
    return [(bytes(sample.tolist()), label) for sample, label in batch]


def flat(loader):
    """Bytes and label of each sample of a loader of ours, as it comes."""
    return [
        [(sample.numpy().tobytes(), label) for sample, label in zip(*batch[:2], strict=True)]
        for batch in ([samples, labels.tolist()] for samples, labels in loader)
    ]


def compare(ours, theirs):
    """Labels are equal, and pixels to within the one level that resizing may be off."""
    for (images, labels), (pixels, targets) in zip(ours, theirs, strict=True):
        assert images.shape == pixels.shape
        assert ((images - pixels) * 255).abs().round().max() <= 1
        assert torch.equal(labels, targets)


def torchs(view, **options):
    return list(torch.utils.data.DataLoader(view, collate_fn=pairs, **options))


def views(folder, more):
    """By name, a view and how its samples are told."""
    a, b = forebay.FileFolder(folder), forebay.FileFolder(more)
    split = random_split(a, [17, 8], generator=torch.Generator().manual_seed(3))
    both = ConcatDataset([a, b])
    nested = Subset(
        ConcatDataset([Subset(a, [24, 3, 3, 7]), b, Subset(b, [9, 0])]), [15, 1, 2, 9, 4]
    )
    return {
        "some": Subset(a, [5, 1, 20]),
        "repeated": Subset(a, [4, 4, 4, 0, 4]),
        "negative": Subset(a, [-1, 2, -25]),
        "of a range": Subset(a, range(3, 20, 4)),
        "of an array": Subset(a, np.array([7, 3], dtype=np.uint8)),
        "of a tensor": Subset(a, torch.tensor([7, -3, 0])),
        "of a subset": Subset(Subset(a, [10, 11, 12, 13]), [-1, 0, 0, 2]),
        "first of a split": split[0],
        "second of a split": split[1],
        "in a row": both,
        "the same twice": ConcatDataset([a, a]),
        "added": a + b + a,
        "nested": nested,
        "negative of several": Subset(both, [-1, -35, 30]),
        "nothing in between": ConcatDataset([Subset(a, []), b, Subset(b, []), Subset(a, [2])]),
    }


NAMES = (
    "some", "repeated", "negative", "of a range", "of an array", "of a tensor", "of a subset",
    "first of a split", "second of a split", "in a row", "the same twice", "added", "nested",
    "negative of several", "nothing in between",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_view_has_the_samples_and_labels_that_torch_reads(folder, more, name):
    view = views(folder, more)[name]
    loader = forebay.DataLoader(view, 4)
    assert loader._native, loader.explain()
    assert "samples: read by forebay" in loader.explain()
    assert len(loader) == -(-len(view) // 4)
    assert flat(loader) == torchs(view, batch_size=4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_view_is_shuffled_as_torch_does_it(folder, more, name, workers):
    view = views(folder, more)[name]
    expected, ours = [], []
    torch.manual_seed(11)
    theirs = torch.utils.data.DataLoader(view, 3, shuffle=True, collate_fn=pairs)
    for _ in range(2):
        expected += list(theirs)
    torch.manual_seed(11)
    loader = forebay.DataLoader(view, 3, shuffle=True, collate_fn=pairs, num_workers=workers)
    assert loader._native
    for _ in range(2):
        ours += list(loader)
    assert ours == expected


def test_the_test_names_every_view(folder, more):
    assert tuple(views(folder, more)) == NAMES


def test_an_empty_subset_has_no_batch(folder):
    loader = forebay.DataLoader(Subset(forebay.FileFolder(folder), []), 4)
    assert loader._native
    assert (len(loader), list(loader), list(loader)) == (0, [], [])
    assert loader.state_dict()["samples"] == 0


@pytest.mark.parametrize("indices", [[3, 25], [0, -26], [0.5], [True, False], [[1], [2]]])
def test_indices_that_are_not_positions_do_as_torch_does(folder, indices):
    view = Subset(forebay.FileFolder(folder), indices)
    loader = forebay.DataLoader(view, 2, collate_fn=pairs)
    assert not loader._native
    assert "the indices of a Subset" in loader.explain()
    assert outcome(loader) == outcome(torch.utils.data.DataLoader(view, 2, collate_fn=pairs))


def outcome(loader):
    try:
        return list(loader)
    except Exception as error:
        return type(error)


def test_an_index_is_the_position_in_the_view(folder):
    view = Subset(forebay.FileFolder(folder), [7, 24, 7])
    loader = forebay.DataLoader(view, 3, return_index=True)
    ((samples, _, ids),) = loader
    assert ids.tolist() == [0, 1, 2]
    for sample, number in zip(samples, (7, 24, 7), strict=True):
        assert sample.numpy().tobytes() == content(number, 1000 + number % 7)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_a_view_are_torchvisions(photos, workers):
    ours = forebay.ImageFolder(photos, FINISHED)
    theirs = torchvision.datasets.ImageFolder(str(photos), FINISHED)
    chosen = [13, 0, 0, -2, 5]

    def view(dataset):
        return ConcatDataset([Subset(dataset, chosen), dataset])

    loader = forebay.DataLoader(view(ours), 4, num_workers=workers)
    assert "3 of 3 steps" in loader.explain()
    compare(loader, torch.utils.data.DataLoader(view(theirs), 4))


@pytest.mark.parametrize("workers", [0, 2])
def test_each_part_keeps_its_own_transforms(photos, workers):
    def dark(image):
        return transforms.functional.to_tensor(image)[:, :4, :4] / 2

    bright = transforms.Compose([transforms.Resize((4, 4)), transforms.ToTensor()])

    def view(kind):
        return ConcatDataset(
            [
                Subset(kind(str(photos), bright, lambda label: label + 100), [3, 1]),
                kind(str(photos), dark, lambda label: -label),
            ]
        )

    loader = forebay.DataLoader(view(forebay.ImageFolder), 3, num_workers=workers)
    assert loader._native
    assert "have different ones" in loader.explain()
    compare(loader, torch.utils.data.DataLoader(view(torchvision.datasets.ImageFolder), 3))


def test_labels_of_a_native_transform_go_through_target_transform(photos):
    dataset = forebay.ImageFolder(photos, FINISHED, lambda label: label * 10)
    loader = forebay.DataLoader(Subset(dataset, [13, 0, 6]), 3)
    assert "3 of 3 steps" in loader.explain()
    ((_, labels),) = loader
    theirs = torchvision.datasets.ImageFolder(str(photos)).targets
    assert labels.tolist() == [10 * theirs[at] for at in (13, 0, 6)]


def test_tar_shards_in_a_view_come_with_their_fields(tmp_path):
    expected = tar_shards(tmp_path / "a") * 2
    dataset = forebay.TarFolder(tmp_path / "a" / "train-{0000..0002}.tar")
    view = Subset(ConcatDataset([dataset, dataset]), [29, 0, 3])
    loader = forebay.DataLoader(view, 3)
    assert loader._native
    (fields,) = loader
    assert fields["__key__"] == [expected[at]["__key__"] for at in (29, 0, 3)]
    jpgs = [sample.numpy().tobytes() for sample in fields["jpg"]]
    assert jpgs == [expected[at]["jpg"] for at in (29, 0, 3)]


class Named(forebay.FileFolder):
    """Only another ``__init__``."""

    def __init__(self, root, name):
        super().__init__(root)
        self.name = name


class NamedSubset(Subset):
    def __init__(self, dataset, name):
        super().__init__(dataset, [3, 1])
        self.name = name


class Halved(forebay.FileFolder):
    def __len__(self):
        return super().__len__() // 2


class Indexed(forebay.FileFolder):
    def __getitem__(self, index):
        return (*super().__getitem__(index), index)


class Relabelled(forebay.FileFolder):
    def label(self, index):
        return index + 100


class Shortened(forebay.FileFolder):
    def item(self, raw, label, index):
        return raw[:1], label


class Weighted(Subset):
    def __getitem__(self, index):
        return (*super().__getitem__(index), 0.5)

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Wrapped(torch.utils.data.Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return self.inner[index]


def test_a_subclass_that_only_adds_an_init_is_read_by_the_engine(folder):
    for dataset in (Named(folder, "x"), NamedSubset(forebay.FileFolder(folder), "x")):
        loader = forebay.DataLoader(dataset, 4)
        assert loader._native
        assert flat(loader) == torchs(dataset, batch_size=4)
    halved = forebay.DataLoader(Halved(folder), 4)
    assert halved._native
    assert flat(halved) == torchs(Halved(folder), batch_size=4)
    assert len(halved.dataset) == 12


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Indexed, "Indexed has a __getitem__ of its own"),
        (lambda root: Subset(Indexed(root), [1]), "Indexed has a __getitem__ of its own"),
        (Relabelled, "Relabelled has a method label of its own"),
        (Shortened, "Shortened has a method item of its own"),
        (lambda root: Weighted(forebay.FileFolder(root), [1]), "Weighted has a __getitem__"),
        (lambda root: Wrapped(forebay.FileFolder(root)), "Wrapped is not a dataset of forebay's"),
        (lambda root: ConcatDataset([forebay.FileFolder(root), [1]]), "list is not a dataset"),
    ],
)
def test_what_falls_to_python_says_why(folder, make, why):
    dataset = make(folder)
    loader = forebay.DataLoader(dataset, 2, collate_fn=list)
    assert f"samples: read by torch, in Python: {why}" in loader.explain()
    assert loader.stats()["read_by"] == "torch"
    assert len(list(loader)) == len(loader)
    assert str(next(iter(loader))) == str(
        next(iter(torch.utils.data.DataLoader(dataset, 2, collate_fn=list)))
    )
    with pytest.raises(ValueError, match=why):
        forebay.DataLoader(dataset, 2, return_index=True)


def test_local_files_and_objects_of_a_store_together_are_read_by_torch(folder, more, bucket, s3):
    name = bucket({f"a/{at}.bin": content(at, 50) for at in range(3)})
    remote = forebay.FileFolder(f"s3://{name}/", storage_options=storage_options(s3.endpoint))
    view = ConcatDataset([remote, forebay.FileFolder(more)])
    loader = forebay.DataLoader(view, 4, collate_fn=pairs)
    assert "local files as well as objects of a store" in loader.explain()
    assert list(loader) == torchs(view, batch_size=4)


def test_several_stores_in_a_row_are_read_by_the_engine_and_kept_on_disk(bucket, s3, tmp_path):
    sizes = 40, 9
    buckets = [
        bucket({f"c{at % 3}/{at:03}.bin": content(at, 50 + at) for at in range(size)})
        for size in sizes
    ]
    first, second = (
        forebay.FileFolder(f"s3://{name}/", storage_options=storage_options(s3.endpoint))
        for name in buckets
    )
    view = ConcatDataset([Subset(first, [39, 0, 0, 17]), second])
    loader = forebay.DataLoader(
        view, 4, shuffle=True, seed=2, cache_dir=tmp_path / "cache", memory="16MiB"
    )
    assert loader._native
    expected = dict(enumerate(sum(torchs(view, batch_size=4), [])))
    for epoch in range(3):
        order = loader.order(epoch).tolist()
        assert sum(flat(loader), []) == [expected[at] for at in order]
    # A sample that stands at two positions is one sample.
    assert loader.stats()["origin_reads"] == 12
    loader.close()
    again = forebay.DataLoader(
        view, 4, shuffle=True, seed=2, cache_dir=tmp_path / "cache", memory="16MiB"
    )
    assert sum(flat(again), []) == [expected[at] for at in again.order(0).tolist()]
    assert again.stats()["origin_reads"] == 0


def test_views_of_one_dataset_share_what_an_engine_holds(folder):
    dataset, engine = forebay.FileFolder(folder), forebay.Engine(memory="8MiB")
    first = forebay.DataLoader(Subset(dataset, range(20)), 5, engine=engine)
    second = forebay.DataLoader(Subset(dataset, range(24, 4, -1)), 5, engine=engine)
    assert flat(first) == torchs(first.dataset, batch_size=5)
    assert flat(second) == torchs(second.dataset, batch_size=5)
    reads = first.stats()["origin_reads"] + second.stats()["origin_reads"]
    assert reads == 25


def test_train_and_validation_of_one_split_have_the_transforms_of_their_datasets(photos):
    evaluate = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])

    def split(kind, *transform):
        datasets = [kind(str(photos), each) for each in transform]
        orders = torch.randperm(14, generator=torch.Generator().manual_seed(1)).tolist()
        return Subset(datasets[0], orders[:10]), Subset(datasets[-1], orders[10:])

    ours = split(forebay.ImageFolder, FINISHED, evaluate)
    theirs = split(torchvision.datasets.ImageFolder, FINISHED, evaluate)
    engine = forebay.Engine(memory="8MiB")
    for mine, torch_s in zip(ours, theirs, strict=True):
        loader = forebay.DataLoader(mine, 4, engine=engine)
        compare(loader, torch.utils.data.DataLoader(torch_s, 4))


def test_halves_of_one_dataset_have_its_one_transform_as_with_torch(photos):
    def halves(kind):
        dataset = kind(str(photos), FINISHED)
        return random_split(dataset, [10, 4], generator=torch.Generator().manual_seed(1))

    ours, theirs = halves(forebay.ImageFolder), halves(torchvision.datasets.ImageFolder)
    loaders = [forebay.DataLoader(half, 4) for half in ours]
    for loader in loaders:
        assert list(loader)
    evaluate = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])
    ours[1].dataset.transform = theirs[1].dataset.transform = evaluate
    for loader, half in zip(loaders, theirs, strict=True):
        compare(loader, torch.utils.data.DataLoader(half, 4))


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_state_over_a_view_goes_on_where_it_was(folder, more, planned, taken):
    def loader():
        order = {"seed": 5} if planned else {"generator": torch.Generator().manual_seed(9)}
        view = views(folder, more)["nested"]
        return forebay.DataLoader(view, 2, shuffle=True, collate_fn=pairs, **order)

    first = loader()
    list(first)
    epoch = iter(first)
    for _ in range(taken):
        next(epoch)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    rest = list(epoch) + list(first)
    second = loader()
    second.load_state_dict(state)
    assert list(second) + list(second) == rest


def test_a_state_of_another_view_is_refused(folder):
    dataset = forebay.FileFolder(folder)
    state = forebay.DataLoader(Subset(dataset, [1, 2, 3]), seed=1).state_dict()
    for indices in ([1, 2, 4], [2, 1, 3]):
        other = forebay.DataLoader(Subset(dataset, indices), seed=1)
        with pytest.raises(forebay.InvalidError, match="another dataset"):
            other.load_state_dict(state)
    same = forebay.DataLoader(Subset(forebay.FileFolder(folder), np.array([1, 2, 3])), seed=1)
    same.load_state_dict(state)


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_a_view_as_a_distributed_sampler_deals_it(folder, more, drop_last):
    view = views(folder, more)["in a row"]
    engine = forebay.Engine(memory="8MiB")
    for rank in range(3):
        sampler = DistributedSampler(view, 3, rank, seed=4, drop_last=drop_last)
        options = {"drop_last": drop_last, "collate_fn": pairs}
        theirs = torch.utils.data.DataLoader(view, 4, sampler=sampler, **options)
        planned = forebay.DataLoader(
            view, 4, shuffle=True, seed=4, rank=rank, world_size=3, engine=engine, **options
        )
        dealt = forebay.DataLoader(view, 4, sampler=sampler, engine=engine, **options)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            expected = list(theirs)
            assert list(planned) == expected
            sampler.set_epoch(epoch)
            assert list(dealt) == expected


def test_a_bad_sample_of_a_view_is_named_by_its_position(photos, tmp_path):
    image_folders(tmp_path / "d", samples=6)
    bad = sorted((tmp_path / "d").rglob("*.jpg"))[0]
    bad.write_bytes(bad.read_bytes()[:200])
    dataset = forebay.ImageFolder(tmp_path / "d", FINISHED)
    at = [path for path, _ in dataset.samples].index(str(bad))
    view = Subset(dataset, [other for other in range(6) if other != at] + [at])
    for prepare in ("auto", "python"):
        with pytest.raises(forebay.CorruptError, match=r"sample 5 \(.*" + bad.name):
            list(forebay.DataLoader(view, 2, prepare=prepare))
        loader = forebay.DataLoader(view, 2, prepare=prepare, on_error="replace", return_index=True)
        ids = torch.cat([batch[2] for batch in loader]).tolist()
        assert ids[:5] == list(range(5))
        assert 0 <= ids[5] < 5
        assert [bad["sample"] for bad in loader.stats()["bad_samples"]] == [5]


def test_a_loader_over_a_view_survives_pickling(folder, more):
    loader = forebay.DataLoader(views(folder, more)["nested"], 2, collate_fn=pairs)
    expected = list(loader)
    assert list(pickle.loads(pickle.dumps(loader))) == expected


def test_what_if_knows_a_view(folder):
    loader = forebay.DataLoader(Subset(forebay.FileFolder(folder), [1, 8, 20]), 2, seed=1)
    (row,) = loader.what_if("1MiB")
    assert (row["samples"], row["origin_reads"]) == (3, 0)
    assert row["epochs"][0]["origin_reads"] == 3
