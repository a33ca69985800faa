"""What each key of the tests' S3 server may do, judged by the very policies that a team uses.

Swift knows rights of whole buckets only and refuses `PutBucketPolicy`, while what a worker may
write differs by folder. So the documents in `infra/s3` are judged here, before Swift acts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FOLDER = Path(__file__).parents[2] / "infra" / "s3"
_BUCKET = "arn:aws:s3:::models"  # as the files have it
_KNOWN = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
_OPERATORS = {"StringLike", "Bool"}  # of conditions; both compare with wildcards


@dataclass(frozen=True)
class Key:
    """An access key of the S3 server.

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
    """The keys of a server; all others are refused.

    Attributes:
        bucket: the one that the policies speak of.
        keys: all that there are.
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
        given = json.loads(text)
        return cls(given["bucket"], tuple(Key(**k) for k in given["keys"]), given["tls_only"])


class Judge:
    """Reads the policies of some rights once, and judges requests by them.

    Raises:
        FileNotFoundError: there is no such policy.
        ValueError: one has an element that is not judged here.
    """

    def __init__(self, rights: Rights) -> None:
        self._of_all = [policy("bucket-policy", rights.bucket)] if rights.tls_only else []
        self._of_key = {k.name: policy(k.policy, rights.bucket) for k in rights.keys if k.policy}

    def refuses(self, key: str, action: str, resource: str, context: Mapping[str, str]) -> bool:
        """Whether a request is refused.

        Args:
            key: the name that it gives, whether its signature was checked or not.
            action: such as `s3:GetObject`.
            resource: `arn:aws:s3:::BUCKET` or `arn:aws:s3:::BUCKET/KEY`.
            context: the condition keys that it has, with their values.
        """
        if any(_applies(each, "Deny", action, resource, context) for each in self._of_all):
            return True
        document = self._of_key.get(key)
        return document is not None and not allows(document, action, resource, context)


def policy(name: str, bucket: str) -> dict[str, Any]:
    """A document of `infra/s3`, for a bucket of that name; see `Judge` for what is raised."""
    text = (_FOLDER / f"{name}.json").read_text()
    document: dict[str, Any] = json.loads(text.replace(_BUCKET, f"arn:aws:s3:::{bucket}"))
    for statement in document["Statement"]:
        unknown = set(statement) - _KNOWN | set(statement.get("Condition", {})) - _OPERATORS
        if unknown:
            raise ValueError(f"{name}: {', '.join(sorted(unknown))} is not judged here")
    return document


def allows(document: Mapping[str, Any], *request: Any) -> bool:
    """Whether a policy allows a request, as IAM judges: somewhere allowed and nowhere denied.

    Args:
        document: as `policy` gives it.
        request: action, resource and context, as for `Judge.refuses`.
    """
    return _applies(document, "Allow", *request) and not _applies(document, "Deny", *request)


def _applies(
    document: Mapping[str, Any],
    effect: str,
    action: str,
    resource: str,
    context: Mapping[str, str],
) -> bool:
    """Whether a statement of that effect applies; a condition key that is lacking never holds."""
    return any(
        statement["Effect"] == effect
        and _like(action, statement["Action"])
        and _like(resource, statement["Resource"])
        and all(
            key in context and _like(context[key], patterns)
            for keys in statement.get("Condition", {}).values()
            for key, patterns in keys.items()
        )
        for statement in document["Statement"]
    )


def _like(value: str, patterns: str | Iterable[str]) -> bool:
    """IAM's wildcards are `*` and `?`; brackets are taken literally."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatchcase(value, pattern.replace("[", "[[]")) for pattern in patterns)
