"""The user's functions run in worker processes: the same batches, no hang, nothing left over."""

import gc
import itertools
import multiprocessing
import os
import random
import signal
import threading
import time

import forebay
import numpy as np
import pytest
import torch
from data import class_folders, content, image_folders, tar_shards
from forebay.randomness import seeded
from processes import back_at, census, finish, start, wait_for
from torchvision import transforms

# A loader's timeout where a failure would be an endless wait.
GUARD = 60


class Noisy:
    """A transform that draws from torch, from ``random`` and from numpy."""

    crop = transforms.Compose([transforms.RandomCrop(8), transforms.ToTensor()])

    def __call__(self, image):
        return self.crop(image) + random.random() + np.random.rand()


def process_of(_):
    return os.getpid()


def plus_100(label):
    return label + 100


def fail_at_16_kb(raw):
    if len(raw) == 1003:
        raise KeyError("no such thing")
    return len(raw)


@pytest.fixture
def images(tmp_path):
    return forebay.ImageFolder(image_folders(tmp_path / "d"), Noisy())


@pytest.fixture(autouse=True)
def nobody_is_left():
    yield
    gc.collect()  # an error that a test caught refers to its iterator
    for process in multiprocessing.active_children():
        process.join(10)
    assert not multiprocessing.active_children()


def make(dataset, batch_size=4, **more):
    options = {"shuffle": True, "seed": 7, "num_workers": 2, "timeout": GUARD, **more}
    if not options["num_workers"]:
        del options["timeout"]
    return forebay.DataLoader(dataset, batch_size, **options)


def epochs(loader, count=2):
    return [[[part.clone() for part in batch] for batch in loader] for _ in range(count)]


