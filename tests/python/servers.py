"""A real S3 server, a proxy that breaks its answers, and slow files, for tests and benchmarks.

    client ---> faulty-proxy ---> SeaweedFS          all on loopback, on free ports
    reader ---> slow-files ---> a directory          a mount, which needs root

All end with the process that started them, however it ends: the kernel kills the server
with its parent, and the others leave when their standard input closes.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
ACCESS_KEY = "testkey"
SECRET_KEY = "testsecret"
REGION = "us-east-1"
START_SECONDS = 120
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Runs in the child before exec: a killed test run must leave no server behind."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Distinct free ports: all are held at once before any is let go."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [held.getsockname()[1] for held in sockets]
    finally:
        for held in sockets:
            held.close()


def program(name: str, variable: str, places: Iterable[Path]) -> str:
    """Where a program is: an environment variable's word, known places, then PATH."""
    named = os.environ.get(variable)
    found = [str(place) for place in places if place.exists()]
    path = named or (found[0] if found else shutil.which(name))
    if path is None:
        raise FileNotFoundError(f"{name} not found; set {variable}, or run `make setup`")
    return path


def s3_client(endpoint: str, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Any:
    """A boto3 client that keeps 32 connections and tries once: tests count requests."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=REGION,
        config=Config(
            max_pool_connections=32,
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3={"addressing_style": "path"},
        ),
    )


class SeaweedFS:
    """An S3 server with one identity that may do everything."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(8)
        self.endpoint = f"http://127.0.0.1:{ports[6]}"
        self.process = self._start(ports)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _start(self, ports: list[int]) -> subprocess.Popen[bytes]:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self.directory / "s3.json"
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        identity = {"name": "admin", "credentials": [keys], "actions": actions}
        config.write_text(json.dumps({"identities": [identity]}))
        master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = ports
        # Without a port of its own each gRPC service takes its HTTP port plus 10,000, and
        # without a socket of its own the local sockets of two servers meet in /tmp.
        command = [
            program("weed", "FOREBAY_WEED", [Path(sys.executable).parent / "weed"]),
            "server",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            "-master.volumeSizeLimitMB=64",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-volume.max=500",
            "-volume.preStopSeconds=0",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-filer.localSocket={self.directory}/filer.sock",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={self.directory}/s3.sock",
            f"-s3.config={config}",
        ]
        with (self.directory / "weed.log").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def _wait(self) -> None:
        """Ready is when an object can be written and read: the port answers long before."""
        from botocore.exceptions import BotoCoreError, ClientError

        deadline = time.monotonic() + START_SECONDS
        client = self.client()
        while True:
            try:
                client.create_bucket(Bucket="ready")
                client.put_object(Bucket="ready", Key="probe", Body=b"1")
                client.get_object(Bucket="ready", Key="probe")["Body"].read()
                client.delete_object(Bucket="ready", Key="probe")
                client.delete_bucket(Bucket="ready")
                return
            except (BotoCoreError, ClientError) as error:
                gone = self.process.poll() is not None
                if gone or time.monotonic() > deadline:
                    log = (self.directory / "weed.log").read_text(errors="replace")[-4000:]
                    raise RuntimeError(f"SeaweedFS did not start: {error}\n{log}") from error
                time.sleep(0.1)

    def client(self, **options: str) -> Any:
        """A boto3 client straight to the server."""
        return s3_client(self.endpoint, **options)

    def fill(self, bucket: str, objects: Mapping[str, bytes | Path], threads: int = 8) -> None:
        """Makes the bucket if need be and puts the objects, some at a time."""
        client = self.client()
        names = [found["Name"] for found in client.list_buckets()["Buckets"]]
        if bucket not in names:
            client.create_bucket(Bucket=bucket)

        def put(item: tuple[str, bytes | Path]) -> None:
            key, body = item
            body = body.read_bytes() if isinstance(body, Path) else body
            client.put_object(Bucket=bucket, Key=key, Body=body)

        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(put, objects.items()):
                pass

    def close(self) -> None:
        """Kills the server: its data is thrown away, so it need not end well."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def storage_options(endpoint: str, **changes: str) -> dict[str, str]:
    """What `storage_options=` needs to reach a server, or a proxy before it."""
    options = {
        "endpoint": endpoint,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "region": REGION,
        "allow_http": "true",
    }
    return options | changes


class Controlled:
    """A program of the testkit with a control port; it ends when its stdin closes."""

    def __init__(self, name: str, *arguments: str, says: str) -> None:
        target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
        built = [target / kind / name for kind in ("release", "debug")]
        built.sort(key=lambda path: -path.stat().st_mtime if path.exists() else 0)
        variable = f"FOREBAY_{name.upper().replace('-', '_')}"
        pipe = subprocess.PIPE
        self.name = name
        self.process = subprocess.Popen(
            [program(name, variable, built), *arguments],
            stdin=pipe,
            stdout=pipe,
            text=True,
            start_new_session=True,
        )
        self.place = self._said(says)
        self.control = f"http://{self._said('control')}"

    def _said(self, word: str) -> str:
        assert self.process.stdout is not None
        first, _, rest = self.process.stdout.readline().rstrip("\n").partition(" ")
        if first != word:
            self.close()
            raise RuntimeError(f"{self.name} did not start: {first} {rest}")
        return rest

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The control port's answer; with a body, settings are changed."""
        return ask_control(self.control + path, body)

    def counts(self) -> dict[str, Any]:
        """What has passed since the start: requests, bytes, most in flight, ..."""
        return self.ask("/counts")

    def close(self) -> None:
        """Closes its stdin, on which it ends."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ask_control(url: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Asks a control port, also of a program that another process started."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data=data, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


class FaultyProxy(Controlled):
    """The `faulty-proxy` program before a server. Rules are explained in its `--help`."""

    def __init__(self, upstream: str, *rules: str, delay_ms: int = 0) -> None:
        arguments = ["--upstream", upstream, "--delay-ms", str(delay_ms)]
        for rule in rules:
            arguments += ["--rule", rule]
        super().__init__("faulty-proxy", *arguments, says="listening")
        self.endpoint = f"http://{self.place}"

    def set(self, *rules: str, delay_ms: int = 0, mbps: float | None = None) -> None:
        """Puts other faults in force, from the next request on; none, if none are given."""
        self.ask("/faults", {"delay_ms": delay_ms, "mbps": mbps, "rules": rules})


class SlowFiles(Controlled):
    """The `slow-files` program: a directory as a slow file server would show it.

    It needs root and /dev/fuse; `missing` says which is not there.
    """

    @staticmethod
    def missing() -> str:
        """Why nothing can be mounted here; empty if it can."""
        if os.geteuid() != 0:
            return "mounting needs root"
        return "" if Path("/dev/fuse").exists() else "there is no /dev/fuse"

    def __init__(self, source: Path, mount: Path, *, delay_ms: int = 0) -> None:
        arguments = ["--source", str(source), "--mount", str(mount), "--delay-ms", str(delay_ms)]
        super().__init__("slow-files", *arguments, says="mounted")
        self.root = Path(self.place)

    def set(self, *, delay_ms: int = 0, mbps: float | None = None) -> None:
        """Makes it faster or slower, from the next open or read on."""
        self.ask("/slowness", {"delay_ms": delay_ms, "mbps": mbps})
