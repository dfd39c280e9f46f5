"""A server of our own on loopback, for tests of downloads."""

from __future__ import annotations

import http.server
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Loopback:
    """`files` by path; `cut` ends each answer after so many bytes; `asked` are the paths, `sent` the bytes."""

    files: dict = field(default_factory=dict)
    cut: int | None = None
    parts: bool = True
    asked: list = field(default_factory=list)
    sent: int = 0
    port: int = 0

    def url(self, name, content):
        self.files[f"/{name}"] = content
        return f"http://127.0.0.1:{self.port}/{name}"


@contextmanager
def loopback():
    state = Loopback()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.path)
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
            if part and state.parts:
                a, b = int(part[1]), min(int(part[2]), len(content) - 1)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {a}-{b}/{len(content)}")
                content = content[a : b + 1]
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            content = content[: state.cut]
            state.sent += len(content)
            self.wfile.write(content)

        def log_message(self, format, *args):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = running.server_port
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
