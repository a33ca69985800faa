"""The store of the local cluster: one bucket in its S3 server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.cluster.credentials import ACCESS_KEY
from flows.cluster.state import BUCKET
from menagerie.store.s3_options import S3Options, Secret

if TYPE_CHECKING:
    from flows.cluster.connection import Connection

__all__ = ["ensure_bucket", "options"]


def options(connection: Connection) -> S3Options:
    """How to talk to the server."""
    return S3Options(
        endpoint=connection.s3_endpoint,
        access_key=Secret(ACCESS_KEY),
        secret_key=Secret(connection.s3_secret.get_secret_value())
        if connection.s3_secret
        else None,
        ca_bundle=connection.ca_bundle,
    )


def ensure_bucket(connection: Connection) -> None:
    """Make the bucket, where there is none yet.

    Raises:
        StoreError: if the server refuses.
    """
    from zoo.store.s3 import S3Objects

    S3Objects(BUCKET, "zoo", options(connection)).ensure_bucket()
