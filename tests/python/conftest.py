"""Fixtures that several test files share. Each starts what it needs when first asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from data import class_folders
from servers import FaultyProxy, SeaweedFS

bucket_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """One S3 server for all tests of the run; a test keeps to buckets of its own."""
    server = SeaweedFS(tmp_path_factory.mktemp("seaweedfs"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3_client(s3: SeaweedFS) -> Any:
    """A boto3 client straight to the server."""
    return s3.client()


@pytest.fixture
def bucket(s3: SeaweedFS) -> Callable[[Mapping[str, bytes | Path]], str]:
    """Makes a fresh bucket of the objects given, and gives its name."""

    def make(objects: Mapping[str, bytes | Path]) -> str:
        name = f"bucket-{next(bucket_numbers)}"
        s3.fill(name, objects)
        return name

    return make


@pytest.fixture
def faulty_proxy(s3: SeaweedFS) -> Iterator[Callable[..., FaultyProxy]]:
    """Starts proxies before the S3 server: `faulty_proxy("every=3,status=503")`."""
    started: list[FaultyProxy] = []

    def start(*rules: str, delay_ms: int = 0) -> FaultyProxy:
        started.append(FaultyProxy(s3.endpoint, *rules, delay_ms=delay_ms))
        return started[-1]

    yield start
    for proxy in started:
        proxy.close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of a test are its own, and no rank is found in the surroundings."""
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path_factory.mktemp("cache")))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 small files in 3 classes; nobody changes them."""
    return class_folders(tmp_path_factory.mktemp("folder"))
