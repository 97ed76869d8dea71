"""What a bucket, a server or the network does wrong is healed, or said within the deadline."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import forebay
import pytest
from buckets import batches, in_bucket, load, objects_of
from servers import SECRET_KEY, free_ports, storage_options

# A deadline that is kept ends far below this; one that is not ends at a minute or never.
FAR_BEYOND = 30
CHANGED = "class1/00002.bin"  # sample 11


@pytest.fixture
def expected(folder):
    """What an epoch gives from the disk."""
    return list(batches(load(forebay.FileFolder(folder))))


def fails_in_time(kind, says, action):
    started = time.monotonic()
    with pytest.raises(kind, match=says) as caught:
        action()
    assert time.monotonic() - started < FAR_BEYOND
    return str(caught.value)


# -- healed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        ["every=3,status=503"],
        ["every=4,status=500", "every=3,status=429"],
        ["each=1,status=503,retry-after=1"],
        ["share=0.3,seed=1,truncate=300"],
        ["each=2,truncate=0"],
        ["every=4,drop"],
        ["each=1,drop"],
        ["share=0.1,seed=2,drop", "share=0.2,seed=3,truncate=500", "share=0.1,seed=4,status=502"],
    ],
    ids=lambda rules: "+".join(rules),
)
def test_refusals_broken_bodies_and_lost_connections_are_healed(
    rules, folder, expected, bucket, faulty_proxy
):
    proxy = faulty_proxy(*rules)
    dataset = in_bucket(bucket(objects_of(folder)), proxy.endpoint)
    assert list(batches(load(dataset))) == expected
    assert proxy.counts()["faults"] > 0


def test_a_retry_after_is_waited_for(folder, expected, bucket, faulty_proxy):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy()
    dataset = in_bucket(name, proxy.endpoint)
    proxy.set(f"path={CHANGED},first=1,status=503,retry-after=2")
    started = time.monotonic()
    assert list(batches(load(dataset))) == expected
    assert time.monotonic() - started >= 2


def test_a_body_that_stalls_is_asked_for_again(folder, expected, bucket, faulty_proxy):
    proxy = faulty_proxy(f"path={CHANGED},first=1,stall=300")
    name = bucket(objects_of(folder))
    dataset = in_bucket(name, proxy.endpoint, read_options={"deadline": 12})
    assert list(batches(load(dataset))) == expected
    assert proxy.counts()["faults"] == 1


def test_a_hedged_request_overtakes_one_that_stalls(folder, expected, bucket, faulty_proxy):
    proxy = faulty_proxy(f"path={CHANGED},first=1,stall=300")
    name = bucket(objects_of(folder))
    options = {"deadline": 3600, "hedge_after": 0.3}
    dataset = in_bucket(name, proxy.endpoint, read_options=options)
    started = time.monotonic()
    assert list(batches(load(dataset))) == expected
    assert time.monotonic() - started < FAR_BEYOND, "the stalled one was not waited for"


# -- not healed: said within the deadline -----------------------------------------------


def test_an_endpoint_that_is_down_fails_within_its_deadline(folder):
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    message = fails_in_time(
        forebay.UnavailableError,
        "s3://any/train: no answer within the deadline of 1s",
        lambda: in_bucket("any", endpoint, read_options={"deadline": 1}),
    )
    assert "hint: check that the endpoint can be reached" in message


def test_an_endpoint_that_goes_down_fails_within_its_deadline(folder, bucket, faulty_proxy):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy()
    dataset = in_bucket(name, proxy.endpoint, read_options={"deadline": 1})
    proxy.close()
    for on_error in ("raise", "replace"):
        loader = load(dataset, on_error=on_error)
        fails_in_time(
            forebay.UnavailableError,
            r"sample \d+ .*no answer within the deadline of 1s",
            lambda loader=loader: list(loader),
        )
        assert loader.stats()["bad_samples"] == [], "the road is bad, not the sample"
    fails_in_time(forebay.UnavailableError, "sample 3", lambda: dataset[3])


def test_faults_that_do_not_pass_fail_within_the_deadline(folder, bucket, faulty_proxy):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy()
    dataset = in_bucket(name, proxy.endpoint, read_options={"deadline": 4})
    faults = {3: "stall=0", 7: "status=503", 11: "drop", 20: "truncate=0"}
    paths = {number: dataset.path(number).partition("/train/")[2] for number in faults}
    proxy.set(*(f"path={paths[number]},{fault}" for number, fault in faults.items()))

    def fail(number):
        loader = load(dataset, sampler=[number], shuffle=None, seed=None)
        says = rf"sample {number} .*deadline of 4s.*hint: check that the endpoint"
        message = fails_in_time(forebay.UnavailableError, says, lambda: list(loader))
        assert paths[number] in message
        return loader

    with ThreadPoolExecutor(len(faults)) as pool:
        loaders = list(pool.map(fail, faults))
    proxy.set()
    for loader in loaders:
        assert len(list(loader)) == 1, "the loader is as good as new"


# -- who may, and where -----------------------------------------------------------------


def test_a_bucket_that_is_not_there_is_said_so(s3):
    says = "bucket of s3://no-such-bucket/train does not exist; hint: check the bucket's name"
    with pytest.raises(forebay.InvalidError, match=re.escape(says)):
        in_bucket("no-such-bucket", s3.endpoint)


@pytest.mark.parametrize(
    "wrong", [{"secret_access_key": "hunter2-secret"}, {"access_key_id": "hunter2-key"}]
)
def test_wrong_credentials_name_what_to_set_and_never_tell_them(wrong, folder, bucket, s3, capfd):
    name = bucket(objects_of(folder))
    with pytest.raises(forebay.InvalidError) as caught:
        forebay.FileFolder(
            f"s3://{name}/train", storage_options=storage_options(s3.endpoint, **wrong)
        )
    message = str(caught.value)
    assert f"s3://{name}/train: access denied" in message
    assert "403" in message
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in message
    for secret in ("hunter2", SECRET_KEY):
        assert secret not in message + repr(caught.value) + capfd.readouterr().err


@pytest.mark.parametrize("on_error", ["raise", "replace"])
def test_credentials_that_expire_are_said_not_taken_for_bad_samples(
    on_error, folder, bucket, faulty_proxy
):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy()
    dataset = in_bucket(name, proxy.endpoint)
    proxy.set("status=403")
    loader = load(dataset, on_error=on_error)
    with pytest.raises(forebay.InvalidError, match=r"access denied.*hint: set storage_options="):
        list(loader)
    assert loader.stats()["bad_samples"] == []


def test_an_empty_prefix_is_said_so(bucket, s3):
    name = bucket({"other/x": b"1"})
    options = storage_options(s3.endpoint)
    for kind in (forebay.ImageFolder, forebay.TarFolder):
        nothing = rf"s3://{name}/train: no object has a name that begins so"
        with pytest.raises(forebay.InvalidError, match=nothing):
            kind(f"s3://{name}/train", storage_options=options)
    with pytest.raises(forebay.InvalidError, match=r"no \*.tar file in it"):
        forebay.TarFolder(f"s3://{name}/other", storage_options=options)


# -- objects that changed ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"), [(b"x" * 1004, "changed"), (b"x" * 9, "9 bytes, index says 1004")]
)
def test_an_object_that_changed_is_named_and_a_refresh_reads_it(
    body, says, folder, bucket, s3, s3_client
):
    name = bucket(objects_of(folder))
    dataset = in_bucket(name, s3.endpoint)
    assert dataset.path(11).endswith(CHANGED)
    s3_client.put_object(Bucket=name, Key=f"train/{CHANGED}", Body=body)
    for read in (lambda: list(load(dataset)), lambda: dataset[11]):
        with pytest.raises(forebay.CorruptError, match=rf"sample 11 .*{says}") as caught:
            read()
        assert f"s3://{name}/train/{CHANGED}" in str(caught.value)
        assert "hint: run `forebay index`" in str(caught.value)
    again = in_bucket(name, s3.endpoint, refresh="always")
    assert again.native.report["refreshed"] == (0, 1, 0)
    assert again[11][0].numpy().tobytes() == body
    assert sum(len(batch) for batch in batches(load(again))) == 25


def test_an_object_that_changes_in_mid_read_is_not_mixed(folder, bucket, faulty_proxy):
    name = bucket(objects_of(folder))
    proxy = faulty_proxy()
    dataset = in_bucket(name, proxy.endpoint)
    proxy.set(f"path={CHANGED},first=1,truncate=300", f'path={CHANGED},etag="another"')
    with pytest.raises(forebay.CorruptError, match=r"sample 11 .*changed since it was indexed"):
        list(load(dataset))


def test_an_object_that_is_gone_is_named(folder, bucket, s3, s3_client):
    name = bucket(objects_of(folder))
    dataset = in_bucket(name, s3.endpoint)
    s3_client.delete_object(Bucket=name, Key=f"train/{CHANGED}")
    says = rf"sample 11 .*{CHANGED}: no such object.*hint: run `forebay index`"
    with pytest.raises(forebay.CorruptError, match=says):
        list(load(dataset))


def test_an_object_that_is_gone_is_replaced_by_the_same_other_one(
    folder, expected, bucket, s3, s3_client
):
    name = bucket(objects_of(folder))
    dataset = in_bucket(name, s3.endpoint)
    s3_client.delete_object(Bucket=name, Key=f"train/{CHANGED}")
    planned = [number for batch in expected for number, _, _ in batch]
    stand_ins = set()
    for threads in (1, 2):
        loader = load(dataset, on_error="replace", num_workers=threads)
        for _ in range(2):
            loader.set_epoch(0)
            came = [sample for batch in batches(loader) for sample in batch]
            replaced = [new for old, new in zip(planned, came, strict=True) if old != new[0]]
            assert len(replaced) == 1
            assert replaced[0] in [sample for batch in expected for sample in batch]
            stand_ins.add(replaced[0][0])
        (bad,) = loader.stats()["bad_samples"]
        assert bad["sample"] == 11
        assert "no such object" in bad["reason"]
    assert len(stand_ins) == 1
