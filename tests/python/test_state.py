"""Where a loader is can be saved and gone on from, on any number of ranks."""

import json

import forebay
import pytest
import torch
from data import class_folders

N, BATCH = 25, 2


def make(dataset, rank=0, world=1, **more):
    more = {"seed": 5, "shuffle": True, **more}
    return forebay.DataLoader(
        dataset,
        more.pop("batch_size", BATCH),
        rank=rank,
        world_size=world,
        return_index=True,
        **more,
    )


def take(iterator, count=None):
    """Sample numbers of the next batches."""
    seen = []
    while count is None or count > 0:
        try:
            seen += next(iterator)[2].tolist()
        except StopIteration:
            break
        count = None if count is None else count - 1
    return seen


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("new_world", [1, 2, 3])
def test_a_resume_at_every_batch_on_other_ranks_gives_each_sample_once(folder, world, new_world):
    dataset = forebay.FileFolder(folder)
    batches = len(make(dataset, 0, world))
    for stop in range(batches + 1):
        seen = []
        states = []
        for rank in range(world):
            loader = make(dataset, rank, world)
            iterator = iter(loader)
            seen += take(iterator, stop)
            states.append(loader.state_dict())
        assert all(state == states[0] for state in states), "any rank's state will do"
        rest = []
        for rank in range(new_world):
            loader = make(dataset, rank, new_world)
            loader.load_state_dict(json.loads(json.dumps(states[-1])))
            rest.append(take(iter(loader)))
        assert len({len(part) for part in rest}) == 1, "ranks take equal steps"
        after = sum(rest, [])
        padded = max(0, len(seen) - N)
        assert set(seen) | set(after) == set(range(N))
        padding = len(after) - len(set(after))
        new = len(set(after) - set(seen))
        # Each remaining sample exactly once; what comes again is padding, fewer than the ranks.
        assert new == N - len(set(seen))
        assert len(after) - new <= new_world - 1 or new == 0
        assert padding <= new_world - 1
        assert padded <= world - 1


def test_a_resumed_epoch_is_the_same_bytes_and_the_next_epoch_follows(folder):
    dataset = forebay.FileFolder(folder)
    whole = make(dataset)
    expected = [[b[2].tolist() for b in whole] for _ in range(3)]
    for stop in range(len(whole) + 1):
        loader = make(dataset)
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        state = loader.state_dict()
        del iterator
        resumed = make(dataset)
        resumed.load_state_dict(state)
        assert [b[2].tolist() for b in resumed] == expected[0][stop:]
        assert [b[2].tolist() for b in resumed] == expected[1]
    loader = make(dataset)
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (1, 0)
    resumed = make(dataset)
    resumed.load_state_dict(state)
    assert [b[2].tolist() for b in resumed] == expected[1]


def test_a_resume_reads_nothing_that_was_consumed(folder):
    dataset = forebay.FileFolder(folder)
    # Without a seed the coming epoch is not known yet, so only this one is fetched ahead.
    loader = forebay.DataLoader(dataset, BATCH, shuffle=True, return_index=True)
    iterator = iter(loader)
    take(iterator, 8)
    state = loader.state_dict()
    resumed = forebay.DataLoader(dataset, BATCH, shuffle=True, return_index=True)
    resumed.load_state_dict(state)
    rest = iter(resumed)
    take(rest, 1)
    assert resumed.stats()["origin_reads"] <= 25 - 16
    assert len(take(rest)) == 25 - 16 - 2


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_orders_drawn_from_generators_resume_as_well(folder, own_generator, workers):
    dataset = forebay.FileFolder(folder)

    def build(seed):
        generator = torch.Generator().manual_seed(seed) if own_generator else None
        return forebay.DataLoader(
            dataset,
            BATCH,
            shuffle=True,
            generator=generator,
            num_workers=workers,
            return_index=True,
        )

    torch.manual_seed(1)
    loader = build(3)
    iterator = iter(loader)
    take(iterator, 5)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = take(iterator)
    following = take(iter(loader))
    torch.manual_seed(99)
    resumed = build(44)
    resumed.load_state_dict(state)
    assert take(iter(resumed)) == rest
    if own_generator:
        assert take(iter(resumed)) == following
    assert len(json.dumps(state)) < 5000


def test_a_sampler_of_the_users_resumes_by_counting(folder):
    dataset = forebay.FileFolder(folder)
    sampler = [3, 1, 4, 1, 5, 9, 2, 6]
    loader = forebay.DataLoader(dataset, 2, sampler=sampler, return_index=True)
    iterator = iter(loader)
    take(iterator, 2)
    state = loader.state_dict()
    resumed = forebay.DataLoader(dataset, 2, sampler=sampler, return_index=True)
    resumed.load_state_dict(state)
    assert take(iter(resumed)) == [5, 9, 2, 6]


def test_any_torch_dataset_resumes_too():
    dataset = torch.utils.data.TensorDataset(torch.arange(25))
    for workers in (0, 2):
        loader = forebay.DataLoader(dataset, 4, shuffle=True, seed=2, num_workers=workers)
        iterator = iter(loader)
        first = [next(iterator)[0].tolist() for _ in range(3)]
        state = loader.state_dict()
        rest = [batch[0].tolist() for batch in iterator]
        resumed = forebay.DataLoader(dataset, 4, shuffle=True, seed=2, num_workers=workers)
        resumed.load_state_dict(state)
        assert [batch[0].tolist() for batch in resumed] == rest
        assert sorted(sum(first + rest, [])) == list(range(25))


def test_the_batch_size_may_change_at_a_resume(folder):
    dataset = forebay.FileFolder(folder)
    loader = make(dataset)
    iterator = iter(loader)
    first = take(iterator, 3)
    resumed = make(dataset, batch_size=5)
    resumed.load_state_dict(loader.state_dict())
    assert sorted(first + take(iter(resumed))) == list(range(25))


