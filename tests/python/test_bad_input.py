"""What is wrong with a dataset is said: the kind of error, the path, and what to do."""

import gzip
import os
import re

import forebay
import pytest
import torchvision
from data import class_folders, content, image_folders, tar_shards
from processes import run_python

UNTOUCHED = 10**9  # seconds since 1970: a directory changed this very moment is not trusted


def settled_folders(root):
    """Class folders whose index need not be built again."""
    class_folders(root, samples=6)
    for path in (root, *root.iterdir()):
        os.utime(path, (UNTOUCHED, UNTOUCHED))
    return root


def index_file(cache):
    (found,) = (cache / "index").glob("*.index")
    return found


def read_all(dataset, **options):
    """The samples' numbers and bytes, in the order of a loader."""
    loader = forebay.DataLoader(dataset, 4, return_index=True, **options)
    return [
        (number, sample.numpy().tobytes())
        for samples, _, ids in loader
        for number, sample in zip(ids.tolist(), samples, strict=True)
    ]


def whole(samples=6, size=1000):
    return [(number, content(number, size + number % 7)) for number in range(samples)]


# -- the root ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [forebay.FileFolder, forebay.ImageFolder, forebay.TarFolder])
def test_a_missing_root_is_named(kind, tmp_path):
    with pytest.raises(forebay.InvalidError) as caught:
        kind(tmp_path / "nowhere")
    message = str(caught.value)
    assert str(tmp_path / "nowhere") in message
    assert "hint: check the path" in message or kind is forebay.TarFolder


def test_a_root_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(
        forebay.InvalidError, match=r"/file is a file, not a directory.*hint: check the path"
    ):
        forebay.FileFolder(tmp_path / "file")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "an address is needed"),
        ("ftp://host/x", "ftp:// is not known; use a path, file://, s3://"),
        ("s3:///train", "no bucket or host"),
        ("http://host/x?page=2", "queries in an address are not used"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused(address, says):
    with pytest.raises(forebay.InvalidError, match=re.escape(says)):
        forebay.FileFolder(address)


def test_a_root_without_class_folders_is_refused_in_torchvisions_words(tmp_path):
    (tmp_path / "lonely.jpg").write_bytes(b"x")
    with pytest.raises(FileNotFoundError) as theirs:
        torchvision.datasets.ImageFolder(str(tmp_path))
    for kind in (forebay.FileFolder, forebay.ImageFolder):
        with pytest.raises(forebay.InvalidError) as ours:
            kind(tmp_path)
        assert str(theirs.value) in str(ours.value)
        assert "hint: each class is a folder" in str(ours.value)


def test_an_empty_class_folder_is_named_in_torchvisions_words_unless_allowed(tmp_path):
    root = image_folders(tmp_path / "d")
    (root / "void").mkdir()
    (root / "texts").mkdir()
    (root / "texts" / "readme.txt").write_bytes(b"x")
    with pytest.raises(FileNotFoundError) as theirs:
        torchvision.datasets.ImageFolder(str(root))
    with pytest.raises(forebay.InvalidError) as ours:
        forebay.ImageFolder(root)
    assert str(theirs.value) in str(ours.value)
    assert "allow_empty=True" in str(ours.value)
    allowed = forebay.ImageFolder(root, allow_empty=True)
    expected = torchvision.datasets.ImageFolder(str(root), allow_empty=True)
    assert allowed.samples == expected.samples
    assert allowed.classes == expected.classes


def test_folders_that_are_all_empty_give_no_batch_if_allowed(tmp_path):
    (tmp_path / "void").mkdir()
    dataset = forebay.FileFolder(tmp_path, allow_empty=True)
    assert len(dataset) == 0
    assert list(forebay.DataLoader(dataset)) == []


def test_a_rule_in_python_for_a_bucket_is_refused():
    with pytest.raises(forebay.InvalidError, match="is_valid_file= is asked about local files"):
        forebay.ImageFolder("s3://bucket/train", is_valid_file=bool)


# -- options ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"refresh": "daily"}, ValueError, "'auto', 'always' or 'never'"),
        ({"read_options": {"patience": 3}}, ValueError, "patience"),
        ({"read_options": {"deadline": -1}}, ValueError, "deadline=-1"),
        ({"read_options": {"deadline": float("nan")}}, ValueError, "deadline=NaN"),
        ({"storage_options": {"allow_http": True}}, TypeError, "'allow_http'.*as a text"),
    ],
)
def test_an_option_that_cannot_be_is_named(options, kind, says, folder):
    with pytest.raises(kind, match=says):
        forebay.FileFolder(folder, **options)


