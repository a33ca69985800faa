"""Reading a store that a web server shows: nothing can be listed, so `latest` is what is found."""

from __future__ import annotations

import time
from base64 import b64encode
from functools import cache
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from menagerie.durable import disk_errors
from menagerie.errors import NotInStore, StoreError, StoreUnreachable, TooLarge, UsageError
from menagerie.store.base import Advance, ObjectReader

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from pathlib import Path

_CHUNK = 2**20
_SECONDS = 30.0  # without a byte
_PAUSES = (0.5, 2.0)  # seconds before the second and the third try
_LOGIN = "put user:password@ before its host"
_MOST_HOPS = 10
_HERE = {"localhost", "127.0.0.1", "::1"}


def read_address(address: str, limit: int) -> bytes:
    """Reads a small file whose bytes the network must not have changed.

    Raises:
        UsageError: its address is not https, nor of this machine.
        StoreError: it is not to be had.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in _HERE):
        fact = "could be changed on its way"
        raise UsageError(f"{parts.hostname}{parts.path}", fact, "Name a file, or https://")
    folder, _, name = parts.path.rpartition("/")
    return HttpReader(urlunsplit(parts._replace(path=folder))).read_small(unquote(name), limit)


class _Redirects(HTTPRedirectHandler):
    """To http or https alone, never from the latter to the former; what is sent along is unread."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        fp.close()
        address = urljoin(req.full_url, headers.get("location", ""))
        hops = getattr(req, "hops", 0) + 1
        schemes = {"https"} if urlsplit(req.full_url).scheme == "https" else {"http", "https"}
        new = self.redirect_request(req, fp, code, msg, headers, address)
        if new is None or hops > _MOST_HOPS or urlsplit(address).scheme not in schemes:
            raise HTTPError(req.full_url, code, "sends elsewhere", headers, None)
        new.hops = hops  # type: ignore[attr-defined]
        return self.parent.open(new, timeout=req.timeout)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


@cache
def _opener() -> OpenerDirector:
    """Of HTTP alone: by itself urllib opens files and FTP as well."""
    made = OpenerDirector()
    handlers = (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, _Redirects)
    for handler in (*handlers, HTTPErrorProcessor):
        made.add_handler(handler())
    return made


class HttpReader(ObjectReader):
    """Keys are paths below `url`, an http or https address.

    Downloads go on where they broke off, by ranges; certificates are checked. A user's name and
    password in the address are sent, and never shown.

    Args:
        url: the address.
        authorization: the header of that name, for this server alone; empty: by the address.
        login: what a person does to be let in, for messages.
    """

    def __init__(self, url: str, *, authorization: str = "", login: str = _LOGIN) -> None:
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self._base = parts._replace(netloc=host, path=parts.path.rstrip("/"))
        basic = f"Basic {b64encode(unquote(user).encode()).decode()}" if user else ""
        self._credentials = authorization or basic
        self._login = login
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    def get_file(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        """Asks for the range that `destination` lacks, again when the connection breaks."""
        destination.touch()
        for pause in (*_PAUSES, None):
            if destination.stat().st_size >= size:
                return
            try:
                self._append(key, destination, size, advance)
            except StoreUnreachable:
                if pause is None:
                    raise
                time.sleep(pause)
        if destination.stat().st_size < size:
            raise StoreUnreachable(self._place(key), "the connection broke", "Pull again")

    def read_small(self, key: str, limit: int) -> bytes:
        """Reads the document, but never more than `limit` bytes and one."""
        with self._answer(key) as answer:
            try:
                content = answer.read(limit + 1)
            except (OSError, HTTPException) as error:
                raise self._silent(key, error) from error
        if len(content) > limit:
            raise TooLarge(self._place(key), f"more than {limit:,} bytes", "Tell its owner")
        return content

    def list_files(self, prefix: str) -> None:  # noqa: ARG002 - as the base has it
        """A web server lists nothing."""
        return

    def _append(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        start = destination.stat().st_size
        with (
            self._answer(key, f"bytes={start}-{size - 1}") as answer,
            disk_errors(destination.parent, size),
            destination.open("ab") as file,
        ):
            if start and answer.status != HTTPStatus.PARTIAL_CONTENT:  # all of it came
                file.truncate(0)
                advance(-start)
                start = 0
            while start < size:
                try:
                    chunk = answer.read(min(_CHUNK, size - start))
                except (OSError, HTTPException) as error:
                    raise self._silent(key, error) from error
                if not chunk:
                    break
                file.write(chunk)
                advance(len(chunk))
                start += len(chunk)

    def _answer(self, key: str, wanted: str = "") -> HTTPResponse:
        address = urlunsplit(self._base._replace(path=f"{self._base.path}/{quote(key)}"))
        headers = {"User-Agent": "menagerie", **({"Range": wanted} if wanted else {})}
        request = Request(address, headers=headers)  # noqa: S310 - only http and https get here
        if self._credentials:  # for this server alone, not for one that it sends us to
            request.add_unredirected_header("Authorization", self._credentials)
        try:
            answer: HTTPResponse = _opener().open(request, timeout=_SECONDS)
        except HTTPError as error:
            error.close()
            raise self._refused(key, error) from None
        except ValueError:  # of what the server sends to
            fact = "sends to an address that is none"
            raise StoreError(self._place(key), fact, "Tell its owner") from None
        except (OSError, HTTPException) as error:
            raise self._silent(key, error) from None
        return answer

    def _refused(self, key: str, error: HTTPError) -> StoreError:
        if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            return NotInStore(self._place(key), "there is no such file", "Check the address")
        if error.code == HTTPStatus.FORBIDDEN:  # what buckets that may not be listed say of both
            fact = "there is no such file, or it is not shown (403)"
            return NotInStore(self._place(key), fact, "Check the address")
        if error.code == HTTPStatus.UNAUTHORIZED:
            fact = "is not there, or not for everybody (401)"
            return StoreError(self._place(key), fact, f"Check the address, or {self._login}")
        if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return StoreUnreachable(self._place(key), f"answers {error.code}", "Try again later")
        return StoreError(self._place(key), f"answers {error.code}", "Check the address")

    def _silent(self, key: str, error: Exception) -> StoreUnreachable:
        reason = error.reason if isinstance(error, URLError) else error
        text = getattr(reason, "strerror", None) or str(reason)
        fact = f"cannot be reached: {text}"
        return StoreUnreachable(self._place(key), fact, "Check the address and the network")

    def _place(self, key: str) -> str:
        return f"{self.url}/{key}"
