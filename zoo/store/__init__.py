"""The store of releases: a local folder or an S3 bucket under one contract."""

from __future__ import annotations

from menagerie.store import opened
from menagerie.store.releases import Release
from zoo.store.base import LocalObjects, ObjectStore
from zoo.store.garbage_collection import KeepRule
from zoo.store.releases import ReleaseVerdict, Store

__all__ = ["KeepRule", "Release", "ReleaseVerdict", "Store", "open_store"]

_FORMS = "Give a folder, file:///folder or s3://bucket/prefix"


def open_store(url: str, *, allow_unsigned: bool | None = None) -> Store:
    """Open the store at `url`; nothing is read or written yet.

    Args:
        url: a folder, `file:///folder` or `s3://bucket/prefix`; botocore's own variables and
            profiles, such as AWS_ENDPOINT_URL_S3, configure the connection.
        allow_unsigned: also find and pull releases that no trusted key has signed; None:
            MENAGERIE_ALLOW_UNSIGNED decides.

    Raises:
        UsageError: the address has another form.
    """
    objects = opened(url, LocalObjects, _bucket, None, _FORMS)
    return Store(objects, allow_unsigned=allow_unsigned)


def _bucket(name: str, prefix: str) -> ObjectStore:
    from zoo.store.s3 import S3Objects

    return S3Objects(name, prefix)