def test_a_deadline_of_for_ever_is_fine(folder):
    assert len(forebay.FileFolder(folder, read_options={"deadline": 1e300})) == 25


def test_an_unknown_storage_option_is_named():
    with pytest.raises(forebay.InvalidError, match='storage option "acces_key"'):
        forebay.FileFolder("s3://bucket/train", storage_options={"acces_key": "x"})


# -- the index --------------------------------------------------------------------------


def corruptions(good):
    """An index with a flipped bit here and there, and cut off here and there."""
    for at in (0, 8, len(good) // 5, len(good) // 2, len(good) - 1):
        flipped = bytearray(good)
        flipped[at] ^= 0x10
        yield bytes(flipped)
    for length in (0, 7, len(good) // 2, len(good) - 1):
        yield good[:length]


def test_a_corrupt_index_is_built_anew_and_that_is_said(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path / "cache"))
    root = settled_folders(tmp_path / "d")
    forebay.FileFolder(root)
    path = index_file(tmp_path / "cache")
    good = path.read_bytes()
    assert capfd.readouterr().err == "", "nothing is said of an index that is well"
    for bad in corruptions(good):
        path.write_bytes(bad)
        assert read_all(forebay.FileFolder(root)) == whole()
        said = capfd.readouterr().err
        assert str(path) in said
        assert re.search("corrupt|checksum|version", said)
        assert re.search("rebuilt|built anew|built again", said), said
        assert path.read_bytes() == good


def test_a_cache_that_cannot_be_written_costs_only_a_warning(tmp_path, monkeypatch, capfd):
    root = settled_folders(tmp_path / "d")
    (tmp_path / "file").write_bytes(b"x")
    for cache in (tmp_path / "file", "/proc/nothing"):
        monkeypatch.setenv("FOREBAY_CACHE", str(cache))
        assert read_all(forebay.FileFolder(root)) == whole()
        said = capfd.readouterr().err
        assert f"index cannot be kept in {cache}" in said
        images = forebay.ImageFolder(root, is_valid_file=lambda path: path.endswith(".bin"))
        assert len(images) == 6
        assert f"manifest cannot be kept in {cache}" in capfd.readouterr().err


def test_a_full_cache_disk_costs_only_a_warning(tmp_path):
    # A limit on the size of files stands for the full disk.
    root = settled_folders(tmp_path / "d")
    done = run_python(
        """
        import resource, sys
        import forebay
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
        dataset = forebay.FileFolder(sys.argv[1])
        print(sum(len(samples) for samples, _ in forebay.DataLoader(dataset, 4)))
        """,
        root,
    )
    assert done.stdout.split() == ["6"]
    assert "index cannot be kept in" in done.stderr
    assert "File too large" in done.stderr


# -- files that changed -----------------------------------------------------------------


def to_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda path: path.write_bytes(b"x" * 10), forebay.CorruptError, "10 bytes.* 1001.*hint"),
        (lambda path: path.write_bytes(b""), forebay.CorruptError, "0 bytes.* 1001.*hint"),
        (lambda path: path.write_bytes(b"x" * 5000), forebay.CorruptError, "5000.* 1001.*hint"),
        (lambda path: path.unlink(), forebay.CorruptError, "No such file.*hint.*forebay index"),
        (to_folder, forebay.InvalidError, "Is a directory"),
    ],
    ids=["truncated", "emptied", "grown", "deleted", "a-folder"],
)
def test_a_file_that_changed_after_indexing_is_named_with_what_is_wrong(
    change, kind, says, tmp_path
):
    root = class_folders(tmp_path / "d", samples=6)
    dataset = forebay.FileFolder(root)
    change(root / "class0" / "00001.bin")
    for read in (read_all, lambda dataset: dataset[1]):
        with pytest.raises(kind, match=says) as caught:
            read(dataset)
        assert "sample 1 (class0/00001.bin)" in str(caught.value)
    assert dataset[0][0].numpy().tobytes() == content(0, 1000), "the others can still be read"


