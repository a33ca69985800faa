"""Downloads: only promised bytes are kept, and every failure says what to do."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from zoo.errors import HashMismatch, SourceError, SourceRefused
from zoo.sources.checkpoint import fetch

if TYPE_CHECKING:
    from pathlib import Path

_BODY = b"weights" * 1000
_SHA = hashlib.sha256(_BODY).hexdigest()


def _kept(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "downloads").iterdir())


def test_fetches_once(https_server: Any, menagerie_home: Path) -> None:
    """The second call answers from the downloads folder, without asking the server."""
    https_server.bodies["/w.pt"] = _BODY
    first = fetch(f"{https_server.address}/w.pt", _SHA, model="m")
    assert first.read_bytes() == _BODY
    assert first == fetch(f"{https_server.address}/w.pt", _SHA, model="m")
    assert https_server.asked == ["/w.pt"]
    assert _kept(menagerie_home) == [first.name]


@pytest.mark.parametrize("path", ["/a//b.pt", "/a/b.pt?c=d", "/a/", "/a%2Fb.pt"])
def test_asks_for_what_is_written(https_server: Any, path: str) -> None:
    """To a server an empty part of a path is a part, and a query distinguishes files."""
    https_server.bodies[path] = _BODY
    assert fetch(f"{https_server.address}{path}", _SHA, model="m").read_bytes() == _BODY
    assert https_server.asked == [path]
    with pytest.raises(SourceError, match=r"\d//b\.pt: there is no such file"):
        fetch(f"{https_server.address}//b.pt", _SHA, model="m")


def test_first_digits_suffice_where_no_more_are_published(https_server: Any) -> None:
    """The file names of torchvision publish eight digits of the sha256."""
    https_server.bodies["/w.pt"] = _BODY
    assert fetch(f"{https_server.address}/w.pt", _SHA[:8], model="m").read_bytes() == _BODY


def test_corrupted_copy_is_fetched_anew(https_server: Any) -> None:
    """A copy that changed on disk is never given out."""
    https_server.bodies["/w.pt"] = _BODY
    fetch(f"{https_server.address}/w.pt", _SHA, model="m").write_bytes(b"corrupted")
    assert fetch(f"{https_server.address}/w.pt", _SHA, model="m").read_bytes() == _BODY


def test_other_bytes_are_not_kept(https_server: Any, menagerie_home: Path) -> None:
    """A wrong digest names both, and leaves no file."""
    https_server.bodies["/w.pt"] = b"other"
    with pytest.raises(HashMismatch) as caught:
        fetch(f"{https_server.address}/w.pt", _SHA, model="m")
    assert _SHA in str(caught.value)
    assert hashlib.sha256(b"other").hexdigest() in str(caught.value)
    assert _kept(menagerie_home) == []


def test_missing_page(https_server: Any, menagerie_home: Path) -> None:
    """The server's answer is reported, and what else can be done."""
    with pytest.raises(SourceError, match=r"there is no such file.* --random-weights SEED"):
        fetch(f"{https_server.address}/none", _SHA, model="m")
    assert _kept(menagerie_home) == []


def test_broken_off(https_server: Any, menagerie_home: Path) -> None:
    """Fewer bytes than announced are a failed download, not a wrong file."""
    https_server.bodies["/w.pt"] = _BODY
    https_server.announced["/w.pt"] = len(_BODY) + 1
    with pytest.raises(SourceError, match=r"/w\.pt: the connection broke"):
        fetch(f"{https_server.address}/w.pt", _SHA, model="m")
    assert _kept(menagerie_home) == []


def test_a_closed_port() -> None:
    """It is a SourceError in one line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SourceError, match="cannot be reached") as caught:
        fetch(f"https://localhost:{port}/w.pt", _SHA, model="m")
    assert "\n" not in str(caught.value)


def test_untrusted_server(https_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate of no trusted authority ends the download."""
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(f"{https_server.address}/w.pt", _SHA, model="m")


@pytest.mark.parametrize("url", ["http://localhost/w.pt", "file:///etc/passwd", "ftp://h/w"])
def test_only_https(url: str) -> None:
    """Other schemes are refused before anything is opened."""
    with pytest.raises(SourceRefused, match="is not https"):
        fetch(url, _SHA, model="m")


def test_no_redirection_out_of_encryption(https_server: Any) -> None:
    """A server cannot send us on to http; to https it can."""
    https_server.bodies["/w.pt"] = _BODY
    https_server.redirections["/a"] = f"{https_server.address}/w.pt"
    https_server.redirections["/b"] = "http://localhost:9/w.pt"
    assert fetch(f"{https_server.address}/a", _SHA, model="m").read_bytes() == _BODY
    with pytest.raises(SourceError, match=r"/b: answers 302 \(sends on, and not by https\)"):
        fetch(f"{https_server.address}/b", _SHA, model="m")


def test_full_disk(
    https_server: Any, menagerie_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No space left is said as that, and leaves no partial file."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    https_server.bodies["/w.pt"] = _BODY
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SourceError, match=r"downloads has no space left.*MENAGERIE_HOME"):
        fetch(f"{https_server.address}/w.pt", _SHA, model="m")
    assert _kept(menagerie_home) == []


def test_names_of_urls_cannot_leave_the_folder(https_server: Any, menagerie_home: Path) -> None:
    """The kept name is made of safe characters, whatever the URL."""
    https_server.bodies["/..%2F..%2Fx?a=../y"] = _BODY
    kept = fetch(f"{https_server.address}/..%2F..%2Fx?a=../y", _SHA, model="m")
    assert kept.parent == menagerie_home / "downloads"
