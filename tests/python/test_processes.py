"""Abandoned, interrupted, forked, exiting: nothing hangs, nothing leaks, nothing crashes."""

import copy
import itertools
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import forebay
import pytest
import torch
from data import content
from processes import LONG, back_at, census, finish, run, start
from silence import Silence

# A loader's timeout where a failure would be an endless wait.
GUARD = 60


def ids(loader):
    """The sample numbers of an epoch, batch by batch."""
    return [numbers.tolist() for *_, numbers in loader]


def flat(parts):
    return [number for part in parts for number in part]


def make(folder, *arguments, **more):
    return forebay.DataLoader(
        forebay.FileFolder(folder), *arguments or (4,), **{"return_index": True, **more}
    )


@pytest.fixture
def silence(tmp_path):
    server = Silence(tmp_path)
    yield server
    server.close()


# -- abandoned, closed, copied ------------------------------------------------------------


def test_200_loaders_abandoned_mid_epoch_leave_no_thread_and_no_descriptor(folder):
    dataset = forebay.FileFolder(folder)
    assert len(ids(make(folder))) == 7
    baseline = census()
    for at in range(200):
        options = {"seed": at, "shuffle": True} if at % 2 else {"sampler": list(range(25))}
        loader = forebay.DataLoader(dataset, 4, num_workers=at % 4, **options)
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(at % 5)]
        if at % 3 == 0:
            del loader, iterator  # the batches live on without them
            assert len(kept) == at % 5
    del loader, iterator, kept
    back_at(baseline)


def test_a_loader_that_is_closed_can_be_iterated_again(folder):
    baseline = census()
    loader = make(folder, seed=1, shuffle=True)
    first = ids(loader)
    loader.close()
    loader.close()
    back_at((baseline[0], 10**6))
    loader.set_epoch(0)
    assert ids(loader) == first


def test_an_iterator_whose_loader_was_closed_says_so(folder):
    loader = make(folder, timeout=GUARD)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(forebay.ClosedError):
        for _ in iterator:
            pass


def test_closing_from_another_thread_ends_a_wait(silence):
    loader = forebay.DataLoader(silence.dataset(), 4, timeout=GUARD)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, iter(loader))
        assert silence.asked.wait(LONG)
        loader.close()
        with pytest.raises(forebay.ClosedError):
            waiting.result()


def test_an_old_iterator_does_not_spoil_the_loader_after_it_was_closed(folder):
    loader = make(folder, seed=1, shuffle=True, timeout=GUARD)
    old = iter(loader)
    next(old)
    loader.close()
    new = iter(loader)
    next(new)
    del old
    assert [sorted(flat(ids(loader))) for _ in range(2)] == [list(range(25))] * 2


def test_a_generator_that_holds_an_iterator_lets_go_when_it_is_closed(folder):
    baseline = census()

    def batches():
        yield from make(folder, num_workers=3)

    generator = batches()
    next(generator)
    assert census()[0] > baseline[0]
    generator.close()
    back_at(baseline)


def test_copies_are_loaders_of_their_own(folder):
    loader = make(folder, seed=4, shuffle=True)
    iterator = iter(loader)
    first = next(iterator)[2].tolist()
    for made in (copy.deepcopy(loader), copy.copy(loader)):
        made.set_epoch(0)
        assert ids(made) == [first, *ids_of_order(loader, 0)[1:]]
        made.close()
    assert [batch[2].tolist() for batch in iterator] == ids_of_order(loader, 0)[1:]
    assert ids(copy.deepcopy(loader)) == ids(loader)


def ids_of_order(loader, epoch):
    return [part.tolist() for part in torch.tensor(loader.order(epoch).astype(int)).split(4)]


# -- several iterators --------------------------------------------------------------------


class Alternating(torch.utils.data.Sampler):
    """A class that nobody knows."""

    def __len__(self):
        return 20

    def __iter__(self):
        return iter([*range(0, 20, 2), *range(1, 20, 2)])


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 25

    def __getitem__(self, index):
        return index


