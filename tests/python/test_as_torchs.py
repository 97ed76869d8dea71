"""What torch's loader takes and does, ours takes and does: datasets of any kind, attributes that
are changed, processes, and frameworks that take a loader apart and make another of it.

torch's loader is the oracle: both are asked the same, and must answer the same.
"""

from __future__ import annotations

import gc
import logging
import pickle
import pydoc
import warnings
from typing import Any

import forebay
import pytest
import torch
import webdataset
from accelerate import Accelerator
from data import class_folders, tar_shards
from lightning.pytorch.utilities.data import _update_dataloader
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)

GUARD = 60
BOTH = (forebay.DataLoader, torch.utils.data.DataLoader)
TABLE = TensorDataset(torch.arange(6), torch.ones(6, 2))


class Squares(Dataset[int]):
    """A dataset of the user's own."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, number: int) -> int:
        return number * number


class Boundless(Dataset[int]):
    """A dataset that does not know its length."""

    def __getitem__(self, number: int) -> int:
        return number * 2


class AtOnce(Squares):
    """A dataset that is asked for a whole batch."""

    def __getitems__(self, numbers: list[int]) -> list[int]:
        return [-number for number in numbers]


class Failing(Squares):
    """A dataset with one bad sample."""

    def __getitem__(self, number: int) -> int:
        if number == 5:
            raise KeyError("no such sample")
        return number


class Counting(IterableDataset[int]):
    """A stream that its workers share out among themselves."""

    def __init__(self, length: int | None = None) -> None:
        self.length = length

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 11, step))

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("a stream without a length")
        return self.length


class Mine(forebay.DataLoader):
    """A loader of the user's own."""


def plain(batch: Any) -> Any:
    """A batch without its tensors, to be compared."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {name: plain(value) for name, value in batch.items()}
    return [plain(part) for part in batch] if isinstance(batch, list | tuple) else batch


def first_and_count(batch: list[int]) -> tuple[int, int]:
    """A collate function that can be sent to a process."""
    return batch[0], len(batch)


def told_worker(number: int) -> None:
    """A worker_init_fn that leaves its mark on the worker's copy of the dataset."""
    get_worker_info().dataset.mark = number + 100


class Marked(Squares):
    """A dataset that shows who reads it."""

    def __getitem__(self, number: int) -> tuple[int, int, int]:
        info = get_worker_info()
        return number, info.id, self.mark


# -- datasets of every kind -----------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Squares(), {"batch_size": 4}),
        (Squares(), {"batch_size": 4, "drop_last": True}),
        (Squares(), {"batch_size": None}),
        (Squares(), {"batch_size": 3, "shuffle": True}),
        (Squares(), {"batch_size": 3, "collate_fn": first_and_count}),
        (Squares(), {"batch_sampler": [[1, 2], [3], [7, 8, 9]]}),
        (Squares(), {"sampler": [3, 1, 2]}),
        (TABLE, {"batch_size": None, "sampler": BatchSampler(range(6), 4, False)}),
        (AtOnce(), {"batch_size": 4}),
        (AtOnce(), {"batch_size": 4, "sampler": range(3, 10)}),
        (Boundless(), {"sampler": [5, 50, 500]}),
        (Boundless(), {"batch_sampler": [[5, 50], [500]]}),
        ([{"a": 1, "b": [2.0, "x"]}, {"a": 3, "b": [4.0, "y"]}], {"batch_size": 2}),
        (TABLE, {"batch_size": 4}),
        ({"left": 1, "right": 2}, {"sampler": ["right", "left"], "batch_size": 2}),
        (Counting(), {"batch_size": 4}),
        (Counting(), {"batch_size": 4, "drop_last": True}),
        (Counting(), {"batch_size": None}),
        (Counting(11), {"batch_size": 3, "collate_fn": first_and_count}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else type(value).__name__,
)
def test_any_dataset_gives_torchs_batches_and_torchs_length(dataset, options, workers):
    def answer(kind: type[Any]) -> tuple[Any, Any]:
        torch.manual_seed(3)
        loader = kind(dataset, num_workers=workers, **options)
        try:
            length = len(loader)
        except TypeError:
            length = None
        return length, [plain(batch) for _ in range(2) for batch in loader], torch.rand(1).item()

    assert answer(forebay.DataLoader) == answer(torch.utils.data.DataLoader)


def test_a_dataset_without_length_and_sampler_is_torchs_error():
    for kind in BOTH:
        with pytest.raises(TypeError, match="has no len"):
            list(kind(Boundless()))


