"""The origin is read for what the disk cache lacks and nothing else, however a run has ended."""

import ast
import os
import shutil
import threading

import forebay
import pytest
import torch
from data import class_folders, content, held_on_disk
from processes import LONG, start

SAMPLES = 300
SIZE = 20_000
BATCH = 10
BATCHES = SAMPLES // BATCH
HALF = BATCHES // 2

either_layout = pytest.mark.parametrize("layout", ["packed", "reorder"])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """300 files of about 20 KB; nobody changes them."""
    return class_folders(tmp_path_factory.mktemp("files"), samples=SAMPLES, size=SIZE)


def make(root, cache, **more):
    """A loader that keeps nothing in memory, so that what is not on disk is read again."""
    memory = {"memory": "64MiB", "readahead": 0, "policy": "none", "num_workers": 2}
    disk = {"cache_dir": cache, "disk": "64MiB"}
    options = {"shuffle": True, "seed": 5, **memory, **disk, **more}
    return forebay.DataLoader(
        forebay.FileFolder(root), BATCH, return_index=True, timeout=LONG, **options
    )


def expected(number):
    """The bytes of a sample."""
    return content(number, SIZE + number % 7)


def take(loader, batches=BATCHES):
    """The numbers of the samples of so many batches, all with the right bytes."""
    seen = []
    for at, (samples, _, ids) in enumerate(loader):
        for sample, number in zip(samples, ids.tolist(), strict=True):
            assert sample.numpy().tobytes() == expected(number), f"sample {number}"
        seen += ids.tolist()
        if at + 1 == batches:
            break
    return seen


def held(*dirs):
    """The samples that are in a cache."""
    return held_on_disk(dirs, SAMPLES, SIZE)


def filled(root, cache, layout, batches=HALF):
    """A cache whose second epoch was left after so many batches; the loader, and its state."""
    loader = make(root, cache, layout=layout)
    take(loader)
    if layout == "packed":
        # Its writer may have left some out, to be offered again: until all are there.
        while len(held(*cache)) < SAMPLES:
            loader.close()
            loader = make(root, cache, layout=layout)
            take(loader)
        loader.set_epoch(1)
    take(loader, batches)
    return loader, loader.state_dict()


def resume(root, cache, layout, state):
    """What an epoch that goes on from a state, and the one after it, read from the origin."""
    loader = make(root, cache, layout=layout)
    loader.load_state_dict(state)
    rest = take(loader)
    first = loader.stats()["origin_reads"]
    take(loader)
    second = loader.stats()["origin_reads"] - first
    assert loader.stats()["log"]["corrupt_samples"] == 0
    loader.close()
    return rest, first, second


def check_that_what_is_lacking_is_read(root, cache, layout, state, lacking):
    """Fails unless a run that goes on from ``state`` reads what the disk lacks, and no more."""
    if layout == "reorder":
        rest, first, second = resume(root, cache, layout, state)
        # Towards an epoch's end the first samples of the next one are read.
        assert first >= len(lacking & set(rest))
        assert first + second == len(lacking)
        return
    plain = make(root, None, disk=0)
    plain.load_state_dict(state)
    rest = take(plain)
    # By a sampler that tells nothing ahead: what was read and not written yet is not read again.
    for ids in (rest, range(SAMPLES)):
        lacking = set(range(SAMPLES)) - held(*cache)
        given = {"seed": None, "shuffle": None, "sampler": ids}
        loader = make(root, cache, layout=layout, **given)
        assert take(loader) == list(ids)
        assert loader.stats()["origin_reads"] == len(lacking & set(ids))
        loader.close()


@either_layout
def test_a_run_that_was_closed_goes_on_without_the_origin(root, tmp_path, layout):
    loader, state = filled(root, [tmp_path], layout)
    loader.close()
    assert held(tmp_path) == set(range(SAMPLES))
    rest, first, second = resume(root, [tmp_path], layout, state)
    assert len(rest) == SAMPLES - HALF * BATCH
    assert (first, second) == (0, 0)


@either_layout
def test_an_epoch_that_was_left_by_break_is_gone_on_with_without_the_origin(root, tmp_path, layout):
    loader, state = filled(root, [tmp_path], layout)
    before = loader.stats()["origin_reads"]
    take(loader, 3)
    loader.load_state_dict(state)
    take(loader)
    take(loader)
    assert loader.stats()["origin_reads"] == before
    loader.close()


KILLED = """
from pathlib import Path
from test_disk_resume import filled

loader, state = filled(Path(sys.argv[1]), [Path(sys.argv[2])], sys.argv[3], int(sys.argv[4]))
print(state, flush=True)
time.sleep(LONG)
"""


@either_layout
@pytest.mark.parametrize("batches", [1, HALF, BATCHES - 1])
def test_a_run_that_was_killed_reads_what_had_not_come_to_the_disk(root, tmp_path, layout, batches):
    process = start(KILLED, root, tmp_path, layout, batches)
    guard = threading.Timer(LONG, process.kill)
    guard.start()
    state = process.stdout.readline()
    guard.cancel()
    process.kill()
    _, err = process.communicate()
    assert state, err
    lacking = set(range(SAMPLES)) - held(tmp_path)
    state = ast.literal_eval(state)
    check_that_what_is_lacking_is_read(root, [tmp_path], layout, state, lacking)


