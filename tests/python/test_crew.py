"""The crew from the user's line: ``num_workers="auto"``, ``split=``, ``forebay.Engine``."""

import logging
import pickle
import threading
import time

import forebay
import pytest
import torch
from buckets import in_bucket, objects_of
from data import class_folders, image_folders
from PIL import Image
from torchvision import transforms

SAMPLES = 240
RANKS = 4


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """240 files of about 20 KB; nobody changes them."""
    return class_folders(tmp_path_factory.mktemp("files"), samples=SAMPLES, size=20_000)


def samples(loader):
    """What a loader gives, as plain numbers and bytes."""
    return [
        (int(index), int(label), bytes(data.numpy()))
        for datas, labels, ids in loader
        for data, label, index in zip(datas, labels, ids, strict=True)
    ]


def rank_of(dataset, rank, engine, **more):
    options = {"seed": 3, "rank": rank, "world_size": RANKS, "return_index": True, **more}
    return forebay.DataLoader(dataset, 8, shuffle=True, engine=engine, **options)


def at_once(loaders, epochs=1, step=0.0):
    """Iterates every loader in a thread of its own; what each gave."""
    found = [[] for _ in loaders]
    failed = []

    def iterate(at, loader):
        try:
            for _ in range(epochs):
                for batch in loader:
                    found[at].append([int(index) for index in batch[-1]])
                    time.sleep(step)
        except BaseException as error:  # told to the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=iterate, args=pair) for pair in enumerate(loaders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not failed, failed
    return found


def test_ranks_that_share_an_engine_get_what_they_would_have_alone(root):
    dataset = forebay.FileFolder(root)
    engine = forebay.Engine(memory="64MiB")
    shared = [rank_of(dataset, rank, engine) for rank in range(RANKS)]
    alone = [rank_of(dataset, rank, None) for rank in range(RANKS)]
    for _epoch in range(3):
        assert [samples(loader) for loader in shared] == [samples(loader) for loader in alone]
    stats = engine.stats()
    assert stats["memory"]["peak_bytes"] <= stats["memory"]["capacity_bytes"]
    engine.close()


def test_what_one_rank_has_read_another_finds_in_memory(root):
    dataset = forebay.FileFolder(root)
    engine = forebay.Engine(memory="64MiB")
    loaders = [rank_of(dataset, rank, engine) for rank in range(RANKS)]
    reads = []
    for _epoch in range(3):
        at_once(loaders)
        reads.append(sum(loader.stats()["origin_reads"] for loader in loaders))
    # What one rank is just reading, another that is a little ahead may read as well.
    assert SAMPLES <= reads[0] < 1.5 * SAMPLES, reads
    assert reads[1:] == reads[:1] * 2, "all is in memory"


def test_memory_keeps_what_any_of_its_ranks_wants_next(root):
    dataset = forebay.FileFolder(root)
    engine = forebay.Engine(memory="3MiB", readahead="64KiB")
    loaders = [rank_of(dataset, rank, engine) for rank in range(2)]
    for _epoch in range(4):
        at_once(loaders)
    hits = sum(loader.stats()["memory_hits"] for loader in loaders)
    # 3 MiB hold over 100 of the 120 samples that the two ranks use an epoch; had each rank its own
    # next use alone in mind, half of what is kept would be what only the other uses.
    assert hits >= 3 * 75, hits


def test_queues_side_by_side_are_told_apart(root):
    dataset = forebay.FileFolder(root)
    engine = forebay.Engine(memory="64MiB", num_workers=6)
    loaders = [rank_of(dataset, rank, engine) for rank in range(RANKS)]
    found = at_once(loaders, epochs=2, step=0.03)
    assert sorted(i for rank in found for batch in rank for i in batch) == sorted(
        list(range(SAMPLES)) * 2
    )
    crew = engine.stats()["crew"]
    assert sorted(queue["rank"] for queue in crew["queues"]) == list(range(RANKS))
    assert all(queue["load"] >= 1 for queue in crew["queues"]), crew
    assert all(queue["step_seconds"] >= 0.03 for queue in crew["queues"]), crew
    assert engine.stats()["threads"] == 6


@pytest.mark.parametrize("split", [(1, 1), (3, 1), (1, 3)])
def test_a_fixed_split_gives_the_same_images(tmp_path, split):
    dataset = forebay.ImageFolder(
        image_folders(tmp_path, samples=24),
        transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()]),
    )
    plain = forebay.DataLoader(dataset, 8, shuffle=True, seed=1)
    fixed = forebay.DataLoader(dataset, 8, shuffle=True, seed=1, split=split)
    for _epoch in range(2):
        for ours, theirs in zip(fixed, plain, strict=True):
            assert torch.equal(ours[0], theirs[0])
    assert fixed.stats()["threads"] == sum(split)
    assert fixed.stats()["crew"]["moves"] == 0


