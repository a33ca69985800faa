"""A web server on loopback that shows a folder, and breaks off where a test wants it to."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class WebServer(ThreadingHTTPServer):
    """Shows `root`.

    `ranges`: whether it knows them. `break_after`: bytes of a body after which the next answer
    ends, once. `swap`: bodies by path that are sent instead of the files. `asked`: path and range
    of each request, and `authorization`: the last header of that name. `absent`: the answer for a
    missing file, `words`: its phrase; `redirect`: a server to which all are sent.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.ranges = True
        self.break_after: int | None = None
        self.swap: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.authorization = ""
        self.absent = 404
        self.words: str | None = None
        self.redirect = ""

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: WebServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append((self.path, wanted))
        self.server.authorization = self.headers.get("Authorization", "")
        if self.server.redirect:
            self.send_response(302)
            self.send_header("Location", self.server.redirect + self.path)
            self.end_headers()
            return
        path = self.server.root / self.path.lstrip("/")
        if self.path not in self.server.swap and not path.is_file():
            self.send_error(self.server.absent, self.server.words)
            return
        body = self.server.swap.get(self.path) or path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
        if asked and self.server.ranges:
            body = body[int(asked[1]) : int(asked[2]) + 1]
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, self.server.break_after = self.server.break_after, None
        self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(root: Path) -> Iterator[WebServer]:
    """A server that shows `root` while the block runs."""
    server = WebServer(root)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.05))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