def test_a_stream_is_read_by_torch_which_stats_and_explain_say():
    loader = forebay.DataLoader(Counting(), 4)
    assert [plain(batch) for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert loader.stats()["read_by"] == "torch"
    assert loader.stats()["batches"] == 3
    assert "the IterableDataset's own" in loader.explain()
    assert "read by torch, in Python: Counting is not a dataset of forebay" in loader.explain()


def test_webdataset_runs_as_in_torchs_loader(tmp_path):
    tar_shards(tmp_path)
    shards = [str(path) for path in sorted(tmp_path.glob("*.tar"))]
    dataset = webdataset.WebDataset(shards, shardshuffle=False).to_tuple("cls", "__key__")
    ours, theirs = (list(map(plain, kind(dataset, 4))) for kind in BOTH)
    assert len(ours) == 4
    assert ours == theirs


def test_a_stream_that_is_longer_than_it_says_is_torchs_warning():
    for kind in BOTH:
        loader = kind(Counting(2), 4)
        assert len(loader) == 1
        with pytest.warns(UserWarning, match="Length of IterableDataset"):
            list(loader)


def test_more_processes_than_cores_are_torchs_warning_and_threads_are_not(tmp_path):
    for kind in BOTH:
        with pytest.warns(UserWarning, match="worker processes in total"):
            kind(Squares(), num_workers=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forebay.DataLoader(forebay.FileFolder(class_folders(tmp_path / "d")), num_workers=1000)


# -- what can be changed, and what cannot ---------------------------------------------------


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
@pytest.mark.parametrize("native", [True, False])
def test_what_torch_does_not_let_change_is_torchs_error(name, native, tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d")) if native else Squares()
    said = []
    for kind in BOTH:
        loader = kind(dataset, 4)
        with pytest.raises(ValueError, match="should not be set after") as error:
            setattr(loader, name, 2)
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("native", [True, False])
def test_a_collate_fn_that_is_changed_counts_from_the_next_epoch_on(native, workers, tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d")) if native else Squares()
    loader = forebay.DataLoader(dataset, 4, num_workers=workers)
    assert not isinstance(next(iter(loader)), int)
    loader.collate_fn = len
    assert list(loader) == [4] * (len(dataset) // 4) + [len(dataset) % 4]


# -- processes ------------------------------------------------------------------------------


def test_workers_are_told_who_they_are():
    loader = forebay.DataLoader(
        Marked(), None, num_workers=2, worker_init_fn=told_worker, timeout=GUARD
    )
    for number, worker, mark in loader:
        assert (worker, mark) == (number % 2, number % 2 + 100)
    assert get_worker_info() is None


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_dataset_is_torchs_and_the_next_batch_comes(workers):
    answers = []
    for kind in BOTH:
        iterator = iter(kind(Failing(), 2, num_workers=workers, timeout=GUARD if workers else 0))
        got: list[Any] = []
        for _ in range(6):
            try:
                got.append(plain(next(iterator)))
            except KeyError as error:
                got.append(str(error).splitlines()[-1])
        answers.append(got)
    # Without workers, torch's sampler is one batch further after the error; so is ours.
    assert answers[0] == answers[1]


def test_workers_that_persist_end_with_their_loader_and_wait_for_no_collection():
    gc.collect()
    gc.disable()
    try:
        loader = forebay.DataLoader(Squares(), 2, num_workers=2, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        workers = iterator._workers
        assert [worker.is_alive() for worker in workers] == [True, True]
        del loader, iterator
        for worker in workers:
            worker.join(GUARD)
        assert [worker.is_alive() for worker in workers] == [False, False]
    finally:
        gc.enable()


# -- who is dealt to ------------------------------------------------------------------------


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks in the environment, as torchrun leaves them."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


def numbers(loader: Any) -> list[int]:
    return [number for batch in loader for number in batch[-1].tolist()]


@pytest.mark.parametrize(
    ("options", "dealt"),
    [
        ({}, False),
        ({"shuffle": True}, False),
        ({"sampler": SequentialSampler(range(25))}, False),
        ({"seed": 1}, True),
        ({"seed": 1, "shuffle": True}, True),
        ({"world_size": 2}, True),
        ({"rank": 1, "world_size": 2}, True),
        ({"seed": 1, "rank": 0, "world_size": 1}, False),
    ],
    ids=str,
)
def test_samples_are_dealt_to_ranks_only_if_a_seed_or_ranks_are_given(
    options, dealt, second_of_two, tmp_path, caplog
):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d"))
    with caplog.at_level(logging.INFO, "forebay"):
        loader = forebay.DataLoader(dataset, 4, return_index=True, **options)
    seen = numbers(loader)
    assert len(set(seen)) == (13 if dealt else 25)
    assert (loader.rank, loader.world_size) == ((1, 2) if dealt else (0, 1))
    sentence = loader.explain().splitlines()[0]
    assert ("dealt to 2 ranks by forebay" in sentence) == dealt
    assert caplog.text.count(sentence) == 1


def test_a_distributed_sampler_beside_ranks_in_the_environment_deals_once(second_of_two, tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d"))
    sampler = DistributedSampler(dataset, 2, 1, shuffle=True, seed=4)
    loader = forebay.DataLoader(dataset, 4, sampler=sampler, return_index=True)
    assert numbers(loader) == list(sampler)
    with pytest.raises(ValueError, match="seed"):
        forebay.DataLoader(dataset, 4, sampler=sampler, seed=4)


# -- frameworks that make another loader of ours --------------------------------------------

OURS: dict[str, Any] = {
    "memory": "5MiB",
    "readahead": "3MiB",
    "policy": "lru",
    "return_index": True,
    "max_bad_samples": 7,
    "on_error": "replace",
    "num_workers": 3,
}


def options_of(loader: Any) -> dict[str, Any]:
    return {name: getattr(loader, name) for name in OURS}


def test_lightning_makes_a_loader_of_ours_with_our_options(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d"))
    loader = Mine(dataset, 4, shuffle=True, **OURS)
    sampler = DistributedSampler(dataset, 2, 1, shuffle=True, seed=9)
    made = _update_dataloader(loader, sampler)
    assert type(made) is Mine
    assert options_of(made) == options_of(loader)
    assert numbers(made) == list(sampler)


def test_accelerate_makes_a_loader_of_ours_with_our_options(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d"))
    loader = forebay.DataLoader(dataset, 4, shuffle=True, **OURS)
    prepared = Accelerator(cpu=True).prepare(loader)
    assert isinstance(prepared, forebay.DataLoader)
    assert options_of(prepared.base_dataloader) == options_of(loader)
    assert sorted(numbers(prepared)) == list(range(25))
    assert prepared.base_dataloader.stats()["read_by"] == "forebay"


class Sized(forebay.DataLoader):
    """Takes other arguments than torch's."""

    def __init__(self, dataset, size):
        super().__init__(dataset, batch_size=size, collate_fn=tell)


def tell(items):
    return "told"


def test_accelerate_makes_each_loader_of_its_own_arguments_whatever_classes_there_are(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d"))
    loaders = Sized(dataset, 5), forebay.DataLoader(dataset, 4, **OURS), Mine(dataset, 3, **OURS)
    sized, plain, mine = Accelerator(cpu=True).prepare(*loaders)
    assert list(sized) == ["told"] * 5
    assert numbers(plain) == numbers(mine) == list(range(25))


def test_a_loader_of_the_users_own_class_can_be_pickled(tmp_path):
    loader = Mine(forebay.FileFolder(class_folders(tmp_path / "d")), 4, seed=3, **OURS)
    made = pickle.loads(pickle.dumps(loader))
    assert type(made) is Mine
    assert options_of(made) == options_of(loader)
    assert numbers(made) == numbers(loader)


@pytest.mark.parametrize("native", [True, False])
def test_what_frameworks_look_at_is_as_in_torchs_loader(native, tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d")) if native else Squares()
    looked_at = (
        *("batch_size", "drop_last", "timeout", "pin_memory", "pin_memory_device"),
        *("prefetch_factor", "persistent_workers", "worker_init_fn", "generator", "in_order"),
        *("multiprocessing_context", "_auto_collation", "_dataset_kind", "_iterator"),
    )
    for options in ({}, {"batch_size": None}, {"batch_size": 4, "shuffle": True}):
        ours, theirs = (kind(dataset, num_workers=2, **options) for kind in BOTH)
        for name in looked_at:
            assert getattr(ours, name) == getattr(theirs, name), name
        assert isinstance(ours, torch.utils.data.DataLoader)
        assert type(ours.sampler) is type(theirs.sampler)
        assert type(ours.sampler) in (SequentialSampler, RandomSampler)
        assert type(ours.batch_sampler) is type(theirs.batch_sampler)
        assert list(ours._index_sampler) == list(ours._index_sampler) or options


def test_the_class_takes_the_type_of_its_samples():
    loader = forebay.DataLoader[int](Squares(), 4)
    assert len(list(loader)) == 3


# -- help -----------------------------------------------------------------------------------


def test_help_shows_every_option_and_nothing_that_is_ours_alone():
    shown = pydoc.plain(pydoc.render_doc(forebay.DataLoader))
    body = shown.partition("Methods defined here")[0]
    code = forebay.DataLoader.__init__.__code__
    for option in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        if not hasattr(torch.utils.data.DataLoader(Squares()), option):
            assert f"``{option}``" in body, option
    public = {name for name in vars(forebay.DataLoader) if not name.startswith("_")}
    assert public == {
        *("close", "explain", "load_state_dict", "order", "set_epoch", "state_dict"),
        *("stats", "what_if", "rank", "world_size", "check_worker_number_rationality"),
    }
