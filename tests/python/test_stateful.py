"""What a state carries beside the place: generators, and samplers' and datasets' own state."""

import json
import subprocess
import sys
import textwrap
import warnings

import forebay
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    get_worker_info,
)

SAMPLES = 24


class Numbers(torch.utils.data.Dataset):
    """A dataset that torch reads."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index


def numbers(batches):
    return [int(number) for batch in batches for number in batch]


@pytest.fixture(params=["native", "torch"])
def dataset(request, folder):
    """Of either kind."""
    return forebay.FileFolder(folder) if request.param == "native" else Numbers()


def make(dataset, **more):
    more = {"shuffle": True, "batch_size": 4, **more}
    if isinstance(dataset, forebay.FileFolder):
        more["return_index"] = True
    return forebay.DataLoader(dataset, **more)


def epoch(loader):
    parts = (batch[2] if isinstance(batch, list | tuple) else batch for batch in loader)
    return [part.tolist() if isinstance(part, torch.Tensor) else part for part in parts]


# -- the next epoch's order ---------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_a_state_of_an_epochs_end_fixes_the_next_epochs(dataset, workers, persistent):
    options = {"num_workers": workers, "persistent_workers": persistent}
    torch.manual_seed(1)
    loader = make(dataset, **options)
    epoch(loader)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = [epoch(loader) for _ in range(3)]
    torch.manual_seed(99)
    resumed = make(dataset, **options)
    resumed.load_state_dict(state)
    torch.manual_seed(98)
    assert [epoch(resumed) for _ in range(3)] == expected


class Drawing(Numbers):
    """A dataset that draws from torch's generator, and keeps that as its own state."""

    def __getitem__(self, index):
        return index * 1000 + torch.randint(1000, ()).item()

    def state_dict(self):
        return {"generator": torch.get_rng_state()}

    def load_state_dict(self, state):
        torch.set_rng_state(state["generator"])


class Shuffled(Sampler):
    """A sampler of the user's that draws from torch's generator."""

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        yield from torch.randperm(SAMPLES).tolist()


@pytest.mark.parametrize("sampler", [None, Shuffled])
@pytest.mark.parametrize("other_seed", [None, 99])
@pytest.mark.parametrize("batches", [None, 0, 2])  # None: no epoch is under way
def test_a_dataset_that_keeps_torchs_generator_goes_on_with_the_same_draws(
    batches, other_seed, sampler
):
    if sampler is not None and batches == 2:
        pytest.skip("a sampler without a state is asked again, and draws again")
    order = {"shuffle": True} if sampler is None else {"shuffle": None, "sampler": sampler()}
    torch.manual_seed(1)
    loader = make(Drawing(), num_workers=0, **order)
    epoch(loader)
    iterator = None if batches is None else iter(loader)
    for _ in range(batches or 0):
        next(iterator)
    state = loader.state_dict()
    now = torch.get_rng_state()
    expected = [*([] if iterator is None else epoch(iterator)), *epoch(loader)]
    torch.set_rng_state(now)
    if other_seed is not None:
        torch.manual_seed(other_seed)
    resumed = make(Drawing(), num_workers=0, **order)
    resumed.load_state_dict(state)
    assert [*([] if iterator is None else epoch(resumed)), *epoch(resumed)] == expected


@pytest.mark.parametrize("batches", [0, 2])
def test_a_dataset_with_a_state_keeps_the_order_of_a_sampler_of_torchs(batches):
    torch.manual_seed(1)
    options = {"shuffle": None, "num_workers": 0}
    loader = make(Drawn(7), sampler=SubsetRandomSampler(range(0, SAMPLES, 2)), **options)
    epoch(loader)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    state = loader.state_dict()
    expected = epoch(iterator)
    torch.manual_seed(99)
    resumed = make(Drawn(7), sampler=SubsetRandomSampler(range(0, SAMPLES, 2)), **options)
    resumed.load_state_dict(state)
    assert epoch(resumed) == expected


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_state_of_an_epochs_middle_fixes_the_rest_and_the_next(dataset, batches):
    torch.manual_seed(1)
    loader = make(dataset)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = epoch(iterator), epoch(loader)
    torch.manual_seed(99)
    resumed = make(dataset)
    resumed.load_state_dict(state)
    assert (epoch(resumed), epoch(resumed)) == expected


