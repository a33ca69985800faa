"""Downloads a file once, over https, and gives it out only with the promised digest."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING

from menagerie.figures import shown_address
from menagerie.paths import home
from zoo.errors import HashMismatch, SourceError, SourceRefused

if TYPE_CHECKING:
    from http.client import HTTPMessage

__all__ = ["fetch", "require_digest", "sha256_of"]

_CHUNK = 1 << 20
_MOST_BYTES = 64 << 30  # no checkpoint that this project converts is larger
_TIMEOUT_S = 60
_NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
)
_RANDOM_ADVICE = "Check the network, or convert with --random-weights SEED"


def fetch(url: str, sha256: str, *, model: str) -> Path:
    """The file behind `url`, from the downloads folder where it is there already.

    Args:
        url: https.
        sha256: hexadecimal digest of the file, or its first digits where no more are published.
        model: whose weights these are, for messages.

    Raises:
        SourceError: if the file cannot be had.
        HashMismatch: if it has another digest; nothing is kept of it.
    """
    folder = home() / "downloads"
    folder.mkdir(mode=0o700, exist_ok=True)
    name = re.sub(r"[^\w.-]", "_", urllib.parse.urlsplit(url).path.rpartition("/")[2])
    place = hashlib.sha256(url.encode()).hexdigest()[:16]
    kept = folder / f"{place}-{sha256[:16]}-{name}"
    if kept.exists() and sha256_of(kept).startswith(sha256):
        return kept
    try:
        part = tempfile.NamedTemporaryFile(dir=folder, prefix=".part-", delete=False)  # noqa: SIM115
        try:
            with part:
                digest = _download(url, part, model)
                part.flush()
                os.fsync(part.fileno())
            require_digest(digest, sha256, url, model)
            Path(part.name).replace(kept)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _cannot_keep(model, folder, error) from error
    return kept


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def require_digest(actual: str, promised: str, what: str, model: str) -> None:
    """Check a digest, of which `promised` may be the first digits only.

    Raises:
        HashMismatch: if they differ.
    """
    if not actual.startswith(promised):
        raise HashMismatch(
            model,
            f"{shown_address(what)} has sha256 {actual}, promised was {promised}",
            "If the new file is meant, write its sha256 into the entry",
        )


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows no redirection that leaves encryption."""

    def redirect_request(  # noqa: PLR0917 (the standard library's signature)
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _require_https(newurl, req.host)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_https(url: str, place: str) -> None:
    if urllib.parse.urlsplit(url).scheme != "https":
        raise SourceRefused(place, f"{shown_address(url)} is not https", "Give an https address")


def _download(url: str, target: IO[bytes], model: str) -> str:
    """Write the body of `url` to `target`; return its sha256."""
    _require_https(url, model)
    shown = shown_address(url)
    digest = hashlib.sha256()
    try:
        opener = urllib.request.build_opener(_HttpsOnly)
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            expected = response.headers.get("Content-Length")
            received = 0
            most = min(_MOST_BYTES, int(expected) if expected is not None else _MOST_BYTES)
            while received <= most and (block := response.read(_CHUNK)):
                digest.update(block)
                target.write(block)
                received += len(block)
    except urllib.error.HTTPError as error:
        error.close()
        raise SourceError(
            model, f"{shown} answers {error.code} {error.reason}", _RANDOM_ADVICE
        ) from error
    except _NETWORK_ERRORS as error:
        reason = getattr(error, "reason", error)
        raise SourceError(model, f"{shown} cannot be reached ({reason})", _RANDOM_ADVICE) from error
    if received > most:
        fact = f"{shown} sends more than {most:,} bytes"
        raise SourceError(model, fact, "Check the address")
    if expected is not None and received != int(expected):
        fact = f"{shown} broke off after {received} of {expected} bytes"
        raise SourceError(model, fact, "Try again")
    return digest.hexdigest()


def _cannot_keep(model: str, folder: Path, error: OSError) -> SourceError:
    if error.errno == errno.ENOSPC:
        return SourceError(
            model, f"no space is left in {folder}", "Free some or set MENAGERIE_HOME"
        )
    return SourceError(
        model, f"{folder} cannot be written ({error.strerror})", "Set MENAGERIE_HOME"
    )
