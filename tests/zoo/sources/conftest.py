"""A home of the test's own, and an https server on loopback that this process trusts."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from zoo.spec import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def menagerie_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is written outside the test's folder."""
    folder = tmp_path / "home"
    monkeypatch.setenv("MENAGERIE_HOME", str(folder))
    return folder


@pytest.fixture
def make_spec() -> Callable[..., ModelSpec]:
    """An entry for a source, with one small program unless given otherwise."""

    def make(source: dict[str, Any], **changes: Any) -> ModelSpec:
        entry: dict[str, Any] = {
            "summary": "a model",
            "source": source,
            "programs": [{"inputs": [{"name": "x", "shape": [2, 4]}]}],
            "licence": {"spdx": "MIT"},
        }
        return ModelSpec.model_validate(entry | changes)

    return make


@dataclass
class HttpsServer:
    """Answers from `bodies` by path; counts what was asked. `announced` overrides the length."""

    address: str
    bodies: dict[str, bytes] = field(default_factory=dict)
    redirections: dict[str, str] = field(default_factory=dict)
    announced: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def https_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HttpsServer]:
    """Its authority is made for the test and trusted through the environment, as in production."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("no_proxy", "localhost")
    listener = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server = HttpsServer(f"https://localhost:{listener.server_port}")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            if self.path in server.redirections:
                self.send_response(302)
                self.send_header("Location", server.redirections[self.path])
                self.end_headers()
                return
            body = server.bodies.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header(
                "Content-Length", str(server.announced.get(self.path, len(body or b"")))
            )
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    listener.RequestHandlerClass = Handler
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    listener.shutdown()
    thread.join()
    listener.server_close()
