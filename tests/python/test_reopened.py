"""A dataset opened again by another process: numbers keep their meaning, or there is an error."""

import pickle
import subprocess
import sys

import forebay
import pytest
import torch
from data import class_folders, content
from processes import run_python


def add_file_and_list_again(root, name):
    """Another process lists the dataset after a file has come that is the first of all."""
    (root / "class0" / name).write_bytes(b"new")
    script = "import forebay, sys; print(len(forebay.FileFolder(sys.argv[1], refresh='always')))"
    subprocess.run([sys.executable, "-c", script, root], check=True, stdout=subprocess.PIPE)


def samples_of(dataset, **options):
    """Bytes and labels as torch's own loader gives them."""
    loader = torch.utils.data.DataLoader(dataset, 4, collate_fn=list, **options)
    return [(raw.numpy().tobytes(), label) for batch in loader for raw, label in batch]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_number_samples_as_their_parent_does(method, tmp_path):
    root = class_folders(tmp_path / "d", samples=6)
    dataset = forebay.FileFolder(root)
    expected = [(content(i, 1000 + i), i // 2) for i in range(6)]
    add_file_and_list_again(root, "!.bin")
    assert samples_of(dataset, num_workers=1, multiprocessing_context=method) == expected
    assert samples_of(dataset) == expected
    assert len(forebay.FileFolder(root)) == 7


def test_a_forked_process_keeps_its_parents_index_whatever_became_of_the_file(tmp_path):
    root = class_folders(tmp_path / "d", samples=6)
    dataset = forebay.FileFolder(root)
    expected = samples_of(dataset)
    for name in ("!.bin", "!!.bin", "!!!.bin"):
        add_file_and_list_again(root, name)
    assert samples_of(dataset, num_workers=1, multiprocessing_context="fork") == expected


def test_a_pickle_whose_numbers_mean_other_samples_by_now_is_an_error(tmp_path):
    root = class_folders(tmp_path / "d", samples=6)
    pickled = pickle.dumps(forebay.FileFolder(root))
    add_file_and_list_again(root, "!.bin")
    add_file_and_list_again(root, "!!.bin")  # not even the index before is the one of then
    with pytest.raises(forebay.Error, match=r"samples have other numbers .*hint: .*open it anew"):
        len(pickle.loads(pickled))


def test_a_pickle_of_a_pickle_is_compared_as_well(tmp_path):
    root = class_folders(tmp_path / "d", samples=6)
    pickled = pickle.dumps(pickle.loads(pickle.dumps(forebay.FileFolder(root))))
    add_file_and_list_again(root, "!.bin")
    assert len(pickle.loads(pickled)) == 6
    add_file_and_list_again(root, "!!.bin")
    with pytest.raises(forebay.Error, match="samples have other numbers"):
        len(pickle.loads(pickled))


def test_an_index_that_is_cut_while_it_is_used_kills_no_process(tmp_path):
    root = tmp_path / "d" / "a"
    root.mkdir(parents=True)
    for number in range(2000):
        (root / f"{number:060}.bin").write_bytes(b"1")
    said = run_python(
        """
        import forebay, pathlib
        root, index = sys.argv[1:]
        for opened in range(2):  # once listed, once found
            dataset = forebay.FileFolder(root, index_dir=index, refresh="never")
            (file,) = pathlib.Path(index).glob("*.index")
            if opened:
                os.truncate(file, 4096)
            print(dataset.path(1999))
        """,
        tmp_path / "d",
        tmp_path / "index",
    )
    assert said.stdout.split() == [str(root / f"{1999:060}.bin")] * 2
