"""The ``forebay`` command as it is installed with the package."""

import json
import subprocess
import sys

import forebay
from data import image_folders


def forebay_command(*arguments):
    """Run the command as ``python -m forebay``; its output must be of use to a script."""
    command = [sys.executable, "-m", "forebay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_an_index_made_on_the_command_line_is_the_one_that_the_loader_opens(tmp_path):
    image_folders(tmp_path / "images")
    done = forebay_command("index", tmp_path / "images", "--images", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 12
    assert not forebay.ImageFolder(tmp_path / "images").native.report["built"]


def test_the_order_is_the_loaders(folder):
    loader = forebay.DataLoader(
        forebay.FileFolder(folder), 4, shuffle=True, seed=3, rank=1, world_size=2
    )
    done = forebay_command(
        *("order", "--samples", 25, "--seed", 3, "--epoch", 2, "--rank", 1, "--world-size", 2)
    )
    assert [int(line) for line in done.stdout.split()] == loader.order(2).tolist()


def test_a_state_is_shown_and_moved_on(folder, tmp_path):
    def make():
        dataset = forebay.FileFolder(folder)
        return forebay.DataLoader(dataset, 4, shuffle=True, seed=3, return_index=True)

    loader = make()
    next(iter(loader))
    path = tmp_path / "loader.json"
    path.write_text(json.dumps(loader.state_dict()))
    shown = forebay_command("state", "show", path)
    assert shown.returncode == 0, shown.stderr
    assert "epoch" in shown.stdout
    moved = forebay_command("state", "skip", path, "--batches", 2, "--batch-size", 4)
    assert moved.returncode == 0, moved.stderr
    resumed = make()
    resumed.load_state_dict(json.loads(path.read_text()))
    assert next(iter(resumed))[2].tolist() == loader.order(0)[12:16].tolist()


def test_a_failure_says_why_and_has_its_exit_code(tmp_path):
    done = forebay_command("inspect", tmp_path / "nowhere")
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "hint:" in done.stderr
    assert forebay_command("order").returncode == 2
    assert forebay.__version__ in forebay_command("--version").stdout
