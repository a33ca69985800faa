"""Downloads a file once, over https, and gives it out only with the promised digest."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpx

from menagerie.durable import sha256_of
from menagerie.figures import shown_address
from menagerie.paths import home
from zoo.errors import HashMismatch, SourceError, SourceRefused

__all__ = ["fetch", "require_digest"]

_CHUNK = 1 << 20
_MOST_BYTES = 64 << 30  # no checkpoint that this project converts is larger
_TIMEOUT_S = 60
_RANDOM_ADVICE = "Check the network, or convert with --random-weights SEED"


def fetch(url: str, sha256: str, *, model: str) -> Path:
    """The file behind `url`, from the downloads folder where it is there already.

    Args:
        url: https.
        sha256: hexadecimal digest of the file, or its first digits where no more are published.
        model: whose weights these are, for messages.

    Raises:
        SourceError: if the file cannot be had.
        SourceRefused: if the address, or one that it redirects to, is not https.
        HashMismatch: if it has another digest; nothing is kept of it.
    """
    folder = home() / "downloads"
    folder.mkdir(mode=0o700, exist_ok=True)
    name = re.sub(r"[^\w.-]", "_", urlsplit(url).path.rpartition("/")[2])
    place = hashlib.sha256(url.encode()).hexdigest()[:16]
    cached = folder / f"{place}-{sha256[:16]}-{name}"
    if cached.exists() and sha256_of(cached).startswith(sha256):
        return cached
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as scratch:
            part = Path(scratch) / "part"
            with part.open("xb") as stream:
                digest = _download(url, stream, model)
                stream.flush()
                os.fsync(stream.fileno())
            require_digest(digest, sha256, url, model)
            part.replace(cached)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        fact = "has no space left" if full else f"cannot be written ({error.strerror})"
        step = f"{'Free some, or set' if full else 'Set'} MENAGERIE_HOME"
        raise SourceError(model, f"{folder} {fact}", step) from error
    return cached


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


def _download(url: str, target: IO[bytes], model: str) -> str:
    """Write the body of `url` to `target`; return its sha256."""

    def require_https(request: httpx.Request) -> None:  # called for redirections, too
        if request.url.scheme != "https":
            fact = f"{shown_address(str(request.url))} is not https"
            raise SourceRefused(model, fact, "Give an https address")

    shown, digest, received = shown_address(url), hashlib.sha256(), 0
    hooks = {"request": [require_https]}
    headers = {"Accept-Encoding": "identity"}  # the digest is of the file as it is
    try:
        with (
            httpx.Client(timeout=_TIMEOUT_S, follow_redirects=True, event_hooks=hooks) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            response.raise_for_status()
            for block in response.iter_raw(_CHUNK):
                received += len(block)
                if received > _MOST_BYTES:
                    fact = f"{shown} sends more than {_MOST_BYTES:,} bytes"
                    raise SourceError(model, fact, "Check the address")
                digest.update(block)
                target.write(block)
    except httpx.HTTPStatusError as error:
        fact = f"{shown} answers {error.response.status_code} {error.response.reason_phrase}"
        raise SourceError(model, fact, _RANDOM_ADVICE) from error
    except httpx.RemoteProtocolError as error:
        raise SourceError(model, f"{shown} broke off ({error})", "Try again") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceError(model, f"{shown} cannot be reached ({error})", _RANDOM_ADVICE) from error
    return digest.hexdigest()