@either_layout
def test_a_lost_directory_costs_what_it_held(root, tmp_path, layout):
    cache = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    loader, state = filled(root, cache, layout)
    loader.close()
    lacking = set(range(SAMPLES)) - held(cache[0], cache[2])
    assert SAMPLES / 6 < len(lacking) < SAMPLES / 2
    shutil.rmtree(cache[1])
    check_that_what_is_lacking_is_read(root, cache, layout, state, lacking)


@either_layout
def test_a_table_that_is_cut_short_costs_nothing(root, tmp_path, layout):
    cache = [tmp_path / "a", tmp_path / "b"]
    loader, state = filled(root, cache, layout)
    loader.close()
    # A packed log is looked through; of a reordered one's orders each directory has a copy.
    tables = list(cache[0].glob("log/*/*.map" if layout == "packed" else "log/*/*.order"))
    assert tables
    for table in tables:
        os.truncate(table, os.path.getsize(table) // 2)
    _, first, second = resume(root, cache, layout, state)
    assert (first, second) == (0, 0)


@either_layout
def test_a_table_that_is_cut_short_while_it_is_used_does_not_end_the_training(
    root, tmp_path, layout
):
    loader, _ = filled(root, [tmp_path], layout)
    for path in tmp_path.glob("log/*/*"):
        if path.suffix in (".map", ".order"):
            os.truncate(path, 10)
    for _ in range(3):
        assert sorted(take(loader)) == list(range(SAMPLES))
    loader.close()


# -- orders of a generator ------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False])
def test_a_generators_coming_order_is_forecast_and_the_origin_read_once(root, tmp_path, own):
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(3) if own else None
    loader = make(root, tmp_path, layout="reorder", seed=None, generator=generator)
    for _ in range(4):
        assert sorted(take(loader)) == list(range(SAMPLES))
    figures = loader.stats()
    loader.close()
    assert figures["log"]["layout"] == "reorder"
    assert figures["origin_reads"] == SAMPLES
    assert figures["log"]["wrong_forecasts"] == 0


def test_a_wrong_forecast_is_said_once_and_costs_no_read_of_the_origin(root, tmp_path):
    torch.manual_seed(11)
    loader = make(root, tmp_path, layout="reorder", seed=None)

    def train():
        for _ in range(4):
            assert sorted(take(loader)) == list(range(SAMPLES))
            torch.rand(1)  # as a validation loop may

    with pytest.warns(RuntimeWarning, match="not the one that was forecast") as said:
        train()
    figures = loader.stats()
    loader.close()
    assert len(said) == 1
    assert figures["origin_reads"] == SAMPLES
    assert figures["log"]["wrong_forecasts"] == 3


def test_a_sampler_whose_order_cannot_be_forecast_is_refused_with_a_reason(root, tmp_path):
    class Own(torch.utils.data.Sampler):
        def __iter__(self):
            return iter(range(SAMPLES))

        def __len__(self):
            return SAMPLES

    with pytest.raises(ValueError, match="needs the order of the next epoch"):
        make(root, tmp_path, layout="reorder", seed=None, shuffle=None, sampler=Own())


# -- chunks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "batches"), [(None, 1), ("512KiB", 2), ("1MiB", 4)])
def test_a_chunk_is_one_request_of_the_size_that_is_set(root, tmp_path, chunk, batches):
    loader = make(root, tmp_path, layout="reorder", chunk=chunk, num_workers=1)
    take(loader)
    loader.close()
    loader = make(root, tmp_path, layout="reorder", chunk=chunk, num_workers=1)
    loader.set_epoch(1)
    take(loader)
    figures = loader.stats()["log"]
    loader.close()
    assert figures["reads"] >= SAMPLES
    # A record has 24 KiB for about 20 KB, so 21 of them fit in 512 KiB and 42 in 1 MiB.
    most = BATCHES if chunk is None else -(-SAMPLES // (21 * batches // 2))
    assert figures["requests"] <= most, figures


@pytest.mark.parametrize(
    ("chunk", "error", "words"),
    [
        ("1KiB", ValueError, "between 64KiB and 1024MiB"),
        ("2GiB", ValueError, "between 64KiB and 1024MiB"),
        ("long", ValueError, "chunk='long' is not a size"),
        (1.5, TypeError, "chunk is a number of bytes"),
    ],
)
def test_a_chunk_that_cannot_be_is_refused(root, tmp_path, chunk, error, words):
    with pytest.raises(error, match=words):
        make(root, tmp_path, chunk=chunk)
    with pytest.raises(error, match=words):
        forebay.Engine(cache_dir=tmp_path, chunk=chunk)


def test_a_chunk_that_does_not_fit_the_buffers_is_shortened_and_said(root, tmp_path):
    loader = make(root, tmp_path, layout="reorder", chunk="256MiB")
    with pytest.warns(RuntimeWarning, match="raise memory="):
        take(loader)
    loader.close()
