"""How the last verification of a release ended: a note beside it, which changes nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from menagerie.store.layout import MAX_SUMMARY_BYTES, verdict_key
from zoo.errors import NotInStore, TooLarge
from zoo.frozen import Frozen

if TYPE_CHECKING:
    from zoo.store.base import ObjectStore

__all__ = ["ReleaseVerdict", "read_verdict", "write_verdict"]


class ReleaseVerdict(Frozen):
    """What a verification found."""

    model: str
    target: str
    build_key: str
    passed: bool
    detail: str  # empty when passed
    machine: str = ""
    runtime: str = ""
    when: str  # ISO 8601, UTC


def write_verdict(objects: ObjectStore, verdict: ReleaseVerdict) -> None:
    """Puts it beside the release, in place of the one before."""
    key = verdict_key(verdict.model, verdict.target, verdict.build_key)
    objects.put_small(key, (verdict.model_dump_json(indent=1) + "\n").encode())


def read_verdict(
    objects: ObjectStore, model: str, target: str, build_key: str
) -> ReleaseVerdict | None:
    """The last one; None when there is none that can be read."""
    try:
        content = objects.read_small(verdict_key(model, target, build_key), MAX_SUMMARY_BYTES)
        return ReleaseVerdict.model_validate_json(content)
    except (NotInStore, TooLarge, ValidationError):
        return None
