"""A state may come from anywhere: it is refused by name, or it is a place in an epoch."""

import copy
import json
import random

import forebay
import pytest
import torch
from data import class_folders
from torch.utils.data.distributed import DistributedSampler

SAMPLES, BATCH = 20, 3
MUTATIONS = 12_000

FIELDS = ("version", "kind", "samples", "fingerprint", "epoch", "consumed", "batches", "order",
          "augment_seed", "seed")  # fmt: skip

VALUES = [
    None, -1, 0, 1, 3, 19, 20, 21, 10**6, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 2**70, -(2**70),
    "", "x", "5", "planned", "drawn", "generator", "sampler", "forebay.DataLoader", "AAAA",
    [], {}, [1], {"kind": "x"}, {"kind": []}, {"kind": "drawn"}, 1.0, 1.5, 1e300,
    float("nan"), float("inf"), True, False, b"x", (1, 2), object(),
]  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A few small files."""
    return forebay.FileFolder(class_folders(tmp_path_factory.mktemp("d"), SAMPLES, size=10))


def loaders(dataset):
    """A loader of every kind of order, by name."""
    made = {
        "planned": {"shuffle": True, "seed": 1},
        "sequential": {},
        "drawn": {"shuffle": True},
        "generator": {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
        "sampler": {"sampler": list(reversed(range(SAMPLES)))},
        "watched": {"sampler": DistributedSampler(dataset, 1, 0, seed=4)},
        "weighted": {
            "sampler": torch.utils.data.WeightedRandomSampler(
                [1.0] * SAMPLES, 50, generator=torch.Generator()
            )
        },
    }
    return {
        name: forebay.DataLoader(dataset, BATCH, return_index=True, **more)
        for name, more in made.items()
    }


def samples(loader):
    return [number for batch in loader for number in batch[2].tolist()]


def paths(value, path=()):
    """Where all dict members are, however deep."""
    found = [path] if path else []
    if isinstance(value, dict):
        for name in value:
            found += paths(value[name], (*path, name))
    return found


def parent(state, path):
    for name in path[:-1]:
        state = state[name]
    return state


def any_value(draw):
    return copy.deepcopy(draw.choice(VALUES))  # the next mutation may change it


def near(value, draw):
    """Another value of much the same look."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return any_value(draw)
    if isinstance(value, int):
        return draw.choice([value + 1, value - 1, -value, float(value), str(value), value + 2**63])
    at = draw.randrange(len(value) + 1)
    return draw.choice([value[:at], value[:at] + draw.choice("Ax=!é\0") + value[at + 1 :]])


def mutated(state, draw):
    """The state with one to three changes made to it."""
    state = copy.deepcopy(state)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        where = paths(state)
        if not where:
            break
        path = draw.choice(where)
        within = parent(state, path)
        what = draw.choice(["value", "value", "near", "near", "delete", "extra", "swap"])
        if what == "value":
            within[path[-1]] = any_value(draw)
        elif what == "near":
            within[path[-1]] = near(within[path[-1]], draw)
        elif what == "delete":
            del within[path[-1]]
        elif what == "extra":
            within[draw.choice(["between", "state", "seed", "epoch", "more", 3])] = draw.choice(
                VALUES
            )
        else:
            other = draw.choice(where)
            if other[: len(path)] != path and path[: len(other)] != other:
                there = parent(state, other)
                values = there[other[-1]], within[path[-1]]
                within[path[-1]], there[other[-1]] = values
    return state


def states(loader):
    """States from an epoch's start, its middle and its end."""
    found = [loader.state_dict()]
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    found.append(loader.state_dict())
    for _ in iterator:
        pass
    found.append(loader.state_dict())
    return [json.loads(json.dumps(state)) for state in found]


def refusal(loader, state):
    """What the loader says about a state that it does not take; any other error is one."""
    try:
        loader.load_state_dict(state)
    except forebay.InvalidError as error:
        return str(error)
    return None


def check_the_rest(loader, name, state):
    """An accepted state is a place in an epoch of this loader, and the next one is whole."""
    rest, following = samples(loader), samples(loader)
    if name == "sampler":
        assert rest == list(reversed(range(SAMPLES)))[state["batches"] * BATCH :]
        assert len(following) == SAMPLES
    elif name == "weighted":
        assert (len(rest), len(following)) == (50 - state["consumed"], 50)
        assert set(rest + following) <= set(range(SAMPLES))
    else:
        assert len(rest) == SAMPLES - state["consumed"]
        assert len(set(rest)) == len(rest), "no sample twice"
        assert sorted(following) == list(range(SAMPLES))
    return rest


def test_a_mutated_state_is_refused_by_name_or_a_place_in_an_epoch(dataset):
    draw = random.Random(14)
    refused = accepted = 0
    every = loaders(dataset)
    whole = {name: states(loader) for name, loader in every.items()}
    for name, loader in every.items():
        for _ in range(MUTATIONS // len(every) + 1):
            saved = draw.choice(whole[name])
            state = mutated(saved, draw)
            before = loader.state_dict()
            error = refusal(loader, state)
            if error is not None:
                refused += 1
                assert any(field in error for field in FIELDS), error
                assert loader.state_dict() == before, "what is refused changes nothing"
                continue
            accepted += 1
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(state["epoch"])
            rest = check_the_rest(loader, name, state)
            same = all(state[field] == saved[field] for field in ("epoch", "consumed", "batches"))
            if same and state["order"] == saved["order"] and saved["order"] is not None:
                loader.load_state_dict(saved)
                if isinstance(loader.sampler, DistributedSampler):
                    loader.sampler.set_epoch(saved["epoch"])
                assert samples(loader) == rest, "a neutral change changes nothing"
    assert refused + accepted >= 10_000
    assert min(refused, accepted) > 1_000


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_each_field_of_the_wrong_type_is_named(dataset, value):
    loader = loaders(dataset)["planned"]
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    for field in ("samples", "fingerprint", "epoch", "consumed", "batches"):
        if value in (state[field], 3, 19, 20, 0, 1) and type(value) is type(state[field]):
            continue  # might be true
        with pytest.raises(forebay.InvalidError, match=field):
            loader.load_state_dict({**state, field: value})
    for field in ("kind", "seed", "epoch"):
        if value == state["order"][field] and type(value) is type(state["order"][field]):
            continue
        order = {**state["order"], field: value}
        with pytest.raises(forebay.InvalidError, match=rf"order|{field}"):
            loader.load_state_dict({**state, "order": order})


def test_a_flipped_character_of_a_generators_state_is_found(dataset):
    loader = loaders(dataset)["generator"]
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    text = state["order"]["state"]
    for at in (0, 20, 1000, len(text) - 6):
        other = "A" if text[at] != "A" else "B"
        state["order"]["state"] = text[:at] + other + text[at + 1 :]
        with pytest.raises(forebay.InvalidError, match=r"order\.state is not the state of a gen"):
            loader.load_state_dict(state)


def test_a_count_of_batches_past_a_samplers_end_is_its_end(dataset):
    loader = loaders(dataset)["sampler"]
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict({**loader.state_dict(), "batches": 2**62})
    assert samples(loader) == []