def test_a_link_that_leads_nowhere_fails_when_it_is_read(tmp_path):
    root = class_folders(tmp_path / "d", samples=6)
    (root / "class1" / "zzz.bin").symlink_to("nowhere")
    dataset = forebay.FileFolder(root)
    with pytest.raises(forebay.CorruptError, match=r"sample 4 \(class1/zzz.bin\).*No such file"):
        read_all(dataset)


def test_a_file_that_may_not_be_read_is_named_with_a_hint(tmp_path):
    root = class_folders(tmp_path / "d", samples=6)
    (root / "class0" / "00001.bin").chmod(0)
    done = run_python(
        """
        import os, sys
        import forebay
        dataset = forebay.FileFolder(sys.argv[1])
        if os.geteuid() == 0:
            os.setuid(65534)  # root may read everything
        try:
            list(forebay.DataLoader(dataset, 4))
        except forebay.InvalidError as error:
            print(error)
        """,
        root,
    )
    assert "sample 1 (class0/00001.bin)" in done.stdout
    assert "Permission denied" in done.stdout
    assert "hint: give this user the right to read it" in done.stdout


def test_a_damaged_image_is_named_with_its_path(tmp_path):
    root = image_folders(tmp_path / "d")
    first, second = sorted((root / "class0").iterdir())[:2]
    first.write_bytes(b"this is no image")
    second.write_bytes(second.read_bytes()[:150])
    dataset = forebay.ImageFolder(root)
    for number, path in enumerate((first, second)):
        says = rf"sample {number} \({re.escape(str(path))}\) is not an image"
        with pytest.raises(forebay.CorruptError, match=says) as caught:
            dataset[number]
        assert "BytesIO" not in str(caught.value)
        loader = forebay.DataLoader(dataset, sampler=[number], collate_fn=list)
        with pytest.raises(forebay.CorruptError, match=says):
            list(loader)


# -- archives ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", [100, 700, 3000])
def test_a_truncated_archive_is_named_with_the_place(length, tmp_path):
    tar_shards(tmp_path)
    shard = tmp_path / "train-0001.tar"
    shard.write_bytes(shard.read_bytes()[:length])
    says = rf"train-0001.tar, offset \d+: archive of {length} bytes is cut off.*hint: the archive"
    with pytest.raises(forebay.CorruptError, match=says):
        forebay.TarFolder(tmp_path)


def test_compressed_archives_are_refused_with_what_to_do(tmp_path):
    tar_shards(tmp_path)
    shard = tmp_path / "train-0001.tar"
    packed = gzip.compress(shard.read_bytes())
    (tmp_path / "packed.tar.gz").write_bytes(packed)
    with pytest.raises(forebay.InvalidError, match=r"packed.tar.gz: compressed.*unpack them"):
        forebay.TarFolder(tmp_path / "packed.tar.gz")
    shard.write_bytes(packed)
    with pytest.raises(forebay.CorruptError, match=r"train-0001.tar, offset 0: not a tar header"):
        forebay.TarFolder(tmp_path)


def test_an_archive_that_changed_after_indexing_is_named(tmp_path):
    tar_shards(tmp_path)
    dataset = forebay.TarFolder(tmp_path)
    shard = tmp_path / "train-0001.tar"
    shard.write_bytes(shard.read_bytes()[:4000])
    with pytest.raises(forebay.CorruptError, match=r"sample 5 \(train-0001.tar.*changed.*hint"):
        list(forebay.DataLoader(dataset, 2))


