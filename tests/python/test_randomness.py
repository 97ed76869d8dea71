"""What the user's functions draw changes neither the order nor the training loop's numbers."""

import random
import threading

import forebay
import numpy as np
import pytest
import torch
from data import image_folders
from torchvision import transforms


@pytest.fixture
def images(tmp_path):
    """Images whose transform is random in torch, in ``random`` and in numpy."""

    def add_noise(image):
        return image + random.random() + np.random.rand()

    steps = [transforms.RandomCrop(8), transforms.ToTensor(), add_noise]
    return forebay.ImageFolder(image_folders(tmp_path / "d"), transforms.Compose(steps))


def epochs(loader, count=2):
    return [[batch[0].clone() for batch in loader] for _ in range(count)]


def same(left, right):
    return all(
        torch.equal(a, b)
        for x, y in zip(left, right, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def test_random_transforms_leave_the_order_of_later_epochs_alone(images):
    plain = torch.utils.data.TensorDataset(torch.arange(len(images)))
    orders = []
    for dataset, more in ((plain, {}), (images, {"return_index": True})):
        kind = forebay.DataLoader if more else torch.utils.data.DataLoader
        torch.manual_seed(3)
        loader = kind(dataset, batch_size=5, shuffle=True, num_workers=2, **more)
        seen = [[batch[-1].tolist() for batch in loader] for _ in range(3)]
        orders.append((seen, torch.rand(2).tolist()))
    assert orders[0] == orders[1]


def test_random_transforms_are_fresh_each_epoch_and_the_same_for_a_seed(images):
    runs = []
    for workers in (0, 1, 3):
        random.seed(workers)
        np.random.seed(workers)
        torch.manual_seed(workers)
        loader = forebay.DataLoader(images, 4, shuffle=True, seed=7, num_workers=workers)
        runs.append(epochs(loader))
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])
    assert not torch.equal(runs[0][0][0], runs[0][1][0])


@pytest.mark.parametrize("more", [{"seed": 7}, {"num_workers": 2}])
def test_a_resumed_epoch_draws_the_same_again(images, more):
    torch.manual_seed(5)
    loader = forebay.DataLoader(images, 4, shuffle=True, **more)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [batch[0] for batch in iterator]
    torch.manual_seed(77)
    resumed = forebay.DataLoader(images, 4, shuffle=True, **more)
    resumed.load_state_dict(state)
    assert same([rest], [[batch[0] for batch in resumed]])


def test_the_training_loops_own_generators_go_on_undisturbed(images):
    numbers = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        if numbers:
            for _ in forebay.DataLoader(images, 4, seed=7, num_workers=2):
                pass
            torch.manual_seed(1)  # iterating draws one base seed, as torch does
        numbers.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert numbers[0] == numbers[1]


def test_another_threads_numbers_are_its_own(images):
    """Each draw is of the one stream that the thread seeded, whatever the loader does."""

    def drawn(count):
        return [(torch.rand(1).item(), random.random(), np.random.rand()) for _ in range(count)]

    def seed():
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)

    seed()
    expected = drawn(8)
    inside, outside, numbers = threading.Event(), threading.Event(), []

    def other():
        assert inside.wait(60)
        seed()
        numbers.extend(drawn(4))
        outside.set()

    def transform(image):
        inside.set()
        assert outside.wait(60)
        return transforms.functional.to_tensor(image)[:, :8, :8]

    images.transform = transform
    thread = threading.Thread(target=other)
    thread.start()
    for _ in forebay.DataLoader(images, 4, seed=7):
        pass
    thread.join()
    numbers.extend(drawn(4))
    assert numbers == expected


def test_two_loaders_in_two_threads_leave_the_generators_where_they_were(images):
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def transform(image):
        if threading.current_thread() is threads[0]:
            first_in.set()
            assert second_in.wait(60)
        else:
            second_in.set()
            assert first_out.wait(60)
        return transforms.functional.to_tensor(image)[:, :8, :8]

    images.transform = transform

    def first():
        next(iter(forebay.DataLoader(images, 1, seed=7)))
        first_out.set()

    def second():
        assert first_in.wait(60)
        next(iter(forebay.DataLoader(images, 1, seed=7)))

    random.seed(5)
    before = random.getstate()
    threads = [threading.Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert random.getstate() == before