def same(left, right):
    """Whether nested lists of tensors are equal, in values, dtypes and structure."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    return len(left) == len(right) and all(map(same, left, right))


# -- processes, and when ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_transforms_run_in_all_the_processes_asked_for_and_not_in_the_users(folder, method):
    dataset = forebay.FileFolder(folder, process_of)
    found = [pids.tolist() for pids, _ in make(dataset, multiprocessing_context=method)]
    assert all(len(set(batch)) == 1 for batch in found), "a batch is made by one"
    processes = [batch[0] for batch in found]
    assert processes == (processes[:2] * len(processes))[: len(processes)]
    assert len(set(processes)) == 2
    assert os.getpid() not in processes
    if method == "forkserver":
        multiprocessing.forkserver._forkserver._stop()


def test_a_target_transform_or_a_collate_fn_alone_runs_there_too(folder):
    targets = make(forebay.FileFolder(folder, len, process_of))
    assert os.getpid() not in [pid for _, pids in targets for pid in pids.tolist()]
    assert os.getpid() not in list(make(forebay.FileFolder(folder), collate_fn=process_of))


@pytest.mark.parametrize("batch_size", [4, None])
def test_without_functions_of_the_users_there_are_no_processes(tmp_path, folder, batch_size):
    tar_shards(tmp_path / "tar")
    datasets = [forebay.FileFolder(folder)]
    datasets += [forebay.TarFolder(tmp_path / "tar")] if batch_size else []
    for dataset in datasets:
        for _ in make(dataset, batch_size):
            assert not multiprocessing.active_children()


def test_without_workers_the_transform_stays_in_the_users_thread(folder):
    dataset = forebay.FileFolder(folder, lambda _: threading.get_ident())
    found = {it for batch, _ in make(dataset, num_workers=0) for it in batch.tolist()}
    assert found == {threading.get_ident()}


def test_worker_init_fn_runs_in_each_and_finds_the_users_dataset(folder):
    def announce(worker):
        info = torch.utils.data.get_worker_info()
        assert (info.id, info.num_workers) == (worker, 2)
        info.dataset.transform = lambda _: worker

    dataset = forebay.FileFolder(folder, process_of)
    found = [batch[0].item() for batch, _ in make(dataset, worker_init_fn=announce)]
    assert found == [0, 1, 0, 1, 0, 1, 0]


def test_a_worker_keeps_to_one_thread(folder):
    dataset = forebay.FileFolder(folder, lambda _: torch.get_num_threads())
    assert {it for batch, _ in make(dataset) for it in batch.tolist()} == {1}


# -- the same batches ---------------------------------------------------------------------


def test_batches_are_those_of_the_users_thread_byte_for_byte(images):
    expected = epochs(make(images, num_workers=0, return_index=True))
    for more in ({}, {"num_workers": 3, "prefetch_factor": 1}, {"persistent_workers": True}):
        assert same(epochs(make(images, return_index=True, **more)), expected), more
    assert not same(expected[0], expected[1])


def test_without_a_seed_each_batch_draws_from_the_base_seed_that_torch_would_draw(images):
    torch.manual_seed(5)
    base_seed = torch.empty((), dtype=torch.int64).random_().item()
    torch.manual_seed(5)
    loader = make(images, shuffle=False, seed=None, num_workers=2)
    for number, (batch, _) in enumerate(loader, start=1):
        with seeded(base_seed, 0, 0, number):
            expected = [images[at][0] for at in range(4 * number - 4, 4 * number)]
        assert torch.equal(batch, torch.stack(expected))


def test_generators_and_order_are_where_torch_leaves_them(images):
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return index

    def plain():
        return torch.utils.data.DataLoader(Numbers(), 5, shuffle=True, num_workers=2)

    found = []
    for loader in (plain, lambda: make(images, 5, seed=None, return_index=True)):
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        made = loader()
        seen = [[(it[-1] if isinstance(it, tuple) else it).tolist() for it in made]] * 2
        found.append((seen, torch.rand(2).tolist(), random.random(), np.random.rand()))
    assert found[0] == found[1]


def test_a_random_epoch_goes_on_the_same_after_a_resume(images):
    for more in ({}, {"seed": None}, {"persistent_workers": True}):
        torch.manual_seed(5)
        loader = make(images, **more)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        assert state["batches"] == 1, "what is with the workers was not yielded"
        rest = [batch[0] for batch in iterator]
        torch.manual_seed(77)
        resumed = make(images, **more)
        resumed.load_state_dict(state)
        assert same([batch[0] for batch in resumed], rest)


def test_an_epoch_set_after_iter_is_the_one_that_comes(images):
    expected = epochs(make(images, num_workers=0), 3)[2]
    loader = make(images)
    iterator = iter(loader)
    loader.set_epoch(2)
    assert same([list(batch) for batch in iterator], expected)


def test_a_sampler_of_the_users_is_asked_as_far_ahead_as_torch_asks_it(images):
    class Counting:
        def __init__(self):
            self.asked = 0

        def __iter__(self):
            for at in range(20):
                self.asked += 1
                yield [at % 12, (at + 1) % 12]

    found = []
    plain = list(range(12))
    for kind, dataset in ((torch.utils.data.DataLoader, plain), (forebay.DataLoader, images)):
        sampler = Counting()
        iterator = iter(kind(dataset, batch_sampler=sampler, num_workers=2))
        counts = [sampler.asked]
        counts += [sampler.asked for _ in iterator]
        found.append(counts)
    assert found[0] == found[1]
    assert len(found[0]) == 21


def test_samples_of_all_sizes_arrive_whole(tmp_path):
    sizes = [0, 1, 4095, 4096, 70_000, 3_000_000, 5, 0, 2]
    (tmp_path / "a").mkdir()
    for at, size in enumerate(sizes):
        (tmp_path / "a" / f"{at}.bin").write_bytes(content(at, size))
    dataset = forebay.FileFolder(tmp_path, lambda raw: raw.numpy().tobytes())
    for size in (1, 2, 9):
        loader = make(dataset, size, shuffle=False, collate_fn=list)
        for _ in range(2):
            found = [data for batch in loader for data, _ in batch]
            assert found == [content(at, size) for at, size in enumerate(sizes)]


# -- what a user may ask for --------------------------------------------------------------


def test_collate_fn_target_transform_and_index_come_together(folder):
    dataset = forebay.FileFolder(folder, lambda raw: raw.numpy().tobytes(), plus_100)
    loader = make(dataset, collate_fn=lambda items: tuple(zip(*items, strict=True)))
    loader.return_index = True
    seen = []
    for samples, labels, numbers in loader:
        for sample, label, number in zip(samples, labels, numbers.tolist(), strict=True):
            assert sample == content(number, 1000 + number % 7)
            assert label == dataset.targets[number] + 100
            seen.append(number)
    assert seen == loader.order(0).tolist()


def test_single_samples_come_without_batching(folder):
    dataset = forebay.FileFolder(folder, len)
    loader = make(dataset, None, return_index=True)
    found = [(length, number.item()) for length, _, number in loader]
    assert found == [(1000 + number % 7, number) for number in loader.order(0).tolist()]


def test_raw_samples_that_a_user_keeps_stay_as_they_are(folder):
    kept = list(make(forebay.FileFolder(folder), collate_fn=list, shuffle=False))
    found = [sample.numpy().tobytes() for batch in kept for sample, _ in batch]
    assert found == [content(at, 1000 + at % 7) for at in range(25)]


def test_the_second_epoch_comes_from_our_cache(images):
    loader = make(images)
    epochs(loader, 3)
    stats = loader.stats()
    assert stats["origin_reads"] == 12
    assert stats["memory_hits"] >= 24
    assert stats["samples"] == 36


def test_workers_persist_over_epochs_if_asked_to(folder):
    dataset = forebay.FileFolder(folder, process_of)
    for persistent, processes in ((True, 2), (False, 6)):
        loader = make(dataset, persistent_workers=persistent)
        found = {it for _ in range(3) for pids, _ in loader for it in pids.tolist()}
        assert len(found) == processes
        next(iter(loader))  # left at once: what was under way is not the next epoch's
        loader.set_epoch(5)
        loader.return_index = True
        assert [n for *_, ids in loader for n in ids.tolist()] == loader.order(5).tolist()
        loader.close()
        assert not multiprocessing.active_children()


def test_iterators_of_one_loader_do_not_mix_even_if_workers_persist(images):
    expected = epochs(make(images, num_workers=0))
    loader = make(images, persistent_workers=True)
    pairs = list(itertools.zip_longest(loader, loader))
    assert same([[list(pair[at]) for pair in pairs] for at in (0, 1)], expected)


# -- errors -------------------------------------------------------------------------------


def test_an_error_of_the_users_is_raised_in_its_turn_with_the_workers_traceback(folder):
    loader = make(forebay.FileFolder(folder, fail_at_16_kb), shuffle=False)
    iterator = iter(loader)
    with pytest.raises(KeyError) as caught:  # sample 3
        next(iterator)
    assert "in DataLoader worker process 0" in str(caught.value)
    assert "in fail_at_16_kb" in str(caught.value)
    del caught  # it refers to the iterator by way of this frame
    assert loader.state_dict()["batches"] == 0
    assert next(iterator)[0].tolist() == [1004, 1005, 1006, 1000]
    assert loader.state_dict()["batches"] == 2


def test_a_batch_that_cannot_be_sent_is_an_error(folder):
    loader = make(forebay.FileFolder(folder), collate_fn=lambda items: lambda: items)
    with pytest.raises(Exception, match=r"in DataLoader worker process[\s\S]*pickle") as caught:
        next(iter(loader))
    assert "lambda" in str(caught.value)
    del caught


def test_a_function_that_cannot_be_sent_to_a_spawned_worker_is_an_error(folder):
    dataset = forebay.FileFolder(folder, lambda raw: len(raw))
    baseline = census()
    with pytest.warns(UserWarning, match="pickle"), pytest.raises(Exception, match="pickle"):
        next(iter(make(dataset, multiprocessing_context="spawn")))
    assert wait_for(lambda: census()[0] <= baseline[0])


def test_a_worker_init_fn_that_fails_is_an_error(folder):
    def fail(worker):
        raise ZeroDivisionError("not today")

    with pytest.raises(ZeroDivisionError, match="not today"):
        list(make(forebay.FileFolder(folder, len), worker_init_fn=fail))


@pytest.fixture
def damaged(tmp_path):
    """Twelve images, two of which are none, and one that is gone."""
    root = image_folders(tmp_path / "d")
    paths = sorted(root.glob("*/*"))
    for number in (1, 6):
        paths[number].write_bytes(b"this is no image")
    dataset = forebay.ImageFolder(root, Noisy())
    paths[9].unlink()
    return dataset


def test_an_image_that_cannot_be_decoded_is_raised_by_name_and_the_rest_comes(damaged):
    iterator = iter(make(damaged, 1, shuffle=False, return_index=True))
    raised, came = [], []
    while True:
        try:
            came.append(next(iterator)[-1].item())
        except forebay.CorruptError as error:
            raised.append(str(error))
        except StopIteration:
            break
    assert came == [0, 2, 3, 4, 5, 7, 8, 10, 11]
    for number, message in zip((1, 6, 9), raised, strict=True):
        assert f"sample {number} (" in message
    assert "not an image" in raised[0]
    assert "No such file" in raised[2]


def test_bad_images_are_replaced_and_listed_as_in_the_users_thread(damaged):
    loaders = [
        make(damaged, return_index=True, on_error="replace", num_workers=workers)
        for workers in (0, 2)
    ]
    expected, found = map(epochs, loaders)
    assert same(found, expected)
    ours, theirs = (loader.stats() for loader in reversed(loaders))
    assert [entry["sample"] for entry in ours["bad_samples"]] == [1, 6, 9]
    assert ours["bad_samples"] == theirs["bad_samples"]
    assert ours["replaced_samples"] == theirs["replaced_samples"] == 6


def test_more_bad_images_than_allowed_are_an_error(damaged):
    loader = make(damaged, on_error="replace", max_bad_samples=2)
    with pytest.raises(forebay.ExhaustedError, match="raise max_bad_samples="):
        list(loader)


@pytest.mark.parametrize("transform", [None, len])
def test_a_failed_read_ends_neither_a_sampler_of_the_users_nor_the_epoch(tmp_path, transform):
    root = class_folders(tmp_path / "d")
    dataset = forebay.FileFolder(root, transform)
    (root / dataset.path(9)).unlink()
    more = {"shuffle": None, "seed": None, "prefetch_factor": 1, "return_index": True}
    iterator = iter(make(dataset, 1, num_workers=1, sampler=[9, 0, 2], **more))
    with pytest.raises(forebay.CorruptError, match=r"sample 9 \("):
        next(iterator)
    assert [batch[-1].item() for batch in iterator] == [0, 2]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_an_error_and_the_loader_works_again(folder, tmp_path, persistent):
    def die_once(raw):
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return len(raw)

    loader = make(forebay.FileFolder(folder, die_once), persistent_workers=persistent)
    iterator = iter(loader)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="worker"):
            list(iterator)
    del iterator
    loader.set_epoch(0)
    assert sum(len(batch) for batch, _ in loader) == 25


def test_a_transform_that_takes_too_long_is_torchs_timeout(folder):
    loader = make(forebay.FileFolder(folder, lambda raw: time.sleep(0.5)), timeout=1)
    iterator = iter(loader)
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(iterator)


# -- the end ------------------------------------------------------------------------------


def test_epochs_that_are_left_leave_no_process_and_no_descriptor(tmp_path):
    root = class_folders(tmp_path / "d", samples=60, size=20_000)
    dataset = forebay.FileFolder(root, len)
    list(make(dataset))
    baseline = census()
    for at in range(12):
        options = {"sampler": list(range(60)), "seed": None, "shuffle": None} if at % 2 else {}
        loader = make(dataset, persistent_workers=at % 3 == 0, **options)
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(at % 4)]
        assert len(multiprocessing.active_children()) == 2
        del iterator
        if at % 3:
            assert not multiprocessing.active_children()
    del loader, kept
    assert not multiprocessing.active_children()
    back_at(baseline)


def test_the_memory_between_processes_goes_with_them(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path / "d", samples=60, size=50_000), len)

    def files():
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return [link for link in links if os.path.islink(link) and "forebay" in os.readlink(link)]

    loader = make(dataset, 10)
    list(loader)
    assert not files()
    iterator = iter(loader)
    next(iterator)
    (file,) = files()
    for _ in iterator:
        # Four batches may be out: their slots are all that is ever written.
        assert os.stat(file).st_blocks * 512 < 4 * 10 * 60_000
    assert not files()


def test_an_interrupt_ends_the_wait_for_a_worker(folder):
    process = start(
        """
        from test_workers import *

        def wait(raw):
            os.write(1, b"waiting\\n")  # in one piece: two workers come here at once
            time.sleep(LONG)

        loader = make(forebay.FileFolder(sys.argv[1], wait), 1, timeout=0)
        try:
            next(iter(loader))
        except KeyboardInterrupt:
            print("interrupted")
        del loader
        assert wait_for(lambda: not multiprocessing.active_children())
        """,
        folder,
    )
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    # Not always last: the other worker may begin to wait only then.
    assert "interrupted" in out.splitlines(), err
    assert code == 0, err


@pytest.mark.parametrize("statement", ["", "sys.exit(3)", "raise ZeroDivisionError"])
def test_a_process_exits_while_its_workers_are_at_work(folder, statement):
    process = start(
        f"""
        from test_workers import *

        loaders = [
            make(forebay.FileFolder(sys.argv[1], process_of), persistent_workers=persistent)
            for persistent in (False, True)
        ]
        iterators = [iter(loader) for loader in loaders]
        print(*(next(iterator)[0][0].item() for iterator in iterators), flush=True)
        {statement}
        """,
        folder,
    )
    code, out, _ = finish(process)
    assert code == {"": 0, "sys.exit(3)": 3}.get(statement, 1)
    workers = out.split()
    assert len(workers) == 2
    assert wait_for(lambda: not any(os.path.exists(f"/proc/{worker}") for worker in workers))
