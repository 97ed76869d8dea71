"""Memory stays within what was promised, however large the dataset and whoever keeps batches."""

import os
import random
import shutil
import threading
import warnings

import forebay
import pytest
from processes import run

MIB = 1 << 20
BUDGET = 16 * MIB
# What every file is a piece of; no two files begin at the same place.
ROCK = random.Random(0).randbytes(4 * MIB)


def expected(number, size):
    """The bytes of a file: a piece of the rock that no other file has."""
    start = number * 1021 % (len(ROCK) - size)
    return ROCK[start : start + size]


def write_mixed(root, total, largest):
    """Files from 1 KB to ``largest`` bytes, ``total`` in all; their names are their order."""
    pick = random.Random(1)
    sizes = []
    while sum(sizes) < total:
        sizes.append(int(1000 * (largest / 1000) ** pick.random()))
    (root / "only").mkdir(parents=True)
    for number, size in enumerate(sizes):
        (root / "only" / f"{number:06}.bin").write_bytes(expected(number, size))
    return root


def right(batch):
    """True if a batch's bytes are its files'."""
    samples, _, ids = batch
    return all(
        sample.numpy().tobytes() == expected(number, len(sample))
        for sample, number in zip(samples, ids.tolist(), strict=True)
    )


def resident():
    """Bytes of memory that this process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class Watch:
    """Looks at the process's memory every other millisecond."""

    def __enter__(self):
        self.before = self.peak = resident()
        self.looks = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while not self._ending.wait(0.002):
            self.peak = max(self.peak, resident())
            self.looks += 1

    def __exit__(self, *_):
        self._ending.set()
        self._thread.join()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A dataset of 20 times the budget."""
    root = tmp_path_factory.mktemp("large")
    yield write_mixed(root, 20 * BUDGET, 1 * MIB)
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """24 MiB, in files of up to 200 KB."""
    root = tmp_path_factory.mktemp("small")
    yield write_mixed(root, 24 * MIB, 200_000)
    shutil.rmtree(root)


@pytest.mark.parametrize("policy", ["farthest", "lru", "none"])
def test_a_dataset_of_20_budgets_is_read_within_one_budget(large, policy):
    run(
        """
        from test_memory import *

        dataset = forebay.FileFolder(sys.argv[1])
        for batch in forebay.DataLoader(dataset, 4, sampler=[0, 1, 2, 3], return_index=True):
            assert right(batch)  # torch's own first use of memory is none of ours
        assert dataset.native.total_bytes >= 20 * BUDGET
        del batch
        with Watch() as watch:
            loader = forebay.DataLoader(
                dataset, 16, shuffle=True, seed=1, num_workers=2,
                memory=BUDGET, policy=sys.argv[2], return_index=True,
            )
            for epoch in range(3):
                for at, batch in enumerate(loader):
                    assert at % 10 or right(batch)
        stats = loader.stats()
        assert stats["samples"] == 3 * len(dataset)
        assert stats["memory"]["peak_bytes"] <= BUDGET
        assert watch.looks > 20
        over = watch.peak - watch.before - BUDGET - stats["slab_peak_bytes"]
        assert over <= 64 * MIB, f"{over / MIB} MiB more than budget and slabs"
        # Were batches not returned, they would be the whole dataset.
        assert stats["slab_peak_bytes"] <= 10 * BUDGET
        """,
        large,
        policy,
    )


def test_who_keeps_every_batch_is_warned_once_and_gets_the_right_bytes(small):
    loader = forebay.DataLoader(
        forebay.FileFolder(small), 4, shuffle=True, seed=2, memory=BUDGET, return_index=True
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = [list(loader) for _ in range(2)]
    assert len(kept[0]) > 50
    assert ["still referred to" in str(warning.message) for warning in caught] == [True]
    assert all(right(batch) for epoch in kept for batch in epoch)
    assert loader.stats()["slab_peak_bytes"] >= 2 * 24 * MIB


def test_who_keeps_few_batches_is_not_warned(small):
    loader = forebay.DataLoader(forebay.FileFolder(small), 4, num_workers=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = []
        for batch in loader:
            kept = [*kept[-8:], batch]


def test_memory_of_kept_batches_is_given_back(small):
    run(
        """
        from test_memory import *

        warnings.simplefilter("ignore")
        loader = forebay.DataLoader(
            forebay.FileFolder(sys.argv[1]), 4, num_workers=2, memory=BUDGET, return_index=True
        )
        for batch in loader:
            pass
        batch = None
        before = resident()
        kept = [batch for _ in range(3) for batch in loader]
        grown = resident() - before
        assert grown > 2 * 24 * MIB, f"{grown / MIB} MiB"
        assert all(right(batch) for batch in kept)
        kept = batch = None
        left = resident() - before
        assert left < 24 * MIB, f"{left / MIB} MiB are left of {grown / MIB}"
        """,
        small,
    )


def test_nothing_grows_from_epoch_to_epoch(small):
    run(
        """
        from test_memory import *

        loader = forebay.DataLoader(
            forebay.FileFolder(sys.argv[1]), 8, shuffle=True, seed=3, num_workers=2, memory=BUDGET
        )
        figures = []
        for epoch in range(30):
            for batch in loader:
                pass
            figures.append((loader.stats()["slabs_made"], resident()))
        made, memory = zip(*figures)
        # A chance moment may want one more, but 20 epochs of batches want no new ones.
        assert made[29] - made[9] <= 3, made
        grown = memory[29] - memory[9]
        assert grown < 6 * MIB, [round(bytes / MIB, 1) for bytes in memory]
        """,
        small,
    )
