"""What a user changes in a dataset after the loader was made counts from the next epoch on."""

import forebay
import numpy as np
import pytest
import torch
import torchvision
from data import content, image_folders
from torch.utils.data import Subset
from torchvision import transforms

SMALL = transforms.Compose([transforms.Resize(12), transforms.CenterCrop(8), transforms.ToTensor()])
TINY = transforms.Compose([transforms.Resize(12), transforms.CenterCrop(4), transforms.ToTensor()])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return image_folders(tmp_path_factory.mktemp("photos"))


def negative(image):
    return 1 - transforms.functional.to_tensor(image)


def hundred_more(label):
    return label + 100


def collate_by_hand(items):
    images, labels = zip(*items, strict=True)
    return -torch.stack(images), torch.tensor(labels)


def compare(loader, dataset, **options):
    theirs = torch.utils.data.DataLoader(dataset, loader.batch_size, **options)
    for (images, labels), (pixels, targets) in zip(loader, theirs, strict=True):
        assert images.shape == pixels.shape
        assert ((images - pixels) * 255).abs().round().max() <= 1
        assert torch.equal(labels, targets)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_another_transform_is_used_from_the_next_epoch_on(photos, workers, persistent):
    ours = forebay.ImageFolder(photos, SMALL)
    theirs = torchvision.datasets.ImageFolder(str(photos), SMALL)
    loader = forebay.DataLoader(
        ours, 4, num_workers=workers, persistent_workers=persistent and bool(workers)
    )
    for transform in (SMALL, TINY, negative, TINY, SMALL):
        ours.transform = theirs.transform = transform
        compare(loader, theirs)


def test_a_step_that_is_changed_in_place_counts(photos):
    steps = [transforms.Resize(12), transforms.CenterCrop(8), transforms.ToTensor()]
    transform = transforms.Compose(steps)
    ours = forebay.ImageFolder(photos, transform)
    theirs = torchvision.datasets.ImageFolder(str(photos), transform)
    loader = forebay.DataLoader(ours, 4)
    compare(loader, theirs)
    steps[1].size = (6, 6)
    compare(loader, theirs)
    steps.append(transforms.Normalize([0.5] * 3, [0.25] * 3))
    images = torch.cat([images for images, _ in loader])
    assert images.shape[2:] == (6, 6)
    assert images.min() < 0
    steps.append(torch.neg)
    negated = torch.cat([images for images, _ in loader])
    assert torch.equal(negated, -images)


def test_an_epoch_under_way_keeps_what_it_began_with(photos):
    dataset = forebay.ImageFolder(photos, SMALL)
    loader = forebay.DataLoader(dataset, 4)
    epoch = iter(loader)
    next(epoch)
    dataset.transform = TINY
    assert {images.shape[2] for images, _ in epoch} == {8}
    assert {images.shape[2] for images, _ in loader} == {4}
    assert "3 of 3 steps" in loader.explain()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_of_raw_samples_keeps_the_functions_it_began_with(folder, workers):
    dataset = forebay.FileFolder(folder)
    loader = forebay.DataLoader(dataset, 4, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    dataset.target_transform = hundred_more
    dataset.transform = len
    rest = list(iterator)
    assert [sample.numpy().tobytes() for samples, _ in rest for sample in samples] == [
        content(at, 1000 + at % 7) for at in range(4, 25)
    ]
    assert all(label < 100 for _, labels in rest for label in labels)
    again = list(loader)
    assert again[0][0].tolist() == [1000, 1001, 1002, 1003]
    assert all(label >= 100 for _, labels in again for label in labels)


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 2), ("rank", 1), ("world_size", 2), ("memory", "1MiB"), ("cache_dir", "x")],
)
def test_an_option_that_would_change_nothing_any_more_cannot_be_set(folder, name, value):
    loader = forebay.DataLoader(forebay.FileFolder(folder), 4, seed=1)
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader"):
        setattr(loader, name, value)
    loader.return_index = True
    assert len(next(iter(loader))) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_another_target_transform_is_used_from_the_next_epoch_on(photos, workers):
    ours = forebay.ImageFolder(photos, SMALL)
    theirs = torchvision.datasets.ImageFolder(str(photos), SMALL)
    loader = forebay.DataLoader(ours, 4, num_workers=workers)
    for function in (None, lambda label: label + 7, lambda label: -label, None):
        ours.target_transform = theirs.target_transform = function
        compare(loader, theirs)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("transform", [SMALL, negative])
def test_another_collate_fn_is_used_from_the_next_epoch_on(photos, workers, transform):
    ours = forebay.ImageFolder(photos, transform)
    theirs = torchvision.datasets.ImageFolder(str(photos), transform)
    loader = forebay.DataLoader(ours, 4, num_workers=workers, persistent_workers=bool(workers))
    compare(loader, theirs)
    loader.collate_fn = collate_by_hand
    compare(loader, theirs, collate_fn=collate_by_hand)


def test_the_batch_size_stays(photos):
    loader = forebay.DataLoader(forebay.ImageFolder(photos, SMALL), 4)
    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 2


