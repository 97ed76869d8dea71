"""The disk cache's disk is full, read-only, deleted, no directory, or shared: training goes on."""

import os
import shutil
import subprocess
import threading
import time
import warnings

import forebay
import pytest
from data import class_folders, content, held_on_disk
from processes import LONG, finish, start

KIB = 1 << 10
MIB = 1 << 20
SAMPLES = 400
SIZE = 40_000
BATCH = 16

either_layout = pytest.mark.parametrize("layout", ["packed", "reorder"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """16 MB in files; nobody changes them."""
    root = tmp_path_factory.mktemp("files")
    yield class_folders(root, samples=SAMPLES, classes=2, size=SIZE)
    shutil.rmtree(root)


def make(folder, cache_dir, **more):
    """A loader that keeps samples in ``cache_dir``, and few of them in memory."""
    options = {"seed": 3, "shuffle": True, "memory": 6 * MIB, "timeout": LONG, **more}
    return forebay.DataLoader(
        forebay.FileFolder(folder), BATCH, return_index=True, cache_dir=cache_dir, **options
    )


def check(batch):
    """Fails unless a batch's bytes are its files'."""
    samples, _, ids = batch
    for sample, number in zip(samples, ids.tolist(), strict=True):
        assert sample.numpy().tobytes() == content(number, SIZE + number % 7), f"sample {number}"


def train(loader, epochs, meanwhile=None, each=lambda: None):
    """The RuntimeWarnings of whole epochs of right bytes.

    ``meanwhile`` is called once, in the first epoch; ``each`` after each batch.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for epoch in range(epochs):
            seen = 0
            for at, batch in enumerate(loader):
                check(batch)
                each()
                seen += len(batch[2])
                if meanwhile is not None and epoch == 0 and at == 8:
                    meanwhile()
            assert seen == SAMPLES
    return [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)]


class Du:
    """Asks ``du`` again and again what a directory takes."""

    def __init__(self, directory):
        self.most = self.looks = 0
        self._directory = directory
        self._one_at_a_time = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking)

    def look(self):
        """Asks once more."""
        command = ["du", "-s", "--block-size=1", self._directory]
        with self._one_at_a_time:
            said = subprocess.run(command, capture_output=True, text=True)
            if said.stdout:
                self.most = max(self.most, int(said.stdout.split()[0]))
                self.looks += 1

    def _keep_looking(self):
        while not self._ending.wait(0.002):
            self.look()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._thread.join()


@pytest.fixture
def disk(tmp_path):
    """A file system of 64 MiB of its own, and how to mount it anew with other options."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    image, point = tmp_path / "disk.img", tmp_path / "disk"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 * MIB)

    def command(*words):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")

    command("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
    command("mount", "-o", "loop,errors=remount-ro", image, point)
    try:
        yield point, lambda options: command("mount", "-o", f"remount,{options}", point)
    finally:
        # Lazily: a loader that a failed test has left open must not keep it.
        subprocess.run(["umount", "--lazy", str(point)], check=True)


def fill_up(directory):
    """Leaves no byte free on a directory's file system."""
    with open(os.path.join(directory, "ballast"), "wb", buffering=0) as file:
        for size in (MIB, 4 * KIB):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                pass


# -- full -----------------------------------------------------------------------------------


@either_layout
def test_a_disk_that_is_full_from_the_start_is_said_once_and_done_without(folder, disk, layout):
    point, _ = disk
    fill_up(point)
    loader = make(folder, point / "cache", layout=layout)
    said = train(loader, 3)
    loader.close()
    assert len(said) == 1, said
    assert str(point) in said[0]


@either_layout
def test_a_disk_that_fills_up_in_mid_epoch_holds_what_it_has(folder, disk, layout):
    point, _ = disk
    loader = make(folder, point / "cache", layout=layout)
    said = train(loader, 3, meanwhile=lambda: fill_up(point))
    figures = loader.stats()
    loader.close()
    assert len(said) <= 1, said
    assert figures["log"]["reads"] > 0, figures
    # The next runs read it too, and give nothing of it up: what it has was there first.
    for _ in range(2):
        held = figures["log"]["disk_bytes"]
        loader = make(folder, point / "cache", layout=layout)
        said = train(loader, 2)
        figures = loader.stats()
        loader.close()
        assert len(said) <= 1, said
        assert figures["log"]["reads"] > 0, figures
        if layout == "packed":
            assert figures["log"]["disk_bytes"] > held * 0.9, f"{held} before: {figures}"


@either_layout
def test_a_small_budget_is_never_passed_by_a_byte(folder, tmp_path, layout):
    for budget in (1 * MIB, 3 * MIB, 7 * MIB):
        cache = tmp_path / str(budget)
        cache.mkdir()
        with Du(cache) as du:
            loader = make(folder, cache, disk=budget, layout=layout)
            said = train(loader, 3, each=du.look)
            figures = loader.stats()["log"]
            loader.close()
        assert said == []
        assert du.looks > 20
        assert du.most <= budget, f"{du.most} bytes of {budget}"
        assert du.most > budget * 0.7, f"only {du.most} bytes of {budget}"
        assert figures["reads"] > 0


def test_a_budget_too_small_for_anything_is_said_once(folder, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    with Du(cache) as du:
        loader = make(folder, cache, disk=40 * KIB)
        said = train(loader, 2)
        loader.close()
    assert len(said) == 1, said
    assert du.most <= 40 * KIB


# -- damaged --------------------------------------------------------------------------------


def test_what_was_damaged_on_disk_is_read_from_the_origin_and_whole_again(folder, tmp_path):
    def run():
        loader = make(folder, tmp_path, disk="64MiB", layout="packed")
        assert train(loader, 1) == []
        figures = loader.stats()
        loader.close()
        return figures

    def fill():
        """Runs until all is on disk: a writer that is behind leaves samples out."""
        for _ in range(50):
            figures = run()
            if figures["origin_reads"] == 0:
                return figures
        raise AssertionError(f"the disk has not got all of it: {figures}")

    fill()
    for segment in tmp_path.glob("log/*/*.segment"):
        held = bytearray(segment.read_bytes())
        for place in range(5000, len(held), 200_000):
            held[place] ^= 1
        segment.write_bytes(held)
    figures = run()
    assert 40 <= figures["log"]["corrupt_samples"] <= SAMPLES
    assert figures["origin_reads"] >= 40
    assert fill()["log"]["corrupt_samples"] == 0


# -- not to be written to -------------------------------------------------------------------


@either_layout
def test_a_read_only_directory_without_a_log_is_said_once_and_done_without(folder, disk, layout):
    point, remount = disk
    remount("ro")
    loader = make(folder, point / "cache", layout=layout)
    said = train(loader, 3)
    loader.close()
    assert len(said) == 1, said
    assert str(point) in said[0]


@either_layout
def test_a_log_on_a_read_only_disk_is_read(folder, disk, layout):
    point, remount = disk
    cache = point / "cache"
    # A packed log's writer leaves samples out when it is behind: until all of them are there.
    while len(held_on_disk([cache], SAMPLES, SIZE)) < SAMPLES:
        loader = make(folder, cache, layout=layout)
        assert train(loader, 2) == []
        loader.close()
    remount("ro")
    loader = make(folder, cache, layout=layout)
    said = train(loader, 3)
    figures = loader.stats()
    loader.close()
    assert len(said) == 1, said
    assert figures["origin_reads"] == 0, figures
    assert figures["log"]["reads"] > 0, figures
    assert figures["log"]["writer"] is False


@either_layout
def test_a_disk_that_turns_read_only_in_mid_epoch_is_said_once(folder, disk, layout):
    point, _ = disk
    source = subprocess.run(["findmnt", "-no", "SOURCE", point], capture_output=True, text=True)
    trigger = f"/sys/fs/ext4/{os.path.basename(source.stdout.strip())}/trigger_fs_error"
    if not os.path.exists(trigger):
        pytest.skip(f"{trigger} is not there: ext4 cannot be told to find an error")

    def turn():
        # As the kernel does at an error of the disk: files stay open, but no byte is written.
        with open(trigger, "w") as file:
            file.write("a test")

    loader = make(folder, point / "cache", layout=layout)
    said = train(loader, 3, meanwhile=turn)
    loader.close()
    assert len(said) == 1, said
    assert str(point) in said[0]


# -- not there ------------------------------------------------------------------------------


@either_layout
def test_a_cache_directory_deleted_in_mid_epoch_is_said_once_and_done_without(
    folder, tmp_path, layout
):
    cache = tmp_path / "cache"
    loader = make(folder, cache, disk="64MiB", layout=layout)
    said = train(loader, 4, meanwhile=lambda: shutil.rmtree(cache))
    loader.close()
    assert len(said) == 1, said
    # The next run begins anew.
    loader = make(folder, cache, disk="64MiB", layout=layout)
    assert train(loader, 3) == []
    assert loader.stats()["log"]["reads"] > 0
    loader.close()


@either_layout
def test_a_cache_directory_deleted_between_epochs_is_said_once_and_done_without(
    folder, tmp_path, layout
):
    cache = tmp_path / "cache"
    loader = make(folder, cache, disk="8MiB", layout=layout)
    said = train(loader, 1)
    shutil.rmtree(cache)
    said += train(loader, 3)
    loader.close()
    assert len(said) == 1, said


@either_layout
def test_a_cache_dir_that_is_a_file_is_said_once_and_done_without(folder, tmp_path, layout):
    path = tmp_path / "cache"
    path.write_text("not a directory")
    loader = make(folder, path, layout=layout)
    said = train(loader, 3)
    loader.close()
    assert len(said) == 1, said
    assert str(path) in said[0]
    assert path.read_text() == "not a directory"


@either_layout
def test_one_of_several_directories_may_be_a_file(folder, tmp_path, layout):
    path = tmp_path / "file"
    path.write_text("not a directory")
    loader = make(folder, [path, tmp_path / "cache"], disk="64MiB", layout=layout)
    said = train(loader, 3)
    figures = loader.stats()["log"]
    loader.close()
    assert len(said) == 1, said
    assert str(path) in said[0]
    assert figures["reads"] > 0


# -- shared ---------------------------------------------------------------------------------

READER = """
import warnings
from test_disk_faults import check, make

folder, cache, pause, most = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
warnings.simplefilter("error")
loader = make(folder, cache, disk="64MiB", layout=sys.argv[5])
led = 0
for epoch in range(most):
    for at, batch in enumerate(loader):
        check(batch)
        time.sleep(pause)
        if at == 8:
            log = loader.stats()["log"]
            print(epoch, log["writer"], log["reads"], log["written_samples"], flush=True)
    led += loader.stats()["log"]["writer"]
    if led == 3:
        break
loader.close()
print("done", flush=True)
"""


@either_layout
def test_who_reads_takes_over_when_the_writer_is_killed_in_mid_epoch(folder, tmp_path, layout):
    cache = tmp_path / "cache"
    # Slow: it is in its first epoch for many seconds.
    writer = start(READER, folder, cache, 0.2, 100, layout)
    guard = threading.Timer(LONG, writer.kill)
    guard.start()
    try:
        first = writer.stdout.readline().split()
        assert first[:2] == ["0", "True"], (first, writer.poll())
        reader = start(READER, folder, cache, 0.01, 1000, layout)
        second_guard = threading.Timer(LONG, reader.kill)
        second_guard.start()
        line = reader.stdout.readline().split()
        assert line[:2] == ["0", "False"], (line, reader.poll())
        time.sleep(0.3)
        assert writer.poll() is None, "it ended by itself"
        writer.kill()
        code, out, err = finish(reader)
        second_guard.cancel()
    finally:
        guard.cancel()
        writer.kill()
        writer.communicate()
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert lines[-1] == ["done"]
    assert ["True"] in [line[1:2] for line in lines], out
    # What the killed one had written was read, and the rest was added.
    last = lines[-2]
    assert int(last[2]) > 0, out
    assert int(last[3]) > 0, out
