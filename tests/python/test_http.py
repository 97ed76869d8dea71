"""Files behind a plain web server, named by a manifest because such a server cannot list."""

import functools
import hashlib
import http.server
import os
import threading

import forebay
import pytest
from data import class_folders, content


@pytest.fixture
def web(tmp_path):
    """A web server on a small folder; gives its address and the requests it has seen."""
    class_folders(tmp_path / "d", samples=6)
    seen = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            seen.append((self.command, self.path))

    handler = functools.partial(Handler, directory=str(tmp_path / "d"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_files_of_a_web_server_are_read_by_a_manifest(web, tmp_path):
    address, seen = web
    manifest = tmp_path / "m.csv"
    manifest.write_text("path,label\nclass0/00001.bin,5\nclass1/00000.bin,6\n")
    dataset = forebay.Files(address, manifest=manifest, storage_options={"allow_http": "true"})
    loader = forebay.DataLoader(dataset, 2)
    (samples, labels), *_ = loader
    assert [sample.numpy().tobytes() for sample in samples] == [content(1, 1001), content(2, 1002)]
    assert labels.tolist() == [5, 6]
    gets = [path for method, path in seen if method == "GET"]
    assert sorted(gets) == ["/class0/00001.bin", "/class1/00000.bin"]


def test_a_web_server_that_cannot_list_is_told_with_what_to_do(web):
    address, _ = web
    with pytest.raises(
        forebay.InvalidError, match=r"cannot list files.*hint: name the files in a manifest"
    ):
        forebay.FileFolder(address, storage_options={"allow_http": "true"})


class Versioned(http.server.BaseHTTPRequestHandler):
    """Gives parts of files; tells ETags, the time of the last change, or no version at all."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        tells, folder = self.server.tells, self.server.folder
        path = folder / self.path.lstrip("/")
        whole = path.read_bytes()
        start, end = 0, len(whole) - 1
        if asked := self.headers.get("Range"):
            start, end = map(int, asked.removeprefix("bytes=").split("-"))
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end + 1 - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(whole)}")
        if tells == "etag":
            self.send_header("ETag", f'"{hashlib.md5(whole).hexdigest()}"')
        elif tells == "time":
            self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(whole[start : end + 1])

    do_HEAD = do_GET

    def log_request(self, code="-", size="-"):
        self.server.seen.append(self.command)


@pytest.fixture(params=["etag", "time", "nothing"])
def versioned(request, tmp_path):
    """A web server on an empty folder, by what it tells of versions: its name, address, folder
    and requests."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Versioned)
    server.tells, server.folder = request.param, folder
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield request.param, f"http://127.0.0.1:{server.server_port}", folder, server.seen
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.filterwarnings("ignore:the versions")
@pytest.mark.parametrize("length", ["", "1000"])
def test_what_has_changed_is_never_served_from_the_disk_cache(versioned, length, tmp_path):
    tells, address, folder, seen = versioned
    manifest = tmp_path / "m.csv"
    rows = [f"{number}.bin,{length}" for number in range(6)]
    manifest.write_text("\n".join(["path,length" if length else "path,label", *rows]))

    def read_all(refresh):
        dataset = forebay.Files(
            address, manifest, refresh=refresh, storage_options={"allow_http": "true"}
        )
        cache = {"cache_dir": tmp_path / "cache", "disk": "64MiB"}
        loader = forebay.DataLoader(dataset, 6, memory="16MiB", **cache)
        seen.clear()
        (batch,) = loader
        loader.close()
        return [sample.numpy().tobytes() for sample in batch[0]], seen.count("GET")

    for version, time in ((1, 10**9), (2, 10**9 + 60)):
        content = [bytes([version * 10 + number]) * 1000 for number in range(6)]
        for number, data in enumerate(content):
            (folder / f"{number}.bin").write_bytes(data)
            os.utime(folder / f"{number}.bin", (time, time))
        assert read_all("always") == (content, 6)
        # Nothing has changed: what has a version is found, the rest is read again.
        kept = tells != "nothing" and not length
        assert read_all("auto") == (content, 0 if kept else 6)


@pytest.mark.parametrize("versioned", ["etag"], indirect=True)
def test_a_cache_that_is_of_no_use_to_later_runs_is_told(versioned, tmp_path):
    _, address, folder, _ = versioned
    (folder / "a.bin").write_bytes(b"1")
    (tmp_path / "m.csv").write_text("path,length\na.bin,1\n")
    dataset = forebay.Files(address, tmp_path / "m.csv", storage_options={"allow_http": "true"})
    loader = forebay.DataLoader(dataset, 1, cache_dir=tmp_path / "cache", disk="64MiB")
    with pytest.warns(RuntimeWarning, match="for this run only; hint: where a manifest leaves"):
        list(loader)
    loader.close()
