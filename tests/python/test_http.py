"""Files behind a plain web server, named by a manifest because such a server cannot list."""

import functools
import http.server
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
