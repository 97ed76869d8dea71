"""Datasets in a bucket of a real S3 server: the same samples in the same order as on a disk."""

import json
import os

import forebay
import numpy as np
import pytest
import torch
from buckets import batches, in_bucket, load, objects_of
from data import class_folders, content, image_folders, tar_shards
from processes import run_python
from servers import ACCESS_KEY, REGION, SECRET_KEY, free_ports, storage_options


@pytest.fixture
def remote(folder, bucket, s3):
    """The 25 samples of ``folder`` in a bucket."""
    return in_bucket(bucket(objects_of(folder)), s3.endpoint)


def test_files_of_a_bucket_come_as_those_of_a_disk_do(folder, remote):
    local = forebay.FileFolder(folder)
    assert remote.classes == local.classes
    assert remote.targets == local.targets
    for options in ({}, {"shuffle": False}, {"rank": 1, "world_size": 2}, {"memory": "64KiB"}):
        assert list(batches(load(remote, **options))) == list(batches(load(local, **options)))
    for number in (0, 7, 24):
        assert remote[number][0].numpy().tobytes() == content(number, 1000 + number % 7)
        assert remote.path(number).startswith("s3://bucket-")


def test_the_environment_says_where_the_bucket_is_and_who_asks(
    folder, bucket, s3, monkeypatch, capfd
):
    name = bucket(objects_of(folder))
    for variable, value in {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(variable, value)
    found = forebay.FileFolder(f"s3://{name}/train")
    local = forebay.FileFolder(folder)
    assert list(batches(load(found))) == list(batches(load(local)))
    assert capfd.readouterr().err == ""


def test_storage_options_win_over_the_environment(folder, bucket, s3, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert len(in_bucket(bucket(objects_of(folder)), s3.endpoint)) == 25


def test_options_are_taken_by_their_long_names_too(folder, bucket, s3):
    short = storage_options(s3.endpoint)
    long = {name if name == "allow_http" else f"aws_{name}": short[name] for name in short}
    name = bucket(objects_of(folder))
    assert len(forebay.FileFolder(f"s3://{name}/train/", storage_options=long)) == 25


def test_an_http_endpoint_must_be_allowed_by_name(s3):
    options = storage_options(s3.endpoint)
    del options["allow_http"]
    with pytest.raises(forebay.InvalidError, match='"allow_http": set it to "true"'):
        forebay.FileFolder("s3://any/train", storage_options=options)


def test_images_of_a_bucket_come_as_those_of_a_disk_do(tmp_path, bucket, s3):
    root = image_folders(tmp_path / "images")
    name = bucket(objects_of(root))
    options = storage_options(s3.endpoint)
    there = forebay.ImageFolder(f"s3://{name}/train", np.array, storage_options=options)
    here = forebay.ImageFolder(root, np.array)
    assert there.classes == here.classes
    for (x, a), (y, b) in zip(
        forebay.DataLoader(there, 5, shuffle=True, seed=1),
        forebay.DataLoader(here, 5, shuffle=True, seed=1),
        strict=True,
    ):
        assert torch.equal(x, y)
        assert torch.equal(a, b)


def test_shards_of_a_bucket_are_read_by_range_and_neighbours_together(tmp_path, bucket, s3):
    expected = tar_shards(tmp_path / "tar")
    name = bucket(objects_of(tmp_path / "tar", "shards"))
    options = storage_options(s3.endpoint)
    for pattern in ("shards", "shards/train-{0000..0002}.tar"):
        dataset = forebay.TarFolder(f"s3://{name}/{pattern}", storage_options=options)
        assert [dataset[i] for i in range(len(dataset))] == expected
    keys = []
    for batch in forebay.DataLoader(dataset, 4, shuffle=True, seed=2):
        for at, key in enumerate(batch["__key__"]):
            sample = next(sample for sample in expected if sample["__key__"] == key)
            assert batch["jpg"][at].numpy().tobytes() == sample["jpg"]
            keys.append(key)
    assert sorted(keys) == sorted(sample["__key__"] for sample in expected)


def test_shards_of_a_bucket_may_be_named_in_a_list(tmp_path, bucket, s3):
    expected = tar_shards(tmp_path / "tar")
    name = bucket(objects_of(tmp_path / "tar", "shards"))
    urls = [f"s3://{name}/shards/train-{number:04}.tar" for number in (2, 0)]
    dataset = forebay.TarFolder(urls, storage_options=storage_options(s3.endpoint))
    assert [dataset[i] for i in range(len(dataset))] == expected[10:] + expected[:5]


def test_a_prefix_that_matches_nothing_is_named(folder, bucket, s3):
    name = bucket(objects_of(folder))
    says = rf"s3://{name}/Train: no object has a name that begins so; hint: .*upper and lower case"
    for kind in (forebay.FileFolder, forebay.ImageFolder, forebay.TarFolder):
        with pytest.raises(forebay.InvalidError, match=says):
            kind(f"s3://{name}/Train", storage_options=storage_options(s3.endpoint))


def test_without_credentials_that_is_said_and_no_address_is_asked(monkeypatch):
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    with pytest.raises(forebay.InvalidError, match=r"no credentials were given; hint: .*SKIP_SIGN"):
        forebay.FileFolder("s3://a-bucket/train", read_options={"deadline": 1e9})


def test_a_machines_role_is_asked_for_where_that_is_said(s3, monkeypatch):
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    (port,) = free_ports(1)  # where nobody listens
    told = {
        "endpoint": s3.endpoint,
        "allow_http": "true",
        "metadata_endpoint": f"http://127.0.0.1:{port}",
    }
    with pytest.raises(forebay.Error) as caught:
        forebay.FileFolder("s3://x/train", storage_options=told, read_options={"deadline": 1})
    assert "no credentials were given" not in str(caught.value)


def test_neighbours_in_a_shard_share_a_request(tmp_path, bucket, faulty_proxy):
    tar_shards(tmp_path / "tar")
    name = bucket(objects_of(tmp_path / "tar", "shards"))
    proxy = faulty_proxy()
    options = storage_options(proxy.endpoint)
    dataset = forebay.TarFolder(f"s3://{name}/shards", storage_options=options)
    before = proxy.counts()["requests"]["GET"]
    assert sum(len(b["__key__"]) for b in forebay.DataLoader(dataset, 5)) == 15
    assert proxy.counts()["requests"]["GET"] - before < 15


def test_a_manifest_lies_in_the_bucket_or_on_the_disk(tmp_path, folder, bucket, s3):
    text = "path,label\nclass1/00000.bin,7\nclass0/00001.bin,2\n"
    (tmp_path / "local.csv").write_text(text)
    name = bucket({**objects_of(folder), "train/inside.csv": text.encode()})
    for manifest in ("inside.csv", f"s3://{name}/train/inside.csv", tmp_path / "local.csv"):
        dataset = forebay.Files(
            f"s3://{name}/train", manifest, storage_options=storage_options(s3.endpoint)
        )
        assert [dataset[i][1] for i in range(2)] == [7, 2]
        assert dataset[1][0].numpy().tobytes() == content(1, 1001)


def test_the_second_epoch_asks_the_server_for_nothing(folder, bucket, faulty_proxy):
    proxy = faulty_proxy()
    loader = load(in_bucket(bucket(objects_of(folder)), proxy.endpoint))
    first = sorted(sample for batch in batches(loader) for sample in batch)
    asked = proxy.counts()["requests"]
    assert asked["GET"] == 25 + 1, "one request a sample, and the listing"
    for _ in range(2):
        assert sorted(sample for batch in batches(loader) for sample in batch) == first
    assert proxy.counts()["requests"] == asked
    assert loader.stats()["origin_reads"] == 25


def test_a_second_process_uses_the_index_and_does_not_list(folder, bucket, faulty_proxy):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy()
    in_bucket(name, proxy.endpoint)
    asked = proxy.counts()["requests"]
    assert not in_bucket(name, proxy.endpoint).native.report["built"]
    assert proxy.counts()["requests"] == asked


def test_many_small_objects_come_in_random_order_with_many_requests_at_once(
    tmp_path, bucket, faulty_proxy
):
    root = class_folders(tmp_path / "many", samples=500, classes=5, size=300)
    name = bucket(objects_of(root))
    proxy = faulty_proxy(delay_ms=100)
    loader = load(in_bucket(name, proxy.endpoint), 32)
    found = {n: data for batch in batches(loader) for n, _, data in batch}
    assert found == {n: content(n, 300 + n % 7) for n in range(500)}
    assert proxy.counts()["max_in_flight"] > 16


def test_no_more_requests_are_in_flight_than_allowed(folder, bucket, faulty_proxy):
    proxy = faulty_proxy(delay_ms=20)
    name = bucket(objects_of(folder))
    dataset = in_bucket(name, proxy.endpoint, read_options={"requests_in_flight": 3})
    assert sum(len(batch) for batch in batches(load(dataset))) == 25
    assert proxy.counts()["max_in_flight"] <= 3


def test_a_resume_in_mid_epoch_reads_only_what_is_left(folder, bucket, faulty_proxy):
    proxy = faulty_proxy()
    name = bucket(objects_of(folder))
    dataset = in_bucket(name, proxy.endpoint)
    whole = list(batches(load(dataset)))
    loader = load(dataset)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    del iterator
    loader.close()
    resumed = load(dataset, memory="1MiB")
    resumed.load_state_dict(state)
    assert list(batches(resumed)) == whole[3:]
    assert resumed.stats()["samples"] == 25 - 3 * 4


def test_a_dataset_in_a_bucket_works_in_torchs_own_workers(remote):
    remote[0]  # the parent has connections and threads that a child must not use
    loader = torch.utils.data.DataLoader(
        remote, 4, num_workers=2, collate_fn=list, multiprocessing_context="fork"
    )
    data = [sample.numpy().tobytes() for batch in loader for sample, _ in batch]
    assert data == [content(number, 1000 + number % 7) for number in range(25)]


def test_a_process_may_end_with_requests_in_flight(folder, bucket, faulty_proxy):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy("path=class1/,stall=0", "path=class2/,stall=0")
    done = run_python(
        """
        import sys
        from buckets import in_bucket, load
        dataset = in_bucket(*sys.argv[1:], read_options={"deadline": 3600})
        loader = load(dataset, shuffle=False)
        iterator = iter(loader)
        print(next(iterator)[2].tolist())
        """,
        name,
        proxy.endpoint,
    )
    assert done.stdout == "[0, 1, 2, 3]\n"
    assert proxy.counts()["faults"] > 0, "requests were in flight"


def test_a_loader_may_be_given_up_with_requests_in_flight(folder, bucket, faulty_proxy):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy("path=class2/,stall=0")
    dataset = in_bucket(name, proxy.endpoint, read_options={"deadline": 3600})
    for _ in range(5):
        loader = load(dataset, shuffle=False)
        assert next(iter(loader))[2].tolist() == [0, 1, 2, 3]
        loader.close()
    proxy.set()
    assert sum(len(batch) for batch in batches(load(dataset))) == 25
