"""What each key of a local S3 server may do: the policies in `infra/s3`, judged request by request.

Swift knows rights of whole buckets only and refuses `PutBucketPolicy`, while what a worker may
write differs by folder. So what a request wants is judged here before its s3api does it, by the
very policies that a team gives to its own store.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_FOLDER = Path(__file__).parents[1] / "s3"
_BUCKET = "arn:aws:s3:::models"  # as the files have it
_KNOWN = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}

# What s3api is about to do, as S3's table "Actions defined by Amazon S3" calls it.
_ACTIONS = {
    ("BucketController", "GET"): "s3:ListBucket",
    ("BucketController", "HEAD"): "s3:ListBucket",
    ("BucketController", "PUT"): "s3:CreateBucket",
    ("BucketController", "DELETE"): "s3:DeleteBucket",
    ("ObjectController", "GET"): "s3:GetObject",
    ("ObjectController", "HEAD"): "s3:GetObject",
    ("ObjectController", "PUT"): "s3:PutObject",
    ("ObjectController", "DELETE"): "s3:DeleteObject",
    ("UploadsController", "GET"): "s3:ListBucketMultipartUploads",
    ("UploadsController", "POST"): "s3:PutObject",
    ("PartController", "PUT"): "s3:PutObject",
    ("UploadController", "GET"): "s3:ListMultipartUploadParts",
    ("UploadController", "POST"): "s3:PutObject",
    ("UploadController", "DELETE"): "s3:AbortMultipartUpload",
}
_OTHER = "s3:Other"  # what is not in the table, and copies: no policy of ours allows them


@dataclass(frozen=True)
class Key:
    """An access key of a local S3 server.

    Attributes:
        name: account:user; all keys of a server have one account.
        secret: what signs its requests.
        policy: the file in `infra/s3` that says what it may, without suffix; None: it may do all.
    """

    name: str
    secret: str = field(repr=False)
    policy: str | None = None


@dataclass(frozen=True)
class Rights:
    """The keys of a server and what is asked about each request.

    Attributes:
        bucket: the one that the policies speak of.
        keys: all that there are; other ones are refused.
        tls_only: plain HTTP is refused to every key, as `infra/s3/bucket-policy.json` says.
    """

    bucket: str
    keys: tuple[Key, ...]
    tls_only: bool = False

    def to_json(self) -> str:
        """With the secrets: for the environment of the server alone."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Rights:
        """What `to_json` made."""
        said = json.loads(text)
        return cls(said["bucket"], tuple(Key(**key) for key in said["keys"]), said["tls_only"])

    def judge(self) -> Callable[[str, str, str, Mapping[str, str]], bool]:
        """Reads the policies.

        Returns:
            Whether a key's request is refused, of: its name, whether its signature was checked or
            not; the action, as `s3:GetObject`; the resource, `arn:aws:s3:::BUCKET` or
            `arn:aws:s3:::BUCKET/KEY`; the condition keys that the request has, with values.

        Raises:
            FileNotFoundError: there is no such policy.
            ValueError: one says what is not judged here.
        """
        of_all = [policy("bucket-policy", self.bucket)] if self.tls_only else []
        limited = {k.name: policy(k.policy, self.bucket) for k in self.keys if k.policy}

        def refuses(key: str, action: str, resource: str, context: Mapping[str, str]) -> bool:
            if any(_speaks(each, "Deny", action, resource, context) for each in of_all):
                return True
            document = limited.get(key)
            return document is not None and not allows(document, action, resource, context)

        return refuses


def policy(name: str, bucket: str) -> dict[str, Any]:
    """A document of `infra/s3`, for a bucket of that name.

    Raises:
        FileNotFoundError: there is no such document.
        ValueError: it says what is not judged here.
    """
    text = (_FOLDER / f"{name}.json").read_text()
    document: dict[str, Any] = json.loads(text.replace(_BUCKET, f"arn:aws:s3:::{bucket}"))
    for statement in document["Statement"]:
        unknown = set(statement) - _KNOWN | set(statement.get("Condition", {})) - set(_OPERATORS)
        if unknown:
            raise ValueError(f"{name}: {', '.join(sorted(unknown))} is not judged here")
    return document


def allows(
    document: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]
) -> bool:
    """Whether a policy allows a request, as IAM judges: somewhere allowed and nowhere denied."""
    granted = _speaks(document, "Allow", action, resource, context)
    return granted and not _speaks(document, "Deny", action, resource, context)


def _speaks(
    document: Mapping[str, Any],
    effect: str,
    action: str,
    resource: str,
    context: Mapping[str, str],
) -> bool:
    """Whether a statement of that effect speaks of the request."""
    return any(
        statement["Effect"] == effect
        and _like(action, statement["Action"])
        and _like(resource, statement["Resource"])
        and _conditions_hold(statement.get("Condition", {}), context)
        for statement in document["Statement"]
    )


def _conditions_hold(wanted: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    """All of them; none does of a condition key that the request lacks."""
    return all(
        key in context and _OPERATORS[operator](context[key], patterns)
        for operator, keys in wanted.items()
        for key, patterns in keys.items()
    )


def _like(value: str, patterns: str | Iterable[str]) -> bool:
    """IAM's wildcards are `*` and `?`; brackets stand for themselves."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatchcase(value, pattern.replace("[", "[[]")) for pattern in patterns)


_OPERATORS = {"StringLike": _like, "Bool": _like}


def guarded(rights: Rights) -> type[Any]:
    """Swift's s3api, which refuses what `rights` refuse before anything of it is done."""
    from swift.common.middleware.s3api import s3api  # type: ignore[import-untyped]
    from swift.common.middleware.s3api.s3response import (  # type: ignore[import-untyped]
        AccessDenied,
    )

    refuses = rights.judge()

    class Guarded(s3api.S3ApiMiddleware):  # type: ignore[misc]
        def handle_request(self, req: Any) -> Any:
            what = req.controller.__name__, req.method
            action = _ACTIONS.get(what, _OTHER)
            if "X-Amz-Copy-Source" in req.headers:
                action = _OTHER
            resource = f"arn:aws:s3:::{req.container_name or ''}"
            if req.object_name:
                resource += f"/{req.object_name}"
            secure = req.environ["wsgi.url_scheme"] == "https"
            context = {"aws:SecureTransport": str(secure).lower()}
            if action == "s3:ListBucket" and "prefix" in req.params:
                context["s3:prefix"] = req.params["prefix"]
            if refuses(req.access_key, action, resource, context):
                raise AccessDenied(reason="policy")
            return super().handle_request(req)

    return Guarded