ORDERS = {
    "seed": lambda: {"seed": 3, "shuffle": True},
    "default generator": lambda: {"shuffle": True},
    "own generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(1)},
    "unknown sampler": lambda: {"sampler": Alternating()},
}


def of_torch(options):
    """torch's loader of the same order; the seed's epochs as promised."""
    return torch.utils.data.DataLoader(Numbers(), batch_size=4, **options)


@pytest.mark.parametrize("name", list(ORDERS)[1:])
@pytest.mark.parametrize("workers", [0, 2])
def test_two_iterators_at_once_are_two_epochs_as_with_torch(folder, name, workers):
    results = []
    for ours in (False, True):
        torch.manual_seed(5)
        options = {**ORDERS[name](), "num_workers": workers}
        loader = make(folder, **options) if ours else of_torch(options)
        pairs = [
            tuple((part[2] if ours else part).tolist() for part in pair)
            for pair in zip(loader, loader, strict=True)
        ]
        drawn = options.get("generator", torch.default_generator).get_state().tolist()
        results.append((pairs, drawn))
    assert results[0][0] == results[1][0]
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("native", [True, False])
def test_with_a_seed_each_iterator_at_once_has_an_epoch_of_its_own(folder, native):
    options = {"seed": 3, "shuffle": True}
    loader = make(folder, **options) if native else forebay.DataLoader(Numbers(), 4, **options)
    pairs = list(zip(loader, loader, strict=True))
    for epoch in range(2):
        seen = [(pair[epoch][2] if native else pair[epoch]).tolist() for pair in pairs]
        assert seen == ids_of_order(loader, epoch)


@pytest.mark.parametrize("name", ORDERS)
def test_nested_loops_over_one_loader_see_every_sample_each_time(folder, name):
    loader = make(folder, **ORDERS[name]())
    expected = list(range(20 if name == "unknown sampler" else 25))
    outer = []
    for *_, numbers in itertools.islice(loader, 3):
        outer += numbers.tolist()
        assert sorted(flat(ids(loader))) == expected
    assert len(set(outer)) == 12


@pytest.mark.parametrize("name", ORDERS)
def test_a_loader_shared_by_threads_gives_each_a_whole_epoch(folder, name):
    loader = make(folder, num_workers=2, timeout=GUARD, **ORDERS[name]())
    expected = list(range(20 if name == "unknown sampler" else 25))
    meet = threading.Barrier(4)

    def work(_):
        meet.wait(LONG)
        return [sorted(flat(ids(loader))) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [[expected] * 10] * 4


def test_threads_that_share_one_iterator_get_each_batch_once(folder):
    iterator = iter(make(folder, 1, seed=2, shuffle=True, num_workers=2))

    def work(_):
        return flat(ids(iterator))

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(work, range(4)))
    assert sorted(flat(parts)) == list(range(25))


# -- errors of the user's own functions ---------------------------------------------------


class OwnError(Exception):
    pass


