"""The servers that the other tests lean on do what those tests assume."""

from __future__ import annotations

import forebay
import pytest
from botocore.exceptions import ClientError, HTTPClientError, ResponseStreamingError
from servers import SlowFiles, s3_client


def status(caught: pytest.ExceptionInfo[ClientError]) -> int:
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_signed_request_stays_valid_through_the_proxy(bucket, faulty_proxy):
    name = bucket({"a/x": b"0123456789"})
    proxy = faulty_proxy()
    client = s3_client(proxy.endpoint)
    client.put_object(Bucket=name, Key="a/y z", Body=b"put" * 100_000)
    assert client.get_object(Bucket=name, Key="a/y z")["Body"].read() == b"put" * 100_000
    part = client.get_object(Bucket=name, Key="a/x", Range="bytes=2-4")
    assert part["Body"].read() == b"234"
    keys = [found["Key"] for found in client.list_objects_v2(Bucket=name)["Contents"]]
    assert keys == ["a/x", "a/y z"]
    counts = proxy.counts()
    assert counts["requests"] == {"GET": 3, "PUT": 1}
    assert counts["connections"] == 1


def test_the_wrong_credentials_are_refused(s3, bucket):
    name = bucket({"x": b"1"})
    with pytest.raises(ClientError) as caught:
        s3.client(secret_key="wrong").get_object(Bucket=name, Key="x")
    assert status(caught) == 403


def test_a_rule_breaks_requests_until_it_is_lifted(bucket, faulty_proxy):
    name = bucket({"x": b"1" * 10_000})
    proxy = faulty_proxy("status=503,retry-after=1")
    client = s3_client(proxy.endpoint)
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket=name, Key="x")
    assert status(caught) == 503

    proxy.set("truncate=100")
    with pytest.raises((ResponseStreamingError, HTTPClientError)):
        client.get_object(Bucket=name, Key="x")["Body"].read()

    proxy.set('etag="other"')
    assert client.get_object(Bucket=name, Key="x")["ETag"] == '"other"'

    proxy.set()
    assert client.get_object(Bucket=name, Key="x")["Body"].read() == b"1" * 10_000
    assert proxy.counts()["faults"] == 3


@pytest.fixture
def slow_files(tmp_path, folder):
    """The small folder behind a slow mount."""
    reason = SlowFiles.missing()
    if reason:
        pytest.skip(reason)
    mount = tmp_path / "mount"
    mount.mkdir()
    files = SlowFiles(folder, mount)
    yield files
    files.close()
    assert not mount.is_mount()


def test_every_loader_reads_slow_files_anew(folder, slow_files):
    def samples(root):
        loader = forebay.DataLoader(forebay.FileFolder(root), batch_size=4, seed=1, shuffle=True)
        return [bytes(data.numpy()) for batch, _ in loader for data in batch]

    wanted = samples(folder)
    slow_files.set(delay_ms=2)
    for readers in (1, 2):
        assert samples(slow_files.root) == wanted
        counts = slow_files.counts()
        # More, if a loader has begun to read its next epoch.
        assert counts["opens"] >= readers * len(wanted)
        assert counts["bytes_out"] >= readers * sum(map(len, wanted))
