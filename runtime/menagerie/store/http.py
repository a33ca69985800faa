"""Reader of a store on a web server, which lists nothing: ledgers name the releases."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import (
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from menagerie.errors import NotInStore, StoreError, StoreUnreachable, UsageError
from menagerie.store.base import CHUNK, ObjectReader, Parts

_SECONDS = 30.0  # without receiving a byte
_LOGIN = "put user:password@ before its host"
_MOST_HOPS = 10
_IN_PATHS = "/%:@!$&'()*+,;=~"  # characters that stay unquoted in paths (RFC 3986)
_HERE = {"localhost", "127.0.0.1", "::1"}


def read_address(address: str, limit: int) -> bytes:
    """Read a small file over https or from this machine; StoreError, or UsageError for others."""
    parts = urlsplit(address)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in _HERE):
        fact = "could be changed on its way"
        raise UsageError(f"{parts.hostname}{parts.path}", fact, "Name a file, or https://")
    server = HttpReader(urlunsplit(parts._replace(path="")))
    return server.read_small(parts.path.removeprefix("/"), limit)


class _Redirects(HTTPRedirectHandler):
    """Follower of redirects to http and https, never from https to http; quotes no server text."""

    def http_error_default(self, req: Any, fp: Any, code: int, _: str, headers: Any) -> Any:
        phrase = {status.value: status.phrase for status in HTTPStatus}.get(code, "not of HTTP")
        raise HTTPError(req.full_url, code, phrase, headers, fp)

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        fp.close()
        address = urljoin(req.full_url, headers.get("location", ""))
        hops = getattr(req, "hops", 0) + 1
        schemes = {"https"} if urlsplit(req.full_url).scheme == "https" else {"http", "https"}
        new = self.redirect_request(req, fp, code, msg, headers, address)
        if new is None or hops > _MOST_HOPS or urlsplit(address).scheme not in schemes:
            fact = "sends on too often" if hops > _MOST_HOPS else "sends on, and not by https"
            raise HTTPError(req.full_url, code, fact, headers, None)
        new.hops = hops  # type: ignore[attr-defined]
        return self.parent.open(new, timeout=req.timeout)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


@cache
def _opener() -> OpenerDirector:
    """Return an opener for HTTP only: by default urllib opens files and FTP as well."""
    made = OpenerDirector()
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, _Redirects, HTTPErrorProcessor):
        made.add_handler(handler())
    return made


class HttpReader(ObjectReader):
    """A store on a web server; keys are paths below `url`, an http or https address.

    Certificates are verified. A user's name and password in the address are sent but never shown;
    an `authorization` header goes to this server only. Messages use `login` to tell people how to
    gain access.
    """

    def __init__(self, url: str, *, authorization: str = "", login: str = _LOGIN) -> None:
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self._base = parts._replace(netloc=host, path=parts.path.rstrip("/"))
        basic = f"Basic {b64encode(unquote(user).encode()).decode()}" if user else ""
        self._credentials = authorization or basic
        self._login = login
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    pauses = (0.5, 2.0)

    def parts(self, key: str, start: int = 0, end: int | None = None) -> Parts:
        """Request the range if an end is given, otherwise the whole file."""
        with self._answer(key, "" if end is None else f"bytes={start}-{end - 1}") as answer:
            place = start if answer.status == HTTPStatus.PARTIAL_CONTENT else 0
            try:
                while part := answer.read(CHUNK):
                    yield place, part
                    place += len(part)
            except (OSError, HTTPException) as error:
                raise self._silent(key, error) from error
        if answer.length or (end is not None and place < end):
            raise StoreUnreachable(self._place(key), "the connection broke", "Pull again")

    def _answer(self, key: str, wanted: str) -> HTTPResponse:
        address = urlunsplit(self._base._replace(path=f"{self._base.path}/{quote(key, _IN_PATHS)}"))
        headers = {"User-Agent": "menagerie", **({"Range": wanted} if wanted else {})}
        request = Request(address, headers=headers)  # noqa: S310 - only http and https reach it
        if self._credentials:  # for this server only, not for a redirect's target
            request.add_unredirected_header("Authorization", self._credentials)
        try:
            answer: HTTPResponse = _opener().open(request, timeout=_SECONDS)
        except HTTPError as error:
            error.close()
            raise self._refused(key, error) from None
        except ValueError:  # a redirect to a malformed address
            fact = "redirects to a malformed address"
            raise StoreError(self._place(key), fact, "Tell its owner") from None
        except (OSError, HTTPException) as error:
            raise self._silent(key, error) from None
        return answer

    def _refused(self, key: str, error: HTTPError) -> StoreError:
        if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            return NotInStore(self._place(key), "there is no such file", "Check the address")
        if error.code == HTTPStatus.FORBIDDEN:  # for both, from buckets that may not be listed
            fact = "there is no such file, or it is not shown (403)"
            return NotInStore(self._place(key), fact, "Check the address")
        if error.code == HTTPStatus.UNAUTHORIZED:
            fact = "is not there, or not public (401)"
            return StoreError(self._place(key), fact, f"Check the address, or {self._login}")
        if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return StoreUnreachable(self._place(key), f"answers {error.code}", "Try again later")
        fact = f"answers {error.code} ({error.reason})"
        return StoreError(self._place(key), fact, "Check the address")

    def _silent(self, key: str, error: Exception) -> StoreUnreachable:
        reason = error.reason if isinstance(error, URLError) else error
        text = getattr(reason, "strerror", None) or str(reason)
        fact = f"cannot be reached: {text}"
        return StoreUnreachable(self._place(key), fact, "Check the address and the network")

    def _place(self, key: str) -> str:
        return f"{self.url}/{key}"
