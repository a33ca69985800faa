"""Where releases live: a local folder or an S3 bucket, with one contract."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from menagerie.figures import shown_address
from menagerie.store.base import Progress, silent
from menagerie.store.releases import Release
from zoo.errors import UsageError
from zoo.store.base import LocalObjects, ObjectStore
from zoo.store.coordination import LeaseTiming
from zoo.store.garbage_collection import KeepRule, SweepResult
from zoo.store.inventory import StoredBuild
from zoo.store.probe import Finding, StoreCheck
from zoo.store.releases import ReleaseVerdict, Store

__all__ = [
    "Finding",
    "KeepRule",
    "LeaseTiming",
    "Progress",
    "Release",
    "ReleaseVerdict",
    "Store",
    "StoreCheck",
    "StoredBuild",
    "SweepResult",
    "open_store",
    "silent",
]

_FORMS = "Give a folder, file:///folder or s3://bucket/prefix"


def open_store(url: str, *, allow_unsigned: bool | None = None) -> Store:
    """Opens the store at `url`; nothing is read or written yet.

    Args:
        url: a folder, `file:///folder` or `s3://bucket/prefix`; botocore's own variables and
            profiles, as AWS_ENDPOINT_URL_S3, say how to talk to the server.
        allow_unsigned: also find and pull what no trusted key has signed; None:
            MENAGERIE_ALLOW_UNSIGNED decides.

    Raises:
        UsageError: the address has another form.
    """
    return Store(_objects(url), allow_unsigned=allow_unsigned)


def _objects(url: str) -> ObjectStore:
    if "://" not in url:
        if not url:
            raise UsageError("store", "its address is empty", _FORMS)
        return LocalObjects(Path(url).expanduser().absolute(), url)
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        fact = "a store's address has no query or fragment"
        raise UsageError(shown_address(url), fact, _FORMS)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return LocalObjects(Path(unquote(parts.path)), url)
    if parts.scheme == "s3" and parts.netloc:
        from zoo.store.s3 import S3Objects

        return S3Objects(parts.netloc, parts.path.strip("/"))
    raise UsageError(shown_address(url), "is not the address of a store", _FORMS)
