"""Readers of releases in a folder, an S3 bucket, a web server or a Hub repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from menagerie.errors import UsageError
from menagerie.figures import shown_address
from menagerie.store.base import FolderReader, ObjectReader
from menagerie.store.releases import Release, ReleaseReader

__all__ = ["Release", "ReleaseReader", "open_releases", "opened"]

T = TypeVar("T")
HUB = "hf://"
_FORMS = "Give a folder, file:///folder, https://host/path, s3://bucket/prefix or hf://ORG/NAME"


def open_releases(url: str, *, allow_unsigned: bool | None = None) -> ReleaseReader:
    """Open the store at `url` for reading; nothing is read yet.

    `url` is a folder, `file:///folder`, `https://host/path`, `hf://ORG/NAME` (one model on the
    Hugging Face Hub) or `s3://bucket/prefix`; the last needs the extra `s3`, and botocore's
    variables, such as AWS_ENDPOINT_URL_S3, configure its connection. `allow_unsigned` also accepts
    unsigned releases; None: MENAGERIE_ALLOW_UNSIGNED decides. Raise UsageError if the address has
    another form, or the extra is missing.
    """
    if url.startswith(HUB):
        from menagerie.store.hub import HubReleases

        return HubReleases(url, allow_unsigned=allow_unsigned)
    objects: ObjectReader = opened(url, FolderReader, _bucket, _web, _FORMS)
    return ReleaseReader(objects, allow_unsigned=allow_unsigned)


def opened(
    url: str,
    folder: Callable[[Path, str], T],
    bucket: Callable[[str, str], T],
    web: Callable[[str], T] | None,
    forms: str,
) -> T:
    """Open an address by its form; raise UsageError with the known forms if it has none of them."""
    if not url:
        raise UsageError("store", "its address is empty", forms)
    try:
        if "://" not in url:
            return folder(Path(url).expanduser().absolute(), url)
        parts = urlsplit(url)
    except (ValueError, RuntimeError) as error:  # a malformed [address], or an unknown user's home
        raise UsageError("store", f"its address cannot be meant: {error}", forms) from None
    if parts.query or parts.fragment:
        raise UsageError(shown_address(url), "a store's address has no query or fragment", forms)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
        return folder(Path(unquote(parts.path)), url)
    if web is not None and parts.scheme in {"http", "https"} and parts.hostname:
        return web(url)
    if parts.scheme == "s3" and parts.netloc:
        return bucket(parts.netloc, parts.path.strip("/"))
    raise UsageError(shown_address(url), "is not the address of a store", forms)


def _web(url: str) -> ObjectReader:
    from menagerie.store.http import HttpReader

    return HttpReader(url)


def _bucket(name: str, prefix: str) -> ObjectReader:
    try:
        from menagerie.store.s3 import S3Reader
    except ModuleNotFoundError as error:
        fact = f"{error.name} is not installed"
        raise UsageError(f"s3://{name}", fact, "Install it: pip install boto3") from None
    return S3Reader(name, prefix)
