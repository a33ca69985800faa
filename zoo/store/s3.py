"""A store in a bucket of an S3 server, through boto3."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from menagerie.store.base import Advance
from menagerie.store.s3 import ABSENT, S3Reader
from zoo.errors import NotInStore
from zoo.store.base import LINK_SECONDS, ObjectStore, content_type

_MOST_PARTS = 1000  # S3 allows 10,000; OpenStack Swift allows 1,000 by default


class S3Objects(S3Reader, ObjectStore):
    """A store in a bucket, with its keys under `prefix`."""

    part_bytes = 16 * 2**20
    concurrency = 4  # parts in flight at once

    def __init__(self, bucket: str, prefix: str, **given: Any) -> None:
        """Open the bucket; writes carry no CRC32, unless a variable or profile asks for it.

        R2, Backblaze, older MinIO and Ceph refuse a CRC32, and readers check SHA-256.
        """
        asked: Any = os.environ.get("AWS_REQUEST_CHECKSUM_CALCULATION")
        if not asked:
            with suppress(BotoCoreError):  # the client reports a bad profile as well
                asked = Session().get_scoped_config().get("request_checksum_calculation")
        usual = Config(request_checksum_calculation=asked or "when_required")
        config = usual.merge(given.get("config", Config()))
        super().__init__(bucket, prefix, **{**given, "config": config})

    def put_file(self, source: Path, key: str, advance: Advance) -> None:
        """Send the file in one request, or in parts when it is large."""
        with self._errors(key):
            try:
                self._upload(source, key, advance)
            except self._client.exceptions.NoSuchUpload:  # a sweep aborted it because of its age
                self._upload(source, key, advance)

    def put_small(self, key: str, content: bytes) -> None:
        """Send the bytes in one request, which S3 does atomically."""
        kind = content_type(key)
        with self._errors(key):
            self._client.put_object(**self._where(key), Body=content, ContentType=kind)

    def abandon_uploads(self, before: float, ours: Callable[[str], bool]) -> int:
        """Abort unfinished multipart uploads, which take space but appear in no listing of keys."""
        with self._errors("uploads"):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            old = [
                upload
                for page in pages
                for upload in page.get("Uploads", ())
                if upload["Initiated"].timestamp() <= before
                and ours(upload["Key"].removeprefix(self._prefix))
            ]
            for upload in old:
                with suppress(self._client.exceptions.NoSuchUpload):  # finished just now
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
        return len(old)

    def size_of(self, key: str) -> int | None:
        """Return the size that a HEAD request reports."""
        try:
            with self._errors(key):
                size: int = self._client.head_object(**self._where(key))["ContentLength"]
        except NotInStore:
            return None
        return size

    def delete(self, key: str) -> None:
        """Remove the object."""
        with self._errors(key):
            self._client.delete_object(**self._where(key))

    def ensure_bucket(self) -> None:
        """Create the bucket if it is missing; for a server of this user, not for production."""
        with self._errors(""):
            try:
                self._client.head_bucket(Bucket=self._bucket)
            except ClientError as error:
                if error.response["Error"]["Code"] not in ABSENT | {"NoSuchBucket"}:
                    raise
                self._client.create_bucket(Bucket=self._bucket)

    def link(self, key: str, name: str) -> str | None:
        """Return a presigned address, which is computed without a request to the server."""
        with self._errors(key):
            kind = content_type(name)
            shown = "inline" if kind.startswith("text/html") else "attachment"
            given = {
                **self._where(key),
                "ResponseContentType": kind,
                "ResponseContentDisposition": f'{shown}; filename="{name}"',
            }
            address: str = self._client.generate_presigned_url(
                "get_object", Params=given, ExpiresIn=LINK_SECONDS
            )
        return address

    def _upload(self, source: Path, key: str, advance: Advance) -> None:
        size = source.stat().st_size
        moved, lock = 0, threading.Lock()  # parts are sent by several threads

        def count(more: int) -> None:
            nonlocal moved
            with lock:
                moved += more
                advance(more)

        transfer = TransferConfig(
            multipart_threshold=self.part_bytes + 1,
            multipart_chunksize=max(self.part_bytes, -(-size // _MOST_PARTS)),
            max_concurrency=self.concurrency,
        )
        try:
            with source.open("rb") as file:
                self._client.upload_fileobj(
                    file, self._bucket, self._prefix + key, Callback=count, Config=transfer
                )
        except BaseException:
            advance(-moved)
            raise