@pytest.mark.parametrize("kind", [OwnError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["transform", "collate_fn"])
def test_an_exception_in_a_users_function_is_passed_on_and_the_loader_goes_on(folder, kind, place):
    failing = [True]

    def act(value):
        if failing[0]:
            failing[0] = False
            raise kind("mine")
        return value

    dataset = forebay.FileFolder(folder, transform=act if place == "transform" else None)
    collate = act if place == "collate_fn" else list
    loader = forebay.DataLoader(dataset, 4, collate_fn=collate)
    iterator = iter(loader)
    with pytest.raises(kind, match="mine"):
        next(iterator)
    assert len(list(iterator)) == 6, "as with torch, the batch that failed is gone"
    assert [len(batch) for batch in loader] == [4] * 6 + [1]


def test_after_an_exception_the_state_is_where_the_iterator_is(folder):
    failing = [False]

    def act(samples):
        if failing[0]:
            failing[0] = False
            raise OwnError
        return samples

    loader = make(folder, seed=3, shuffle=True, collate_fn=act)
    order = ids_of_order(loader, 0)
    iterator = iter(loader)
    next(iterator)
    failing[0] = True
    with pytest.raises(OwnError):
        next(iterator)
    assert loader.state_dict()["batches"] == 1, "what failed was not yielded"
    *_, numbers = next(iterator)
    assert numbers.tolist() == order[2]
    resumed = make(folder, seed=3, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert ids(resumed) == order[3:]


# -- Ctrl-C -------------------------------------------------------------------------------


def test_50_interrupts_at_random_moments_are_raised_and_nothing_is_left(folder):
    out = run(
        """
        from test_processes import *

        dataset = forebay.FileFolder(sys.argv[1])
        slow = forebay.FileFolder(sys.argv[1], transform=len)
        pick = random.Random(7)
        options = [
            {"seed": 1, "shuffle": True},
            {"shuffle": True, "num_workers": 2},
            {"sampler": Alternating()},
            {"seed": 1, "policy": "none", "memory": "64KiB", "num_workers": 3},
        ]
        ids(make(sys.argv[1]))
        baseline = census()
        loader = None
        for round in range(50):
            if loader is None or round % 3:
                # With workers a Python function runs in torch's processes, whose starting may
                # leave descriptors behind when it is interrupted.
                given = options[round % 4]
                in_thread = round % 5 == 0 and "num_workers" not in given
                loader = forebay.DataLoader(slow if in_thread else dataset, 4, **given)
            caught = threading.Event()
            delay = pick.random() * 0.03

            def strike():
                time.sleep(delay)
                os.kill(os.getpid(), signal.SIGINT)
                # Python itself drops what is raised in a __del__: then once more.
                while not caught.wait(2):
                    os.kill(os.getpid(), signal.SIGINT)

            striker = threading.Thread(target=strike)
            try:
                striker.start()
                while True:
                    for batch in loader:
                        pass
            except KeyboardInterrupt:
                caught.set()
            striker.join()
            if round % 3 == 1:
                assert sum(len(labels) for _, labels in loader) in (20, 25)
        del loader, batch, striker
        back_at(baseline)
        print("all raised")
        """,
        folder,
    )
    assert out == "all raised\n"


def test_an_interrupt_ends_the_wait_for_a_batch_that_never_comes(folder, silence):
    process = start(
        """
        from test_processes import *

        ids(make(sys.argv[3]))
        baseline = census()
        dataset = forebay.Files(sys.argv[1], manifest=sys.argv[2])
        loader = forebay.DataLoader(dataset, 4, num_workers=2)
        try:
            next(iter(loader))
        except KeyboardInterrupt:
            print("interrupted")
        assert sum(map(len, ids(make(sys.argv[3])))) == 25
        del dataset, loader
        back_at(baseline)
        """,
        silence.url,
        silence.manifest,
        folder,
    )
    assert silence.asked.wait(LONG)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (0, "interrupted\n"), err


# -- exits --------------------------------------------------------------------------------

EXITS = {
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(7)", 7),
    "the end": ("", 0),
    "an exception": ("raise ZeroDivisionError", 1),
    "the end, with a thread that waits": (
        "threading.Thread(target=next, args=(stuck,), daemon=True).start()",
        0,
    ),
    "the end, with a thread that takes batches": ("take_batches(loaders[0])", 0),
}


def take_batches(loader):
    """Has a thread take batches for ever; returns once it is under way.

    It asks the engine and makes no tensors: a thread that is inside torch when Python ends
    aborts the process, with torch alone as well ("terminate called").
    """
    going = threading.Event()
    engine, job = loader._borrow_job()

    def work():
        for epoch in itertools.count():
            drawn = loader._order_source.begin(epoch)
            job.begin(drawn.tag, drawn.epoch, drawn.rank)
            while job.next(0.0, False) is not None:
                going.set()

    threading.Thread(target=work, daemon=True).start()
    assert going.wait(LONG)
    assert engine.is_ours


@pytest.mark.parametrize("way", EXITS)
def test_a_process_exits_while_loaders_run_and_batches_live(folder, silence, way):
    statement, expected = EXITS[way]
    process = start(
        f"""
        from test_processes import *

        loaders = [make(sys.argv[3], 2, seed=1, shuffle=True, num_workers=2) for _ in range(3)]
        iterators = [iter(loader) for loader in loaders]
        batches = [next(iterator) for iterator in iterators]
        dataset = forebay.Files(sys.argv[1], manifest=sys.argv[2])
        stuck = iter(forebay.DataLoader(dataset, 4, num_workers=1))
        print("there", flush=True)
        sys.stdin.readline()
        {statement}
        """,
        silence.url,
        silence.manifest,
        folder,
    )
    assert silence.asked.wait(LONG)
    code, out, err = finish(process)
    assert (code, out) == (expected, "there\n"), err
    assert ("ZeroDivisionError" in err) == (way == "an exception"), err
    assert "Exception ignored" not in err, err


# -- fork, spawn, forkserver --------------------------------------------------------------


def test_a_fork_while_a_loader_runs_leaves_both_processes_whole(folder):
    run(
        """
        from test_processes import *

        loader = make(sys.argv[1], seed=1, shuffle=True, num_workers=2)
        iterator = iter(loader)
        batch = next(iterator)

        def right(batch):
            return all(
                sample.numpy().tobytes() == content(number, 1000 + number % 7)
                for sample, number in zip(batch[0], batch[2].tolist())
            )

        def in_child():
            global iterator, batch
            with pytest.raises(forebay.ClosedError, match="fork.*hint: iterate"):
                next(iterator)
            assert right(batch)
            for epoch in range(2):
                loader.set_epoch(epoch)
                assert ids(loader) == ids_of_order(loader, epoch)
            batch = iterator = None
            for _ in range(2):
                assert sorted(flat(ids(loader))) == list(range(25))

        for way in (os._exit, sys.exit):
            child = os.fork()
            if child == 0:
                in_child()
                way(0)
            assert join_child(child) == 0
        assert right(batch)
        rest = [numbers.tolist() for *_, numbers in iterator]
        assert rest == ids_of_order(loader, 0)[1:]
        batch = None
        assert ids(loader) == ids_of_order(loader, 1)
        """,
        folder,
    )


def test_forks_at_any_moment_never_hang_the_child(folder):
    run(
        """
        from test_processes import *

        loader = make(sys.argv[1], 2, seed=1, shuffle=True, num_workers=2, memory="64KiB")
        for _ in range(10):
            for _, batch in zip(range(5), loader):
                child = os.fork()
                if child == 0:
                    total = sum(int(sample.sum()) for sample in batch[0])
                    del batch
                    os._exit(0 if len(ids(make(sys.argv[1]))) == 7 and total else 1)
                assert join_child(child) == 0
        """,
        folder,
    )


def work(loader, root):
    """In a worker: the loader it was given, one of its own, and single samples."""
    own = make(root, num_workers=1)
    assert own.dataset[3][0].numpy().tobytes() == content(3, 1003)
    return ids(loader), ids(own)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_make_and_are_given_loaders(folder, method):
    parents = make(folder)
    running = iter(parents)
    next(running)
    parents.dataset[0]
    loader = make(folder, seed=6, shuffle=True)
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        answers = [pool.submit(work, loader, folder) for _ in range(2)]
        for answer in answers:
            given, own = answer.result(LONG)
            assert given == ids_of_order(loader, 0)
            assert flat(own) == list(range(25))
    assert flat(ids(running)) == list(range(4, 25))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_datasets_work_in_torchs_workers_while_loaders_run_here(folder, method):
    parents = make(folder, num_workers=2)
    running = iter(parents)
    next(running)
    dataset = parents.dataset
    assert dataset[3][0].numpy().tobytes() == content(3, 1003)
    theirs = torch.utils.data.DataLoader(
        dataset, 4, num_workers=2, collate_fn=list, multiprocessing_context=method
    )
    samples = [sample.numpy().tobytes() for batch in theirs for sample, _ in batch]
    assert samples == [content(at, 1000 + at % 7) for at in range(25)]
    assert flat(ids(running)) == list(range(4, 25))
