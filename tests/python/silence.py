"""A server that keeps its clients waiting."""

import http.server
import threading

import forebay


class Silence:
    """A server of files that tells their sizes and never sends their bytes."""

    def __init__(self, directory):
        self.asked = threading.Event()
        self._ending = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.manifest = directory / "manifest.csv"
        self.manifest.write_text("path,label\n" + "".join(f"{at}.bin,0\n" for at in range(8)))

    def _handler(self):
        asked, ending = self.asked, self._ending

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
                self.end_headers()

            def do_GET(self):
                asked.set()
                ending.wait()

            def log_message(self, *_):
                pass

        return Handler

    def dataset(self):
        return forebay.Files(self.url, manifest=self.manifest)

    def close(self):
        self._ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
