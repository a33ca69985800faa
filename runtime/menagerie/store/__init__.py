"""Where releases are read from: a folder, an S3 bucket, or whatever a web server shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from menagerie.errors import UsageError
from menagerie.store.base import FolderReader
from menagerie.store.releases import Release, ReleaseReader

if TYPE_CHECKING:
    from menagerie.store.base import ObjectReader

__all__ = ["Release", "ReleaseReader", "open_releases"]

_FORMS = "Give a folder, file:///folder, https://host/path or s3://bucket/prefix"


def open_releases(url: str, *, allow_unsigned: bool | None = None) -> ReleaseReader:
    """Opens the store at `url` for reading; nothing is read yet.

    Args:
        url: a folder, `file:///folder`, `https://host/path` or `s3://bucket/prefix`; for the last
            the extra `s3` is needed, and botocore's variables, as AWS_ENDPOINT_URL_S3, say how to
            talk to the server.
        allow_unsigned: also take what no trusted key has signed; None: MENAGERIE_ALLOW_UNSIGNED
            decides.

    Raises:
        UsageError: the address has another form, or the extra is missing.
    """
    return ReleaseReader(_reader(url), allow_unsigned=allow_unsigned)


def _reader(url: str) -> ObjectReader:
    if not url:
        raise UsageError("store", "its address is empty", _FORMS)
    try:
        if "://" not in url:
            return FolderReader(Path(url).expanduser().absolute(), url)
        parts = urlsplit(url)
    except (ValueError, RuntimeError) as error:  # a broken [address], a home of nobody
        raise UsageError("store", f"its address cannot be meant: {error}", _FORMS) from None
    host = parts.netloc.rpartition("@")[2]  # no message repeats a user's name or password
    shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
    if parts.query or parts.fragment:
        raise UsageError(shown, "a store's address has no query or fragment", _FORMS)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
        return FolderReader(Path(unquote(parts.path)), url)
    if parts.scheme in {"http", "https"} and parts.hostname:
        from menagerie.store.http import HttpReader

        return HttpReader(url)
    if parts.scheme == "s3" and parts.netloc:
        return _bucket(parts.netloc, parts.path.strip("/"))
    raise UsageError(shown, "is not the address of a store", _FORMS)


def _bucket(name: str, prefix: str) -> ObjectReader:
    try:
        from menagerie.store.s3 import S3Reader
    except ModuleNotFoundError as error:
        raise UsageError(
            f"s3://{name}", f"{error.name} is not installed", "Install it: pip install boto3"
        ) from None
    return S3Reader(name, prefix)