def test_a_fresh_process_has_the_same_next_epoch(tmp_path):
    torch.manual_seed(1)
    loader = make(Numbers())
    epoch(loader)
    path = tmp_path / "state.json"
    path.write_text(json.dumps(loader.state_dict()))
    expected = epoch(loader)
    script = f"""
    import json, sys, torch, forebay
    sys.path[:0] = {sys.path!r}
    from test_stateful import Numbers, epoch, make
    torch.manual_seed(5)
    loader = make(Numbers())
    loader.load_state_dict(json.load(open({str(path)!r})))
    print(json.dumps(epoch(loader)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120
    )
    assert json.loads(done.stdout) == expected, done.stderr


def test_a_run_that_saves_goes_on_as_torchs_whoever_draws_in_between(dataset):
    """Frameworks ask for the state after every batch and at the end, then validate."""
    seen = []
    for loader in (DataLoader(range(len(dataset)), 4, shuffle=True), make(dataset)):
        torch.manual_seed(1)
        seen.append([])
        for _ in range(3):
            for batch in loader:
                seen[-1] += epoch([batch])
                getattr(loader, "state_dict", dict)()
            getattr(loader, "state_dict", dict)()
            torch.rand(7)  # a validation, say
    assert seen[0] == seen[1]


def test_the_next_epoch_after_a_resume_is_the_one_that_would_have_begun_at_the_save(dataset):
    torch.manual_seed(1)
    loader = make(dataset)
    epoch(loader)
    state, then = loader.state_dict(), torch.get_rng_state()
    torch.rand(7)  # a validation, say
    epoch(loader)
    resumed = make(dataset)
    resumed.load_state_dict(state)
    under_way = iter(resumed)
    again = resumed.state_dict()  # before the first batch: still the same epoch
    found = epoch(under_way)
    torch.set_rng_state(then)
    assert found == epoch(make(dataset))
    torch.rand(3)
    resumed = make(dataset)
    resumed.load_state_dict(again)
    assert epoch(resumed) == found


def test_saving_changes_no_order_and_a_resume_leaves_torchs_generator_to_the_user(dataset):
    torch.manual_seed(1)
    plain = DataLoader(
        Numbers() if len(dataset) == SAMPLES else range(len(dataset)), 4, shuffle=True
    )
    expected = [[batch.tolist() for batch in plain] for _ in range(3)], torch.rand(1)
    torch.manual_seed(1)
    loader, seen = make(dataset), []
    for _ in range(3):
        loader.state_dict()
        seen.append(epoch(loader))
        state = loader.state_dict()
    assert (seen, torch.rand(1)) == expected

    torch.manual_seed(50)
    for _ in range(2):  # as many draws as torch makes of it, and from where the user has it
        torch.empty((), dtype=torch.int64).random_()
    following = torch.rand(1)
    torch.manual_seed(50)
    resumed = make(dataset)
    resumed.load_state_dict(state)
    epoch(resumed)
    assert torch.rand(1) == following


# -- a sampler's own state ----------------------------------------------------------------------


class Walk(Sampler):
    """Says itself where it is; ``asked`` counts what was asked of it."""

    def __init__(self, length=SAMPLES):
        self.length, self.at, self.round, self.asked = length, 0, 0, 0

    def __len__(self):
        return self.length

    def __iter__(self):
        for at in range(self.at, self.length):
            self.at = at + 1
            self.asked += 1
            yield (at + self.round) % self.length
        self.at, self.round = 0, self.round + 1

    def state_dict(self):
        return {"at": self.at, "round": self.round}

    def load_state_dict(self, state):
        self.at, self.round = state["at"], state["round"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batches", [0, 2, None])
@pytest.mark.parametrize("size", [4, None])
def test_a_sampler_with_a_state_goes_on_by_it(dataset, workers, batches, size):
    length = len(dataset)
    options = {"shuffle": None, "num_workers": workers, "batch_size": size}
    loader = make(dataset, sampler=Walk(length), **options)
    epoch(loader)
    iterator = iter(loader)
    for _ in range(len(loader) if batches is None else batches):
        next(iterator)
    if batches is None:
        assert next(iterator, None) is None
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [] if batches is None else epoch(iterator)
    expected = [part for part in (rest, epoch(loader)) if part]
    sampler = Walk(length)
    resumed = make(dataset, sampler=sampler, **options)
    resumed.load_state_dict(state)
    assert [epoch(resumed) for _ in expected] == expected
    given = sum(expected, [])
    assert sampler.asked == len(sum(given, []) if size else given), "nothing was passed over"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_has_counted_its_last_short_batch_still_ends_that_epoch(dataset, workers):
    options = {"shuffle": None, "num_workers": workers, "batch_size": 7}
    assert len(dataset) % 7
    loader = make(dataset, sampler=Walk(len(dataset)), **options)
    iterator = iter(loader)
    for _ in range(len(loader)):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = make(dataset, sampler=Walk(len(dataset)), **options)
    resumed.load_state_dict(state)
    assert epoch(resumed) == []
    assert epoch(resumed) == epoch(loader)


def test_a_state_counts_though_its_epoch_is_left_before_the_first_batch(dataset):
    loader = make(dataset, shuffle=None, sampler=Walk(len(dataset)))
    epoch(loader)
    resumed = make(dataset, shuffle=None, sampler=Walk(len(dataset)))
    resumed.load_state_dict(loader.state_dict())
    iter(resumed)
    assert epoch(resumed) == epoch(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_no_more_of_a_samplers_states_are_kept_than_batches_are_out(dataset, workers):
    loader = make(dataset, shuffle=None, sampler=Walk(len(dataset)), num_workers=workers)
    iterator = iter(loader)
    for _ in iterator:
        assert len(iterator.position.order._states) <= 2 + 2 * workers


def test_a_samplers_state_for_a_sampler_without_one_is_refused(dataset):
    loader = make(dataset, shuffle=None, sampler=Walk(len(dataset)))
    next(iter(loader))
    other = make(dataset, shuffle=None, sampler=list(range(len(dataset))))
    with pytest.raises(forebay.InvalidError, match=r"order\.sampler_state"):
        other.load_state_dict(loader.state_dict())


# -- a dataset's own state ----------------------------------------------------------------------


class Stream(IterableDataset):
    """Numbers, shared out to workers; with a state if ``own``."""

    def __init__(self, length=SAMPLES):
        self.length, self.at, self.epoch, self.read = length, 0, 0, 0

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        share = range(worker, self.length, workers)
        for at in range(self.at, len(share)):
            self.at = at + 1
            self.read += 1
            yield torch.tensor([share[at], self.epoch, self.read])
        self.at, self.epoch = 0, self.epoch + 1


class StatefulStream(Stream):
    def state_dict(self):
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.at, self.epoch = state["at"], state["epoch"]


def rows(batches):
    return [row[:2] for batch in batches for row in batch.tolist()]


@pytest.mark.parametrize("kind", [Stream, StatefulStream])
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("batches", [0, 1, 5])
def test_a_stream_goes_on_where_it_was(kind, workers, batches):
    loader = forebay.DataLoader(kind(), 2, num_workers=workers)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = rows(iterator)
    resumed = forebay.DataLoader(kind(), 2, num_workers=workers)
    resumed.load_state_dict(state)
    found = list(resumed)
    assert rows(found) == expected
    if kind is StatefulStream and found:
        assert found[0][0, 2] == 1, "it did not read what came before"


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, True)])
def test_a_streams_state_after_its_end_is_of_the_next_epoch(workers, persistent):
    options = {"num_workers": workers, "persistent_workers": persistent}
    loader = forebay.DataLoader(StatefulStream(), 2, **options)
    rows(loader)
    state = loader.state_dict()
    expected = rows(loader), rows(loader)
    assert {row[1] for row in expected[0]} == {1}
    resumed = forebay.DataLoader(StatefulStream(), 2, **options)
    resumed.load_state_dict(state)
    assert (rows(resumed), rows(resumed)) == expected


def test_a_stream_cannot_go_on_with_another_number_of_workers():
    loader = forebay.DataLoader(Stream(), 2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    with pytest.raises(forebay.InvalidError, match="hint: num_workers=2"):
        forebay.DataLoader(Stream(), 2).load_state_dict(state)
    forebay.DataLoader(Stream(), 2, num_workers=2).load_state_dict(state)


class Rewound(IterableDataset):
    """Says at its end that all was given, and begins anew only when it is iterated again."""

    def __init__(self):
        self.at, self.goes_on = 0, False

    def __iter__(self):
        self.at, self.goes_on = self.at if self.goes_on else 0, False
        while self.at < SAMPLES:
            self.at += 1
            yield self.at

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at, self.goes_on = state["at"], True


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("kind", [Rewound, StatefulStream])
def test_the_epoch_after_a_streams_end_is_whole_however_it_tells_its_end(kind, workers, persistent):
    def made():
        workers_of = {"num_workers": workers, "persistent_workers": persistent}
        return forebay.DataLoader(kind(), 4, **workers_of)

    loader = made()
    list(loader)
    resumed = made()
    resumed.load_state_dict(loader.state_dict())
    for _ in range(2):
        found, expected = list(resumed), list(loader)
        assert len(found) == SAMPLES / 4 * (workers or 1 if kind is Rewound else 1)
        if kind is StatefulStream:  # the third number is none of its state
            found, expected = ([batch[:, :2] for batch in run] for run in (found, expected))
        assert [batch.tolist() for batch in found] == [batch.tolist() for batch in expected]


class Drawn(Numbers):
    """Each sample has a number from a generator that the dataset keeps."""

    def __init__(self, own=3):
        self.drawn = own

    def __getitem__(self, index):
        self.drawn = self.drawn * 48271 % (2**31 - 1)
        return torch.tensor([index, self.drawn])

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batches", [0, 3])
def test_a_map_style_datasets_own_state_is_restored_in_its_process(workers, batches):
    loader = forebay.DataLoader(Drawn(), 2, num_workers=workers)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = rows(iterator)
    resumed = forebay.DataLoader(Drawn(own=99), 2, num_workers=workers)
    resumed.load_state_dict(state)
    assert rows(resumed) == expected


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 3), (3, 2)])
@pytest.mark.parametrize("kind", [Numbers, Drawn])
def test_the_number_of_workers_may_change_for_a_map_style_dataset(kind, before, after):
    loader = forebay.DataLoader(kind(), 2, num_workers=before)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    resumed = forebay.DataLoader(kind(), 2, num_workers=after)
    resumed.load_state_dict(loader.state_dict())
    first = [int(number if kind is Numbers else number[0]) for batch in resumed for number in batch]
    assert first == list(range(6, SAMPLES))


class Slow(Numbers):
    """The first sample waits until others were handed over."""

    def __init__(self, gate):
        self.gate = gate

    def __getitem__(self, index):
        if index == 0:
            assert self.gate.wait(60)
        return index


def test_batches_that_came_before_their_turn_are_not_given_again():
    context = torch.multiprocessing.get_context("fork")
    gate = context.Event()
    options = {"num_workers": 2, "in_order": False, "multiprocessing_context": context}
    loader = forebay.DataLoader(Slow(gate), **options)
    iterator = iter(loader)
    seen = numbers(next(iterator) for _ in range(3))
    assert 0 not in seen
    state = json.loads(json.dumps(loader.state_dict()))
    gate.set()
    resumed = forebay.DataLoader(Slow(gate), **options)
    resumed.load_state_dict(state)
    assert sorted(seen + numbers(resumed)) == list(range(SAMPLES))
    other = forebay.DataLoader(Slow(gate), 2, **options)
    with pytest.raises(forebay.InvalidError, match=r"order\.early"):
        other.load_state_dict(state)


def test_a_stream_warns_of_its_length_once_it_is_longer_and_not_before():
    class Told(Stream):
        def __len__(self):
            return self.told

    stream = Told()
    for stream.told, warns in ((SAMPLES, False), (SAMPLES - 4, True)):
        loader = forebay.DataLoader(stream, num_workers=2)
        assert len(loader) == stream.told
        with (
            pytest.warns(match="reported to be")
            if warns
            else warnings.catch_warnings(action="error")
        ):
            assert len(rows(loader)) == SAMPLES


def test_what_is_wrong_with_a_workers_state_is_named():
    loader = forebay.DataLoader(StatefulStream(), 2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    del iterator
    for path, value, words in [
        (("_snapshot",), 3, "_snapshot is 3"),
        (("_snapshot", "_worker_snapshots"), [], "_snapshot._worker_snapshots is []"),
        (("_snapshot", "_last_yielded_worker_id"), 2, "_last_yielded_worker_id is 2"),
        (("_snapshot", "_worker_snapshots", "worker_1"), None, "worker_1 is None"),
        (("_snapshot", "_worker_snapshots", "worker_1", "worker_id"), 0, "worker_1.worker_id is 0"),
        (("_snapshot", "_worker_snapshots", "worker_1", "batches"), -1, "worker_1.batches is -1"),
        (
            ("_snapshot", "_worker_snapshots", "worker_0", "fetcher_state", "fetcher_ended"),
            1,
            "fetcher_state.fetcher_ended is 1",
        ),
    ]:
        damaged = json.loads(json.dumps(state))
        within = damaged
        for name in path[:-1]:
            within = within[name]
        within[path[-1]] = value
        with pytest.raises(forebay.InvalidError) as error:
            loader.load_state_dict(damaged)
        assert words in str(error.value)


def test_a_sampler_of_torchs_with_a_generator_of_its_own_is_put_back():
    def build(seed):
        sampler = RandomSampler(Numbers(), generator=torch.Generator().manual_seed(seed))
        return forebay.DataLoader(Numbers(), 4, sampler=sampler)

    loader = build(1)
    epoch(loader)
    state = loader.state_dict()
    expected = epoch(loader)
    resumed = build(2)
    resumed.load_state_dict(state)
    assert epoch(resumed) == expected


class KeepsTorchs(Numbers):
    """Draws from torch's generator and keeps that as its own."""

    def __getitem__(self, index):
        return torch.randint(1000, (2,))

    def state_dict(self):
        return {"torch": torch.get_rng_state().tolist()}

    def load_state_dict(self, state):
        torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_drawn_between_a_datasets_state_and_its_first_sample(workers):
    def build():
        return forebay.DataLoader(KeepsTorchs(), 2, num_workers=workers)

    iterator = iter(loader := build())
    next(iterator)
    state = loader.state_dict()
    expected = rows(iterator)
    resumed = build()
    resumed.load_state_dict(state)
    assert rows(resumed) == expected
