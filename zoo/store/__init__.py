"""Where releases live: a local folder or an S3 bucket, with one contract."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from menagerie.figures import shown_address
from menagerie.store.releases import Release
from menagerie.store.s3_options import Addressing, Checksums, S3Options
from zoo.errors import UsageError
from zoo.store.base import LocalObjects, ObjectStore, Progress, silent
from zoo.store.coordination import LeaseTiming
from zoo.store.garbage_collection import KeepRule, SweepResult
from zoo.store.inventory import StoredBuild
from zoo.store.probe import Finding, StoreCheck
from zoo.store.releases import ReleaseVerdict, Store

__all__ = [
    "Addressing",
    "Checksums",
    "Finding",
    "KeepRule",
    "LeaseTiming",
    "Progress",
    "Release",
    "ReleaseVerdict",
    "S3Options",
    "Store",
    "StoreCheck",
    "StoredBuild",
    "SweepResult",
    "open_store",
    "silent",
]

_FORMS = "Give a folder, file:///folder or s3://bucket/prefix"


def open_store(
    url: str, options: S3Options | None = None, *, allow_unsigned: bool | None = None
) -> Store:
    """Opens the store at `url`; nothing is read or written yet.

    Args:
        url: a folder, `file:///folder` or `s3://bucket/prefix`.
        options: for S3; left out, they come from the MENAGERIE_S3_* variables.
        allow_unsigned: also find and pull what no trusted key has signed; None:
            MENAGERIE_ALLOW_UNSIGNED decides.

    Raises:
        UsageError: the address has another form, or a variable is wrong.
    """
    return Store(_objects(url, options), allow_unsigned=allow_unsigned)


def _objects(url: str, options: S3Options | None) -> ObjectStore:
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

        prefix = parts.path.strip("/")
        return S3Objects(parts.netloc, prefix, options or S3Options.from_environment())
    raise UsageError(shown_address(url), "is not the address of a store", _FORMS)
