"""A batch is taken only when it is handed over: what fails on the way to the user loses none."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import forebay
import pytest
import torch
from data import class_folders

SAMPLES = 300


@pytest.fixture
def files(tmp_path):
    return forebay.FileFolder(class_folders(tmp_path / "d", samples=SAMPLES, size=500))


def stubborn(loader: forebay.DataLoader, raised: list[Exception]) -> Iterator[list[int]]:
    """The sample numbers of each batch, asked for again after every error, with states checked."""
    iterator = iter(loader)
    consumed = 0
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raised.append(error)
            assert len(raised) < 10
            continue
        consumed += len(batch[2])
        assert loader.state_dict()["consumed"] == consumed
        yield batch[2].tolist()


@contextlib.contextmanager
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def in_order(count: int) -> list[int]:
    return list(range(count))


def test_a_warning_that_is_an_error_loses_no_batch(files, tmp_path):
    loader = forebay.DataLoader(
        files, 4, seed=1, memory="3MiB", cache_dir=str(tmp_path / "cache"), return_index=True
    )
    raised: list[Exception] = []
    with warnings_are_errors():
        seen = [number for batch in stubborn(loader, raised) for number in batch]
    assert any("too little to use a disk cache" in str(error) for error in raised)
    assert seen == in_order(SAMPLES)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_warning_of_kept_batches_as_an_error_loses_no_batch(files, workers):
    loader = forebay.DataLoader(files, 4, return_index=True, num_workers=workers)
    raised: list[Exception] = []
    kept = []
    with warnings_are_errors():
        iterator = iter(loader)
        while True:
            try:
                kept.append(next(iterator))
            except StopIteration:
                break
            except Exception as error:
                raised.append(error)
                assert len(raised) < 10
    assert ["still referred to" in str(error) for error in raised] == [True]
    assert torch.cat([batch[2] for batch in kept]).tolist() == in_order(SAMPLES)


def test_a_collate_fn_that_fails_takes_its_batch_with_it_as_in_torch(files):
    calls = []

    def collate(samples):
        calls.append(1)
        if len(calls) == 11:
            raise KeyError("once")
        return [torch.zeros(1), torch.zeros(1)]

    loader = forebay.DataLoader(files, 4, return_index=True, num_workers=0, collate_fn=collate)
    seen = []
    iterator = iter(loader)
    for at in range(SAMPLES // 4):
        if at == 10:
            with pytest.raises(KeyError, match="once"):
                next(iterator)
        else:
            seen += next(iterator)[2].tolist()
    assert next(iterator, None) is None
    assert sorted(set(in_order(SAMPLES)) - set(seen)) == [40, 41, 42, 43]
