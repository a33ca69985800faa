"""Uploading a large file in parts, taking up an upload that was interrupted.

The server keeps the parts of an upload that was neither completed nor aborted. Keys are named after
the content, so an unfinished upload to the same key is of the same file; still, each part found
there is compared with the file by size and MD5 (its ETag) before it is counted on.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from zoo.store.base import Advance

__all__ = ["MAX_PARTS", "Part", "PartUpload", "plan"]

MAX_PARTS = 1000  # S3 allows 10,000, but OpenStack Swift 1,000 as it is delivered


@dataclass(frozen=True)
class Part:
    """A slice of the file; numbers count from 1, offset and length are in bytes."""

    number: int
    offset: int
    length: int


def plan(size: int, part_bytes: int) -> list[Part]:
    """Cuts `size` bytes into parts of `part_bytes`, larger ones where they would be too many."""
    length = max(part_bytes, -(-size // MAX_PARTS))
    starts = range(0, size, length)
    return [Part(n, start, min(length, size - start)) for n, start in enumerate(starts, 1)]


@dataclass(frozen=True)
class PartUpload:
    """One upload to one key.

    Attributes:
        client: boto3's S3 client.
        bucket: name of the bucket.
        key: key in the bucket.
        source: the file.
        checksums: arguments that make requests carry a checksum, or none.
    """

    client: Any
    bucket: str
    key: str
    source: Path
    checksums: Mapping[str, str]

    def run(
        self, parts: list[Part], concurrency: int, advance: Advance, *, anew: bool = False
    ) -> None:
        """Uploads what the server lacks of `parts` and completes the upload.

        When this fails the parts stay on the server, for the next call to take up; `anew` takes up
        none.
        """
        upload_id = None if anew else self._interrupted()
        finished = {} if upload_id is None else self._finished(upload_id, parts)
        if upload_id is None:
            upload_id = self.client.create_multipart_upload(**self._where, **self.checksums)[
                "UploadId"
            ]
        advance(sum(part.length for part in parts if part.number in finished))
        missing = [part for part in parts if part.number not in finished]
        finished |= self._upload(upload_id, missing, concurrency, advance)
        self.client.complete_multipart_upload(
            **self._where,
            UploadId=upload_id,
            MultipartUpload={"Parts": [finished[part.number] for part in parts]},
        )

    @property
    def _where(self) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.key}

    def _interrupted(self) -> str | None:
        """The newest unfinished upload to this key."""
        pages = self.client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self.bucket, Prefix=self.key
        )
        uploads = [u for page in pages for u in page.get("Uploads", ()) if u["Key"] == self.key]
        if not uploads:
            return None
        newest: str = max(uploads, key=lambda upload: upload["Initiated"])["UploadId"]
        return newest

    def _finished(self, upload_id: str, parts: list[Part]) -> dict[int, dict[str, Any]]:
        """What the server holds of `parts`, by number, as completing wants it said."""
        planned = {part.number: part for part in parts}
        pages = self.client.get_paginator("list_parts").paginate(**self._where, UploadId=upload_id)
        finished = {}
        for found in (part for page in pages for part in page.get("Parts", ())):
            part = planned.get(found["PartNumber"])
            if part is not None and found["Size"] == part.length:
                digest = hashlib.md5(self._bytes(part), usedforsecurity=False).hexdigest()
                if found["ETag"].strip('"') == digest:
                    finished[part.number] = _receipt(part.number, found)
        return finished

    def _upload(
        self, upload_id: str, parts: list[Part], concurrency: int, advance: Advance
    ) -> dict[int, dict[str, Any]]:
        finished = {}
        with ThreadPoolExecutor(concurrency) as pool:
            futures = {pool.submit(self._upload_part, upload_id, part): part for part in parts}
            try:
                for future in as_completed(futures):
                    part = futures[future]
                    finished[part.number] = _receipt(part.number, future.result())
                    advance(part.length)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return finished

    def _upload_part(self, upload_id: str, part: Part) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.upload_part(
            **self._where,
            UploadId=upload_id,
            PartNumber=part.number,
            Body=self._bytes(part),
            **self.checksums,
        )
        return answer

    def _bytes(self, part: Part) -> bytes:
        with self.source.open("rb") as file:
            return os.pread(file.fileno(), part.length, part.offset)


def _receipt(number: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    receipt = {"PartNumber": number, "ETag": answer["ETag"]}
    if "ChecksumCRC32" in answer:
        receipt["ChecksumCRC32"] = answer["ChecksumCRC32"]
    return receipt