@pytest.mark.parametrize(
    ("pattern", "says"),
    [("train-{0000..0004}.tar", "train-0003.tar"), ("train-{0000..x}.tar", "not a range of")],
)
def test_a_pattern_of_shards_that_are_not_there_is_refused(pattern, says, tmp_path):
    tar_shards(tmp_path)
    with pytest.raises(forebay.Error, match=says) as caught:
        forebay.TarFolder(tmp_path / pattern)
    assert "forebay index" not in str(caught.value), "which would not help"


def test_a_folder_without_archives_is_refused(folder):
    with pytest.raises(forebay.InvalidError, match=r"no \*.tar file in it"):
        forebay.TarFolder(folder)


# -- manifests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: manifest is empty"),
        ("path,label\n", "line 1: manifest names no file"),
        ("file,label\na,1\n", 'line 1: the header has no column "path" .found file, label'),
        ("path,label\nclass0/00000.bin,1\n,2\n", "line 3: path is empty"),
        ("path,label\nclass0/00000.bin,1,2\n", "line 2: .*3 fields"),
        ("path,label\nclass0/00000.bin,1\nclass0/none.bin,2\n", "line 3: class0/none.bin: no such"),
        ("path,label\nclass0/00000.bin,-5\n", "line 2: a label is at least 0"),
        ("path,offset,length\nclass0/00000.bin,x,2\n", 'line 2: offset "x" is not a whole number'),
        ("path,offset,length\nclass0/00000.bin,9,2000\n", "line 2: class0/00000.bin has 1000"),
        ('{"path": "class0/00000.bin"}\n{"path": ', "line 2: "),
        ('{"path": "class0/00000.bin"}\n{"label": 3}', "line 2: missing field `path`"),
    ],
)
def test_a_mistake_in_a_manifest_is_told_with_its_line(text, says, folder, tmp_path):
    manifest = tmp_path / "train.csv"
    manifest.write_text(text)
    with pytest.raises(forebay.InvalidError, match=rf"{re.escape(str(manifest))}, {says}"):
        forebay.Files(folder, manifest=manifest)


def test_a_manifest_that_is_not_there_is_named(folder, tmp_path):
    with pytest.raises(forebay.Error, match=r"none.csv: No such file") as caught:
        forebay.Files(folder, manifest=tmp_path / "none.csv")
    assert "forebay index" not in str(caught.value), "which would not help"


@pytest.mark.parametrize("path", ["../secret.txt", "class0/../../secret.txt", "{outside}"])
def test_a_manifest_names_files_outside_of_its_dataset_only_if_it_may(path, tmp_path):
    root = class_folders(tmp_path / "d", samples=6)
    outside = tmp_path / "secret.txt"
    outside.write_bytes(b"secret")
    manifest = tmp_path / "train.csv"
    path = path.format(outside=outside)
    manifest.write_text(f"path,label\nclass0/00000.bin,1\n{path},2\n")
    for _ in range(2):
        with pytest.raises(
            forebay.InvalidError,
            match=rf"train.csv, line 3: {re.escape(path)} is absolute .*hint: pass allow_outside=",
        ):
            forebay.Files(root, manifest)
        # The index that this leaves behind allows nothing to those who do not ask for it.
        dataset = forebay.Files(root, manifest, allow_outside=True)
        assert dataset[1][0].numpy().tobytes() == b"secret"


def test_names_with_dots_are_inside_of_a_dataset(tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("..a", "b..", "c..d"):
        (tmp_path / "d" / name).write_bytes(name.encode())
    (tmp_path / "m.csv").write_text("path\n..a\nb..\n./c..d\n")
    dataset = forebay.Files(tmp_path / "d", tmp_path / "m.csv")
    assert [dataset[i][0].numpy().tobytes() for i in range(3)] == [b"..a", b"b..", b"c..d"]
