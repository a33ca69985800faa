"""Reader of a store in a bucket of an S3 server, through boto3 (the extra `s3`).

botocore's own variables and profiles set server, keys, region, retries, checksums and authority:
AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_CA_BUNDLE, AWS_PROFILE and so on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from menagerie.errors import (
    NotInStore,
    StoreError,
    StoreFull,
    StoreUnreachable,
    TooLarge,
    UsageError,
)
from menagerie.store.base import CHUNK, MOST_KEYS, MOST_PAGES, ObjectReader, Parts, StoredFile

_BACKOFF_SECONDS = (0.1, 5.0)  # the first pause and the longest
_DOCTOR = "run `zoo doctor`"
ABSENT = {"404", "NoSuchKey", "NotFound"}
_REFUSED = {"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_HIDING = {"403", "AccessDenied"}
_READS = {"HeadObject", "GetObject"}
_SKEWED = {"RequestTimeTooSkewed", "RequestExpired"}
_SHORT = {"416", "InvalidRange"}
_FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}
_ATTEMPTS = 3  # botocore's attempts if AWS_MAX_ATTEMPTS is not set
_CONFIG = Config(
    signature_version="s3v4",  # presigned addresses would otherwise use the old one
    connect_timeout=5.0,
    read_timeout=60.0,
)


class S3Reader(ObjectReader):
    """A store in a bucket, under `prefix`; `given` overrides boto3's environment."""

    def __init__(self, bucket: str, prefix: str, **given: Any) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._given = given
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")

    @property
    def pauses(self) -> Sequence[float]:
        """Seconds to wait before each of botocore's attempts, about doubling each time."""
        attempts = self._client.meta.config.retries.get("total_max_attempts", _ATTEMPTS)
        first, longest = _BACKOFF_SECONDS
        spread = random.uniform(0.5, 1.0)  # noqa: S311 - of retries
        return [spread * min(longest, first * 2**attempt) for attempt in range(1, attempts)]

    def parts(self, key: str, start: int = 0, end: int | None = None) -> Parts:
        """Request the range if an end is given, otherwise the whole file."""
        wanted = {} if end is None else {"Range": f"bytes={start}-{end - 1}"}
        with self._errors(key):
            answer = self._client.get_object(**self._where(key), **wanted)
            place = start if "ContentRange" in answer else 0
            with closing(answer["Body"]) as body:
                for part in body.iter_chunks(CHUNK):
                    yield place, part
                    place += len(part)

    def list_files(self, prefix: str) -> list[StoredFile]:
        """Return the files whose keys start with `prefix`, fetched page by page."""
        with self._errors(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            found: list[StoredFile] = []
            for number, page in enumerate(pages):
                found += [
                    StoredFile(
                        each["Key"].removeprefix(self._prefix),
                        each["Size"],
                        each["LastModified"].timestamp(),
                    )
                    for each in page.get("Contents", ())
                ]
                if len(found) > MOST_KEYS or number >= MOST_PAGES:
                    fact = f"lists more than {MOST_KEYS:,} keys, or {MOST_PAGES:,} pages of them"
                    raise TooLarge(f"{self.url}/{prefix}", fact, _DOCTOR)
        return sorted(found, key=lambda file: file.key)

    @cached_property
    def _client(self) -> Any:
        given = {**self._given, "config": _CONFIG.merge(self._given.get("config", Config()))}
        try:
            return boto3.session.Session().client("s3", **given)
        except (BotoCoreError, ValueError) as error:
            fact = f"its settings cannot be meant: {_innermost(error)}"
            advice = "Correct the AWS_* variable or the profile"
            raise UsageError(self.url, fact, advice) from error

    def _where(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Convert an error of boto3 into one of ours, in one line."""
        try:
            yield
        except ClientError as error:
            raise self._answered(error, key) from error
        except BotoCoreError as error:
            raise self._unanswered(error) from error

    def _is_absent(self, key: str) -> bool:
        """Return whether a refused object is missing; S3 shows it only to users who list all keys.

        A user who may list the keys under the prefix, as in `infra/s3`, finds out this way.
        """
        name = self._prefix + key
        try:  # of the keys with this prefix, the key itself comes first
            found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=name, MaxKeys=1)
        except (ClientError, BotoCoreError):
            return False
        return all(each["Key"] != name for each in found.get("Contents", ()))

    @property
    def place(self) -> str:
        """The address with the server, because several servers may have a bucket of this name."""
        return f"{self.url} at {self._client.meta.endpoint_url}"

    def _answered(self, error: ClientError, key: str) -> StoreError:
        code = str(error.response.get("Error", {}).get("Code", "?"))
        message = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())
        kind, place = StoreError, self.place
        if code == "NoSuchBucket":
            fact, advice = f"there is no bucket {self._bucket!r}", f"Create it, or {_DOCTOR}"
        elif code in ABSENT or (
            code in _HIDING and error.operation_name in _READS and self._is_absent(key)
        ):
            kind, place = NotInStore, f"{self.url}/{key}"
            fact, advice = "there is no such object", "Publish it again"
        elif code in _REFUSED:
            fact = f"refused ({code})"
            advice = "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy"
        elif code in _SKEWED:
            fact = f"its clock and this machine's differ too much ({code})"
            advice = "Set the clock of this machine, best by NTP"
        elif code in _SHORT:
            place = f"{self.url}/{key}"
            fact, advice = "fewer bytes than were published", "Remove it, publish again"
        elif code in _FULL:
            kind, fact = StoreFull, f"no space left ({code})"
            advice = "Free some space there"
        else:
            fact = f"{error.operation_name} failed: {code} {message}".strip()
            advice = f"Try again, or {_DOCTOR}"
        return kind(place, fact, advice)

    def _unanswered(self, error: BotoCoreError) -> StoreError:
        """Return the error for a request that was not answered or never sent."""
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            advice = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            return StoreError(self.place, "no credentials", advice)
        if isinstance(error, SSLError):
            fact = f"its certificate is not trusted ({_innermost(error)})"
            advice = "Set AWS_CA_BUNDLE to the PEM file of the authority that signed it"
            return StoreUnreachable(self.place, fact, advice)
        if isinstance(error, HTTPClientError | IncompleteReadError | EndpointConnectionError):
            advice = f"Check the endpoint and the network, or {_DOCTOR}"
            return StoreUnreachable(self.place, _silence(error), advice)
        return StoreError(self.place, _innermost(error), f"Check the options, or {_DOCTOR}")


def _silence(error: BotoCoreError) -> str:
    if isinstance(error, ConnectTimeoutError | ReadTimeoutError):
        return "no answer (timed out)"
    if isinstance(error, ConnectionClosedError | IncompleteReadError):
        return "the connection broke"
    reason = _innermost(error)
    return f"no answer ({reason})" if isinstance(error, EndpointConnectionError) else reason


def _innermost(error: BaseException) -> str:
    """Return the innermost error, of the operating system or TLS, in one line."""
    seen = error
    while True:
        deeper = getattr(seen, "kwargs", {}).get("error") or seen.__cause__ or seen.__context__
        deeper = deeper or getattr(seen, "reason", None)
        if not isinstance(deeper, BaseException):
            break
        seen = deeper
    text = getattr(seen, "strerror", None) or str(seen)
    return " ".join(text.split()).rstrip(".").lower()