@pytest.mark.parametrize("order", [{}, {"seed": 3}, {"seed": 3, "shuffle": True}])
def test_samples_that_are_assigned_are_those_of_the_next_epoch(photos, order):
    ours = forebay.ImageFolder(photos, SMALL)
    theirs = torchvision.datasets.ImageFolder(str(photos), SMALL)
    loader = forebay.DataLoader(ours, 4, **order)
    list(loader)
    chosen = [(path, label + 5) for path, label in theirs.samples[7:1:-2]]
    ours.samples = theirs.samples = chosen
    theirs.imgs = chosen
    assert ours.samples == ours.imgs == chosen
    assert ours.targets == [label for _, label in chosen]
    assert (len(ours), len(loader)) == (3, 1)
    numbers = torch.randperm(3, generator=torch.Generator().manual_seed(4)).tolist()
    compare(loader, Subset(theirs, numbers if order.get("shuffle") else range(3)))
    image, label = ours[-1]
    assert torch.equal(image, theirs[-1][0])
    assert label == theirs[-1][1]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_targets_that_are_assigned_are_those_of_the_next_epoch(photos, kind):
    ours = forebay.ImageFolder(photos, SMALL)
    loader = forebay.DataLoader(ours, 4)
    list(loader)
    labels = [at * 3 for at in range(12)]
    ours.targets = kind(labels)
    assert torch.cat([labels for _, labels in loader]).tolist() == labels
    assert [ours[at][1] for at in (0, 5)] == [0, 15]
    ours.targets[5] = 99  # a list of the user's own: torch would see it too
    assert torch.cat([labels for _, labels in loader]).tolist()[4:7] == [12, 99, 18]
    half = forebay.DataLoader(Subset(ours, [5, 5, 0]), 3)
    assert next(iter(half))[1].tolist() == [99, 99, 0]


def test_assigned_labels_also_reach_worker_processes(photos):
    dataset = forebay.ImageFolder(photos, negative)
    loader = forebay.DataLoader(dataset, 4, num_workers=2, persistent_workers=True)
    list(loader)
    dataset.targets = list(range(100, 112))
    assert torch.cat([labels for _, labels in loader]).tolist() == list(range(100, 112))


def test_other_indices_of_a_subset_are_those_of_the_next_epoch(folder):
    subset = Subset(forebay.FileFolder(folder), [1, 2, 3])
    loader = forebay.DataLoader(subset, 2)
    assert numbers_of(loader) == [1, 2, 3]
    subset.indices = [9, 0]
    assert numbers_of(loader) == [9, 0]
    subset.indices.append(24)
    assert (len(loader), numbers_of(loader)) == (2, [9, 0, 24])
    subset.dataset = forebay.FileFolder(folder)
    assert numbers_of(loader) == [9, 0, 24]


def numbers_of(loader):
    known = {content(at, 1000 + at % 7): at for at in range(25)}
    return [known[sample.numpy().tobytes()] for samples, _ in loader for sample in samples]


def test_a_change_that_python_must_read_is_read_by_python(folder):
    subset = Subset(forebay.FileFolder(folder), [1, 2, 3])
    loader = forebay.DataLoader(subset, 2, collate_fn=list)
    assert loader._native
    list(loader)
    subset.indices = [0, 25]
    with pytest.raises(IndexError):
        list(loader)
    assert not loader._native
    assert loader.stats()["read_by"] == "torch"
    subset.indices = [0, 24]
    assert len(list(loader)) == 1
    assert loader._native
    assert loader.stats()["read_by"] == "forebay"


def test_an_option_that_no_longer_holds_is_an_error_in_the_next_epoch(folder):
    subset = Subset(forebay.FileFolder(folder), [1, 2, 3])
    loader = forebay.DataLoader(subset, 2, return_index=True)
    list(loader)
    subset.indices = [0, 25]
    with pytest.raises(ValueError, match="return_index=True needs a dataset of forebay's"):
        iter(loader)


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.samples.append(("x", 1)),
        lambda dataset: dataset.samples.sort(),
        lambda dataset: dataset.imgs.__setitem__(0, ("x", 1)),
        lambda dataset: dataset.targets.__setitem__(0, 5),
        lambda dataset: dataset.targets.__delitem__(0),
    ],
)
def test_a_list_that_would_change_nothing_cannot_be_changed(photos, change):
    dataset = forebay.ImageFolder(photos, SMALL)
    with pytest.raises(forebay.InvalidError, match="changing it in place would change nothing"):
        change(dataset)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("samples", [("/elsewhere/a.jpg", 0)], "'/elsewhere/a.jpg', which this dataset did not"),
        ("samples", [3], "3, which is not"),
        ("targets", [0.5] * 12, "not one whole number for each sample"),
        ("targets", [[1]] * 12, "not one whole number for each sample"),
    ],
)
def test_what_cannot_be_read_is_an_error_when_it_is_assigned(photos, name, value, message):
    dataset = forebay.ImageFolder(photos, SMALL)
    with pytest.raises(forebay.InvalidError, match=message):
        setattr(dataset, name, value)


def test_targets_of_another_number_are_an_error_in_the_next_epoch(photos):
    dataset = forebay.ImageFolder(photos, SMALL)
    loader = forebay.DataLoader(dataset, 4)
    dataset.targets = [0] * 5
    with pytest.raises(forebay.InvalidError, match="targets has 5 labels, the dataset has 12"):
        iter(loader)


def test_a_state_from_before_the_samples_changed_is_refused(photos):
    dataset = forebay.ImageFolder(photos, SMALL)
    loader = forebay.DataLoader(dataset, 4, seed=1)
    epoch = iter(loader)
    next(epoch)
    state = loader.state_dict()
    dataset.targets = [0] * 12
    with pytest.raises(forebay.InvalidError, match="another dataset"):
        loader.load_state_dict(state)
    other = forebay.DataLoader(forebay.ImageFolder(photos, SMALL), 4, seed=1)
    other.load_state_dict(state)
    assert len(list(other)) == 2
