"""``loader.what_if``: the simulator asked by a loader, and held against what its engine does."""

import itertools
import time

import forebay
import pytest
import torch

SAMPLES = 480
BATCH = 16
EPOCHS = 3
DEPTH = 3  # batches that are filled or full ahead of the user, by default


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """480 files of 1 to 60 KB, no two alike; nobody changes them."""
    root = tmp_path_factory.mktemp("files")
    for sample in range(SAMPLES):
        folder = root / f"class-{sample % 3}"
        folder.mkdir(exist_ok=True)
        (folder / f"{sample:04d}.bin").write_bytes(bytes(1000 + (sample * 7919) % 59_000))
    return root


def loader_of(root, **more):
    options = {"shuffle": True, "seed": 5, "num_workers": 1, "readahead": 0, "disk": 0, **more}
    return forebay.DataLoader(forebay.FileFolder(root), BATCH, **options)


def wait_until_fetched(loader, samples):
    """Until so many samples were looked up: then nothing is left to do but to wait for the user."""
    for _ in range(60_000):
        stats = loader.stats()
        if stats["memory_hits"] + stats["origin_reads"] >= samples:
            return stats
        time.sleep(0.001)
    raise AssertionError(f"{samples} samples were expected, {stats} is where it stands")


def hits_of_engine(loader):
    """Hits of all epochs and of what is fetched ahead of the one after.

    The order in which samples are looked up and let go is defined: there is one thread, and at most
    one sample is held ahead of the batches being filled. So is what was fetched when a batch is
    taken, which moves the clock, and when an epoch begins, from which on its samples have their
    exact next use: all that may be.
    """
    taken = 0
    for _ in range(EPOCHS):
        for _ in loader:
            taken += 1
            stats = wait_until_fetched(loader, (taken + DEPTH) * BATCH + 1)
    assert stats["memory_hits"] + stats["origin_reads"] == (taken + DEPTH) * BATCH + 1
    return stats["memory_hits"]


@pytest.mark.parametrize("memory", ["3MiB", "8MiB"])
@pytest.mark.parametrize("policy", ["farthest", "reuse", "lru", "lfu", "minio", "none"])
def test_hits_of_the_simulator_are_those_of_the_engine(root, policy, memory):
    loader = loader_of(root, policy=policy, memory=memory)
    (row,) = loader.what_if(epochs=EPOCHS, step_ms=1000)
    foretold = sum(epoch["memory_hits"] for epoch in row["epochs"]) + row["ahead"]["memory_hits"]
    assert foretold == hits_of_engine(loader)
    kept = {"none": 0}.get(policy, 1)
    assert foretold >= kept  # there is something to agree about


def test_one_answer_for_each_policy_disk_and_memory(root):
    loader = loader_of(root)
    rows = loader.what_if(["4MiB", 2**25], disk=[0, "64MiB"], policy=["farthest", "lru"])
    asked = [(row["policy"], row["disk"], row["memory"]) for row in rows]
    sizes = (0, 2**26), (4 * 2**20, 2**25)
    assert asked == list(itertools.product(("farthest", "lru"), *sizes))
    assert rows[1]["memory_hits"] == SAMPLES  # all of it fits
    assert rows[0]["origin_bytes"] > rows[1]["origin_bytes"] == 0
    assert rows[2]["origin_reads"] == 0  # the disk has it


def test_the_answer_rests_on_the_loader_and_on_what_it_measured(root):
    loader = loader_of(root, policy="minio", memory="3MiB", num_workers=2, readahead="1MiB")
    (before,) = loader.what_if()
    assert before["policy"] == "minio"
    assert before["memory"] == 3 * 2**20
    assert (before["settings"]["step_ms"], before["settings"]["threads"]) == (100.0, 2)
    for _ in loader:
        time.sleep(0.005)
    stats = loader.stats()
    (after,) = loader.what_if()
    assert after["settings"]["step_ms"] >= 5
    each = stats["origin_bytes"] / stats["reading_seconds"] / 1e6
    assert after["settings"]["origin_each_mbps"] == pytest.approx(each, rel=0.5)
    (given,) = loader.what_if(step_ms=7, origin_mbps=3, price_per_gb=2)
    assert given["settings"]["step_ms"] == 7
    assert given["cost"] == pytest.approx(2 * given["origin_bytes"] / 1e9)
    assert given["seconds"] >= given["origin_bytes"] / 3e6 * 0.9