def test_a_fixed_split_serves_more_loaders_than_it_has_threads(tmp_path):
    dataset = forebay.ImageFolder(
        image_folders(tmp_path, samples=24),
        transforms.Compose([transforms.CenterCrop(32), transforms.ToTensor()]),
    )
    engine = forebay.Engine(memory="64MiB", split=(1, 1))
    loaders = [rank_of(dataset, rank, engine, timeout=60) for rank in range(RANKS)]
    found = at_once(loaders, epochs=2)
    assert sorted(i for rank in found for batch in rank for i in batch) == sorted([*range(24)] * 2)


def test_loaders_that_decode_otherwise_do_not_share_images(tmp_path):
    generator = torch.Generator().manual_seed(1)
    noise = torch.randint(0, 256, (40, 60, 3), dtype=torch.uint8, generator=generator)
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn
    (tmp_path / "class").mkdir()
    Image.fromarray(noise.numpy()).save(tmp_path / "class" / "0.jpg", exif=turned)
    size = transforms.Compose([transforms.Resize((48, 48)), transforms.ToTensor()])
    dataset = forebay.ImageFolder(tmp_path, size)

    def images(**more):
        options = {"cache_form": "decoded", **more}
        return [
            next(iter(forebay.DataLoader(dataset, 1, orient=orient, decode=decode, **options)))[0]
            for orient in (False, True)
            for decode in ("exact", "fast")
        ]

    alone = images()
    engine = forebay.Engine(memory="64MiB")
    for _again in range(2):
        shared = images(engine=engine)
        assert all(torch.equal(ours, own) for ours, own in zip(shared, alone, strict=True))
    assert not torch.equal(alone[0], alone[2])


def test_requests_of_a_bucket_are_shared_out(root, bucket, faulty_proxy):
    name = bucket(objects_of(root))
    dataset = in_bucket(
        name, faulty_proxy(delay_ms=20).endpoint, read_options={"requests_in_flight": 8}
    )
    engine = forebay.Engine(memory="64MiB", readahead="4MiB")
    loaders = [rank_of(dataset, rank, engine) for rank in range(2)]
    at_once(loaders, step=0.005)
    queues = engine.stats()["crew"]["queues"]
    assert sum(queue["load"] for queue in queues) == 8, queues


def test_the_bottleneck_is_named_and_said(root, bucket, faulty_proxy, caplog):
    name = bucket(objects_of(root))
    dataset = in_bucket(name, faulty_proxy(delay_ms=50).endpoint)
    loader = forebay.DataLoader(dataset, 4, disk=0, readahead="64KiB", memory="16MiB")
    seen = set()
    with caplog.at_level(logging.INFO, logger="forebay"):
        for _batch in loader:
            seen.add(loader.stats().get("bottleneck", {}).get("stage"))
    assert "origin" in seen
    assert any("bottleneck is origin" in record.message for record in caplog.records)


def test_training_is_the_bottleneck_where_batches_are_ready(root):
    loader = forebay.DataLoader(forebay.FileFolder(root), 16)
    for _batch in loader:
        time.sleep(0.03)
    bottleneck = loader.stats()["bottleneck"]
    assert (bottleneck["stage"], bottleneck["rank"]) == ("training", None)


def test_an_engine_can_be_sent_to_another_process_and_starts_anew(root):
    engine = forebay.Engine(memory="16MiB", num_workers=2)
    loader = forebay.DataLoader(forebay.FileFolder(root), 16, engine=engine)
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    assert next(iter(again)) is not None
    assert again.stats()["threads"] == 2
    loader.close()
    assert engine.stats()["threads"] == 2, "the engine is the user's to close"
    engine.close()
    assert engine.stats() == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_workers": "many"}, 'neither a number nor "auto"'),
        ({"split": (1,)}, "not \\(loading, preparing\\)"),
        ({"num_workers": 1.5}, 'neither a number nor "auto"'),
        ({"split": (2, 0)}, "two numbers of threads from 1"),
        ({"split": (0, 2)}, "two numbers of threads from 1"),
        ({"split": (-1, 2)}, "two numbers"),
        ({"split": (200, 200)}, "together at most 256"),
        ({"engine": forebay.Engine(), "memory": "1GiB"}, "memory= is the engine's"),
        ({"engine": forebay.Engine(), "split": (1, 1)}, "split= is the engine's"),
    ],
    ids=str,
)
def test_absurd_arguments_are_refused(root, arguments, words):
    with pytest.raises(ValueError, match=words):
        forebay.DataLoader(forebay.FileFolder(root), **arguments)


def test_an_engine_is_an_engine(root):
    with pytest.raises(TypeError, match="not a forebay\\.Engine"):
        forebay.DataLoader(forebay.FileFolder(root), engine=object())
    with pytest.raises(ValueError, match="dataset of forebay's"):
        forebay.DataLoader([1, 2], engine=forebay.Engine())
