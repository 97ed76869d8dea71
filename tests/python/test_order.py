"""The order is torch's, index by index, and its generators end up as torch leaves them."""

import os
import random

import forebay
import numpy as np
import pytest
import torch
from forebay import _forebay
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

SIZES = [0, 1, 2, 10, 623, 624, 625, 1000, 1_281_167, 14_200_000]


def ids(loader, stop=None):
    """The sample numbers that a loader yields, batch by batch."""
    seen = []
    for at, (_, _, numbers) in enumerate(loader):
        seen.append(numbers.tolist())
        if stop is not None and at + 1 == stop:
            break
    return seen


class Numbers(torch.utils.data.Dataset):
    """torch's side of the comparison: sample i is the number i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def torch_ids(loader, stop=None):
    seen = []
    for at, batch in enumerate(loader):
        seen.append(batch.tolist())
        if stop is not None and at + 1 == stop:
            break
    return seen


@pytest.mark.parametrize("n", SIZES)
def test_randperm_is_torchs_and_leaves_the_same_state(n):
    for seed in (0, 1, 2**32 + 7, 2**63 - 1) if n < 10**6 else (5,):
        generator = torch.Generator().manual_seed(seed)
        state = torch.Generator().manual_seed(seed).get_state().numpy()
        for _ in range(3 if n < 10**6 else 2):
            expected = torch.randperm(n, generator=generator).numpy()
            out = np.empty(n, dtype=np.uint32)
            state = _forebay.randperm_into(state, out)
            assert np.array_equal(out, expected)
            assert np.array_equal(state, generator.get_state().numpy())


@pytest.mark.skipif(not os.environ.get("FOREBAY_SLOW_TESTS"), reason="FOREBAY_SLOW_TESTS=1 runs it")
@pytest.mark.slow
def test_the_largest_randperm_branch_is_torchs():
    n = 214_748_364
    generator = torch.Generator().manual_seed(11)
    state = generator.get_state().numpy()
    expected = torch.randperm(n, generator=generator).numpy()
    out = np.empty(n, dtype=np.uint32)
    state = _forebay.randperm_into(state, out)
    assert np.array_equal(out, expected)
    assert np.array_equal(state, generator.get_state().numpy())


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_shuffled_loader_yields_torchs_indices(
    folder, own_generator, workers, persistent, drop_last
):
    if persistent and not workers:
        pytest.skip("torch refuses it")
    dataset = forebay.FileFolder(folder)
    n = len(dataset)
    for stop in (None, 1, 2, 3):
        results = []
        for make, take in (
            (lambda **kw: torch.utils.data.DataLoader(Numbers(n), **kw), torch_ids),
            (lambda **kw: forebay.DataLoader(dataset, return_index=True, **kw), ids),
        ):
            torch.manual_seed(7)
            generator = torch.Generator().manual_seed(3) if own_generator else None
            loader = make(
                batch_size=8,
                shuffle=True,
                num_workers=workers,
                persistent_workers=persistent,
                drop_last=drop_last,
                generator=generator,
            )
            epochs = [take(loader, stop if epoch == 1 else None) for epoch in range(3)]
            after = torch.default_generator.get_state().tolist()
            own = generator.get_state().tolist() if generator else None
            results.append((epochs, after, own))
            del loader
        assert results[0][0] == results[1][0], f"order, stop={stop}"
        assert results[0][1] == results[1][1], f"default generator after, stop={stop}"
        assert results[0][2] == results[1][2], f"own generator after, stop={stop}"


SAMPLERS = {
    "sequential": lambda n, g: SequentialSampler(range(n)),
    "random": lambda n, g: RandomSampler(range(n), generator=g),
    "random with replacement": lambda n, g: RandomSampler(
        range(n), replacement=True, num_samples=70, generator=g
    ),
    "random, fewer": lambda n, g: RandomSampler(range(n), num_samples=n // 2, generator=g),
    "random, more": lambda n, g: RandomSampler(range(n), num_samples=2 * n + 3, generator=g),
    "random, twice": lambda n, g: RandomSampler(range(n), num_samples=2 * n, generator=g),
    "subset": lambda n, g: SubsetRandomSampler([1, 5, 3, 8, 20, 2], generator=g),
    "subset of a tensor": lambda n, g: SubsetRandomSampler(torch.tensor([4, 5, 9]), generator=g),
    "weighted": lambda n, g: WeightedRandomSampler(
        [0.1 * (i + 1) for i in range(n)], 50, generator=g
    ),
    "weighted, no replacement": lambda n, g: WeightedRandomSampler(
        [1.0 + i for i in range(n)], 9, replacement=False, generator=g
    ),
    "distributed": lambda n, g: DistributedSampler(range(n), 3, 1, seed=4),
    "a list": lambda n, g: [3, 1, 2, 2, 0],
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("batch_sampler", [False, True])
@pytest.mark.parametrize("stop", [None, 2])
def test_every_sampler_gives_torchs_order(folder, name, own_generator, batch_sampler, stop):
    dataset = forebay.FileFolder(folder)
    n = len(dataset)
    results = []
    for make, take in (
        (lambda **kw: torch.utils.data.DataLoader(Numbers(n), **kw), torch_ids),
        (lambda **kw: forebay.DataLoader(dataset, return_index=True, **kw), ids),
    ):
        torch.manual_seed(7)
        generator = torch.Generator().manual_seed(3) if own_generator else None
        sampler = SAMPLERS[name](n, generator)
        if batch_sampler:
            loader = make(batch_sampler=BatchSampler(sampler, 4, True))
        else:
            loader = make(batch_size=4, sampler=sampler)
        results.append(
            (
                [take(loader, stop if epoch == 1 else None) for epoch in range(3)],
                torch.default_generator.get_state().tolist(),
                generator.get_state().tolist() if generator else None,
            )
        )
    assert results[0] == results[1]


def test_a_sampler_that_draws_while_training_draws_sees_torchs_interleaving(folder):
    """Draws of the training loop between batches must fall where they would with torch."""

    class Drawing(torch.utils.data.Sampler):
        def __iter__(self):
            for _ in range(20):
                yield int(torch.randint(25, ()))

        def __len__(self):
            return 20

    dataset = forebay.FileFolder(folder)
    results = []
    for make in (
        lambda **kw: torch.utils.data.DataLoader(Numbers(len(dataset)), **kw),
        lambda **kw: forebay.DataLoader(dataset, return_index=True, **kw),
    ):
        torch.manual_seed(1)
        seen = []
        for batch in make(batch_size=3, sampler=Drawing()):
            numbers = batch if torch.is_tensor(batch) else batch[2]
            seen.append((numbers.tolist(), torch.rand(2).tolist()))
        results.append(seen)
    assert results[0] == results[1]


def test_500_distributed_settings_are_dealt_as_torch_deals_them(tmp_path):
    pick = random.Random(0)
    for _ in range(500):
        n = pick.choice([1, 2, 3, 7, 10, 64, 100, 1001])
        world = pick.randint(1, 9)
        rank = pick.randrange(world)
        seed, epoch = pick.randrange(2**31), pick.randrange(50)
        drop_last, shuffle = pick.random() < 0.5, pick.random() < 0.8
        size, drop_batch = pick.randint(1, 9), pick.random() < 0.5
        if drop_last and n < world:
            continue
        sampler = DistributedSampler(range(n), world, rank, shuffle, seed, drop_last)
        sampler.set_epoch(epoch)
        expected = list(BatchSampler(sampler, size, drop_batch))
        plan = _forebay.Plan(
            n,
            seed=seed if shuffle else None,
            world=world,
            uneven="drop" if drop_last else "pad",
            batch_size=size,
            drop_last=drop_batch,
        )
        drawn = plan.epoch(epoch)
        batches = [drawn.batch(rank, at) for at in range(drawn.batches(rank))]
        assert batches == expected, (n, world, rank, seed, epoch, drop_last, shuffle, size)


def test_accelerates_dealing_is_the_plans(tmp_path):
    from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler

    pick = random.Random(1)
    for _ in range(300):
        n, world, size = pick.randint(1, 60), pick.randint(2, 4), pick.randint(1, 6)
        drop_last, seed, epoch = pick.random() < 0.4, pick.randrange(1000), pick.randrange(5)
        for rank in range(world):
            sampler = SeedableRandomSampler(range(n), data_seed=seed)
            sampler.set_epoch(epoch)
            shard = BatchSamplerShard(BatchSampler(sampler, size, drop_last), world, rank)
            expected = list(shard)
            plan = _forebay.Plan(
                n, seed=seed, world=world, deal="batches", batch_size=size, drop_last=drop_last
            )
            drawn = plan.epoch(epoch)
            batches = [drawn.batch(rank, at) for at in range(drawn.batches(rank))]
            assert batches == expected, (n, world, size, drop_last, rank)


def test_accelerates_seedable_sampler_is_known_and_counts_its_epochs(folder):
    from accelerate.data_loader import SeedableRandomSampler

    dataset = forebay.FileFolder(folder)
    expected_sampler = SeedableRandomSampler(range(len(dataset)), data_seed=5)
    expected = [list(BatchSampler(expected_sampler, 4, False)) for _ in range(3)]
    sampler = SeedableRandomSampler(range(len(dataset)), data_seed=5)
    loader = forebay.DataLoader(dataset, batch_size=4, sampler=sampler, return_index=True)
    assert [ids(loader) for _ in range(3)] == expected
    assert sampler.epoch == expected_sampler.epoch


def test_a_seed_makes_the_order_that_is_promised(folder):
    dataset = forebay.FileFolder(folder)
    n = len(dataset)
    for rank in range(3):
        loader = forebay.DataLoader(
            dataset, 4, shuffle=True, seed=9, rank=rank, world_size=3, return_index=True
        )
        for epoch in range(3):
            sampler = DistributedSampler(range(n), 3, rank, seed=9)
            sampler.set_epoch(epoch)
            assert loader.order(epoch).tolist() == list(sampler)
            assert sum(ids(loader), []) == list(sampler)
        loader.set_epoch(1)
        sampler.set_epoch(1)
        assert sum(ids(loader), []) == list(sampler)
        loader.sampler.set_epoch(7)
        sampler.set_epoch(7)
        assert sum(ids(loader), []) == list(sampler)


def test_evaluation_without_padding_sees_each_sample_once(folder):
    dataset = forebay.FileFolder(folder)
    seen = []
    for rank in range(3):
        loader = forebay.DataLoader(
            dataset, 4, seed=0, rank=rank, world_size=3, even=False, return_index=True
        )
        seen += sum(ids(loader), [])
    assert sorted(seen) == list(range(len(dataset)))


def test_any_map_style_dataset_comes_in_the_same_order():
    for workers in (0, 2):
        for own_generator in (False, True):
            results = []
            for kind in (torch.utils.data.DataLoader, forebay.DataLoader):
                torch.manual_seed(7)
                generator = torch.Generator().manual_seed(3) if own_generator else None
                loader = kind(
                    Numbers(25),
                    batch_size=4,
                    shuffle=True,
                    num_workers=workers,
                    generator=generator,
                )
                epochs = [torch_ids(loader, stop) for stop in (None, 2, None)]
                after = torch.default_generator.get_state().tolist()
                results.append((epochs, after, generator and generator.get_state().tolist()))
            assert results[0] == results[1]


def test_a_sampler_that_the_user_changes_is_looked_at_anew_each_epoch(folder):
    dataset = forebay.FileFolder(folder)
    sampler = SubsetRandomSampler([1, 2, 3])
    loader = forebay.DataLoader(dataset, 2, sampler=sampler, return_index=True)
    assert sorted(sum(ids(loader), [])) == [1, 2, 3]
    sampler.indices = [7, 8, 9, 10]
    assert sorted(sum(ids(loader), [])) == [7, 8, 9, 10]
    loader.batch_sampler.batch_size = 4
    assert [len(batch) for batch in ids(loader)] == [4]


class EagerBatches:
    """Draws when its iterator is made, not when it is asked; has no fixed batch size."""

    batch_size = None

    def __iter__(self):
        return iter(torch.randperm(24).view(-1, 4).tolist())

    def __len__(self):
        return 6


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ours", [False, True])
def test_an_eager_batch_sampler_draws_where_it_would_with_torch(folder, workers, ours):
    dataset = forebay.FileFolder(folder) if ours else Numbers(25)
    results = []
    for kind in (torch.utils.data.DataLoader, forebay.DataLoader):
        theirs = kind is torch.utils.data.DataLoader
        torch.manual_seed(2)
        loader = kind(
            Numbers(25) if theirs else dataset,
            batch_sampler=EagerBatches(),
            num_workers=workers,
            **({"return_index": True} if ours and not theirs else {}),
        )
        take = ids if ours and not theirs else torch_ids
        results.append(([take(loader) for _ in range(2)], torch.rand(1).item()))
    assert results[0] == results[1]