def test_ranks_and_batches_can_be_others(root):
    loader = loader_of(root, memory="3MiB")
    (row,) = loader.what_if(world_size=4, nodes=1, batch_size=8, step_ms=10, origin_mbps=1e6)
    assert row["samples"] == SAMPLES
    assert row["seconds"] >= SAMPLES / 4 / 8 * 0.010 - 1e-9
    (alone,) = loader.what_if(world_size=4, step_ms=10)
    assert alone["settings"]["nodes"] == 4  # each rank has an engine of its own


def test_batches_of_a_batch_sampler_have_its_size(root):
    dataset = forebay.FileFolder(root)
    sampler = torch.utils.data.BatchSampler(range(SAMPLES), 48, False)
    loader = forebay.DataLoader(dataset, batch_sampler=sampler, memory="64MiB", disk=0)
    (row,) = loader.what_if(step_ms=1000)
    assert row["seconds"] == pytest.approx(SAMPLES / 48, rel=0.05)


@pytest.mark.parametrize("drawn", ["weighted", "subset", "part"])
def test_an_order_that_leaves_samples_out_is_refused_by_name(root, drawn):
    dataset = forebay.FileFolder(root)
    sampler = {
        "weighted": torch.utils.data.WeightedRandomSampler([1.0] * SAMPLES, SAMPLES),
        "subset": torch.utils.data.SubsetRandomSampler(range(48)),
        "part": torch.utils.data.RandomSampler(dataset, num_samples=48),
    }[drawn]
    with pytest.raises(ValueError, match=type(sampler).__name__):
        forebay.DataLoader(dataset, BATCH, sampler=sampler).what_if()


def test_a_batch_samplers_own_order_counts(root):
    dataset = forebay.FileFolder(root)
    options = {"memory": "8MiB", "disk": 0, "policy": "lru"}
    hits = []
    for sampler in (torch.utils.data.RandomSampler, torch.utils.data.SequentialSampler):
        batches = torch.utils.data.BatchSampler(sampler(dataset), BATCH, False)
        (row,) = forebay.DataLoader(dataset, batch_sampler=batches, **options).what_if()
        hits.append(row["memory_hits"])
    # What is least recently used is what comes next if the order is always the same.
    assert hits[0] > hits[1] == 0


def test_the_disk_is_the_loaders(root, tmp_path):
    loader = loader_of(root, memory="4MiB", cache_dir=tmp_path, disk="64MiB")
    (row,) = loader.what_if()
    assert row["disk"] == 2**26
    assert row["disk_hits"] > row["origin_reads"] == 0
    (row,) = loader_of(root, memory="4MiB", cache_dir=tmp_path, disk=None).what_if()
    assert row["disk"] > 2**30  # a share of what is free


def test_ranks_that_share_an_engine_share_its_threads(root):
    engine = forebay.Engine(memory="4MiB", num_workers=8)
    loader = forebay.DataLoader(
        forebay.FileFolder(root), BATCH, seed=1, rank=0, world_size=4, engine=engine
    )
    (row,) = loader.what_if()
    assert (row["settings"]["nodes"], row["settings"]["threads"]) == (1, 2)


def test_an_order_that_is_drawn_by_the_way_is_answered_for_one_like_it(root):
    dataset = forebay.FileFolder(root)
    (row,) = forebay.DataLoader(dataset, BATCH, shuffle=True, memory="3MiB", disk=0).what_if()
    assert 0 < row["memory_hits"] < SAMPLES


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"memory": 0}, "memory: 0 bytes do not hold the longest sample"),
        ({"memory": []}, "memory: nothing is asked for"),
        ({"memory": "lots"}, "memory='lots' is not a size"),
        ({"policy": "best"}, 'policy: "best" is not one of farthest'),
        ({"step_ms": -1}, "step_ms: -1 is not a number from 0"),
        ({"step_ms": float("nan")}, "step_ms=nan"),
        ({"epochs": 0}, "epochs: 0 is not a number from 1"),
        ({"epochs": 1.5}, "epochs=1.5"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"world_size": -1}, "world_size=-1"),
        ({"world_size": 3, "nodes": 2}, "nodes: 3 ranks do not go evenly onto 2 nodes"),
        ({"origin_mbps": 0}, "origin_mbps: 0 is not a number"),
        ({"price_per_gb": -1}, "price_per_gb: -1"),
    ],
)
def test_absurd_questions_are_refused_by_name(root, question, words):
    with pytest.raises(ValueError, match=r".") as caught:
        loader_of(root).what_if(**question)
    assert words in str(caught.value)


def test_a_dataset_of_the_users_own_is_not_known_enough():
    data = torch.utils.data.TensorDataset(torch.arange(8))
    with pytest.raises(ValueError, match="needs a dataset of forebay's"):
        forebay.DataLoader(data, 2).what_if()
