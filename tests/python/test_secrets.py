"""Keys and passwords are never shown: not in texts, errors, figures, states or index files."""

import json
from pathlib import Path

import forebay
import pytest
from buckets import load, objects_of
from servers import ACCESS_KEY, SECRET_KEY, free_ports, storage_options

PASSWORD = "pass-word-4711"
SIGNATURE = "sig-nature-4712"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files_beneath(folder: Path) -> bytes:
    """Names and contents of all files, as one."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files, "there is an index to look into"
    return b"".join(str(path).encode() + path.read_bytes() for path in files)


@pytest.mark.parametrize(
    "address", ["s3://{}/train", f"s3://me:{PASSWORD}@{{}}/train#x={SIGNATURE}"]
)
def test_keys_are_in_nothing_that_a_dataset_or_a_loader_shows(
    address, folder, bucket, s3, s3_client, cache, capfd
):
    name = bucket(objects_of(folder))
    options = storage_options(s3.endpoint)
    dataset = forebay.FileFolder(address.format(name), storage_options=options)
    s3_client.delete_object(Bucket=name, Key="train/class0/00001.bin")
    loader = load(dataset, on_error="replace")
    shown = [repr(dataset), str(dataset), repr(loader), dataset.path(0)]
    for _ in loader:
        shown += [json.dumps(loader.state_dict()), json.dumps(loader.stats())]
    with pytest.raises(forebay.CorruptError) as caught:
        dataset[1]
    shown += [str(caught.value), repr(caught.value), *capfd.readouterr()]
    shown.append(files_beneath(cache).decode(errors="replace"))
    assert f"s3://{name}/train" in shown[0], "what is no secret is shown"
    for secret in (SECRET_KEY, ACCESS_KEY, PASSWORD, SIGNATURE):
        assert not [text for text in shown if secret in text]


@pytest.mark.parametrize(
    "address",
    [
        f"s3://me:{PASSWORD}@bucket/train?x={SIGNATURE}",
        f"http://me:{PASSWORD}@127.0.0.1:9/train?x={SIGNATURE}",
        f"https://{PASSWORD}@host/train#x={SIGNATURE}",
        f"ftp://me:{PASSWORD}@host/train?x={SIGNATURE}",
        f"s3://me:{PASSWORD}@/train?x={SIGNATURE}",
        f"s3://me:{PASSWORD}@bu cket/train?x={SIGNATURE}",
    ],
)
def test_passwords_in_an_address_are_in_no_error(address, cache, capfd):
    endpoint = f"http://me:{PASSWORD}@127.0.0.1:{free_ports(1)[0]}"
    secret = {"secret_access_key": PASSWORD, "token": SIGNATURE}
    options = storage_options(endpoint, **secret) if address.startswith("s3") else {}
    for kind in (forebay.FileFolder, forebay.TarFolder):
        with pytest.raises(forebay.Error) as caught:
            kind(address, storage_options=options, read_options={"deadline": 0.5})
        shown = [str(caught.value), repr(caught.value), *capfd.readouterr()]
        for hidden in (PASSWORD, SIGNATURE):
            assert not [text for text in shown if hidden in text]


def test_an_option_that_is_refused_is_named_without_its_value(cache):
    with pytest.raises(forebay.InvalidError, match="acces_key") as caught:
        forebay.FileFolder("s3://bucket/train", storage_options={"acces_key": PASSWORD})
    assert PASSWORD not in str(caught.value)
    with pytest.raises(TypeError, match="'token'") as caught:
        forebay.FileFolder("s3://bucket/train", storage_options={"token": PASSWORD.encode()})
    assert PASSWORD not in str(caught.value)