def test_an_empty_state_changes_nothing_and_set_epoch_of_the_same_epoch_keeps_the_position(folder):
    dataset = forebay.FileFolder(folder)
    loader = make(dataset)
    loader.load_state_dict({})
    iterator = iter(loader)
    first = take(iterator, 3)
    state = loader.state_dict()
    resumed = make(dataset)
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(0)
    assert resumed.state_dict() == state
    assert sorted(first + take(iter(resumed))) == list(range(25))
    resumed.load_state_dict(state)
    with pytest.warns(UserWarning, match="gives up the position in epoch 0"):
        resumed.sampler.set_epoch(2)
    assert take(iter(resumed)) == make(dataset).order(2).tolist()


def test_a_state_of_another_dataset_is_refused(folder, tmp_path):
    state = make(forebay.FileFolder(folder)).state_dict()
    class_folders(tmp_path / "small", samples=9)
    with pytest.raises(forebay.InvalidError, match="of 25 samples, this one has 9"):
        make(forebay.FileFolder(tmp_path / "small")).load_state_dict(state)
    class_folders(tmp_path / "other", samples=25, size=999)
    with pytest.raises(forebay.InvalidError, match="of another dataset"):
        make(forebay.FileFolder(tmp_path / "other")).load_state_dict(state)
    loader = make(forebay.FileFolder(folder))
    for wrong, message in (
        ({"epoch": 3}, "not the state of a forebay.DataLoader"),
        ({**state, "version": 9}, "version 9"),
        ({**state, "consumed": "x"}, "damaged"),
        ({**state, "consumed": -1}, "damaged"),
    ):
        with pytest.raises(forebay.InvalidError, match=message):
            loader.load_state_dict(wrong)
    started = make(forebay.FileFolder(folder), seed=6)
    iterator = iter(started)
    take(iterator, 1)
    with pytest.raises(forebay.InvalidError, match="seed 6, this loader has seed 5"):
        loader.load_state_dict(started.state_dict())


def test_saving_is_cheap_and_of_constant_size(folder):
    loader = make(forebay.FileFolder(folder))
    iterator = iter(loader)
    sizes = set()
    for _ in range(10):
        next(iterator)
        sizes.add(len(json.dumps(loader.state_dict())) // 10)
    assert len(sizes) <= 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_from_between_two_epochs_restores_the_generator(folder, workers):
    dataset = forebay.FileFolder(folder)

    def build(seed):
        return forebay.DataLoader(
            dataset,
            BATCH,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed),
            num_workers=workers,
            return_index=True,
        )

    loader = build(3)
    take(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    following = take(iter(loader))
    resumed = build(99)
    resumed.load_state_dict(state)
    assert take(iter(resumed)) == following


def test_the_default_generator_restored_by_hand_gives_the_uninterrupted_order(folder):
    dataset = forebay.FileFolder(folder)
    torch.manual_seed(1)
    loader = forebay.DataLoader(dataset, BATCH, shuffle=True, return_index=True)
    take(iter(loader))
    state, generator = loader.state_dict(), torch.get_rng_state()
    following = take(iter(loader))
    torch.manual_seed(50)
    resumed = forebay.DataLoader(dataset, BATCH, shuffle=True, return_index=True)
    resumed.load_state_dict(state)
    torch.set_rng_state(generator)
    assert take(iter(resumed)) == following


def test_a_state_of_another_kind_of_order_is_refused(folder):
    dataset = forebay.FileFolder(folder)
    planned = make(dataset)
    iterator = iter(planned)
    take(iterator, 2)
    for other in (
        forebay.DataLoader(dataset, BATCH, shuffle=True),
        forebay.DataLoader(dataset, BATCH, shuffle=True, generator=torch.Generator()),
        forebay.DataLoader(dataset, BATCH, sampler=[1, 2, 3]),
    ):
        with pytest.raises(forebay.InvalidError, match=r"of kind 'planned'.*hint: make the loader"):
            other.load_state_dict(planned.state_dict())


def test_a_distributed_sampler_set_to_the_next_epoch_leaves_a_finished_one_behind(folder):
    from torch.utils.data.distributed import DistributedSampler

    dataset = forebay.FileFolder(folder)

    def build():
        sampler = DistributedSampler(dataset, 2, 0, seed=4)
        return sampler, forebay.DataLoader(dataset, BATCH, sampler=sampler, return_index=True)

    sampler, loader = build()
    sampler.set_epoch(10)
    iterator = iter(loader)
    take(iterator, len(loader))
    at_the_last_batch = loader.state_dict()
    take(iterator)
    assert loader.state_dict()["epoch"] == 11
    for epoch in (10, 11):
        sampler, resumed = build()
        resumed.load_state_dict(at_the_last_batch)
        sampler.set_epoch(epoch)
        assert take(iter(resumed)) == ([] if epoch == 10 else list(sampler))


def test_a_batch_that_failed_is_behind_the_user_who_goes_on(tmp_path):
    root = class_folders(tmp_path / "d")
    dataset = forebay.FileFolder(root)
    (root / "class0" / "00002.bin").unlink()
    for more in (
        {"seed": 1},
        {"sampler": list(range(25))},
        {"sampler": list(range(25)), "num_workers": 2},
    ):
        loader = forebay.DataLoader(dataset, 1, return_index=True, **more)
        iterator, seen, failed = iter(loader), [], 0
        while True:
            try:
                seen.append(next(iterator)[2].item())
            except StopIteration:
                break
            except forebay.CorruptError:
                failed += 1
        assert (seen, failed) == ([0, 1, *range(3, 25)], 1)
