"""The build key: the hash of all that decides what a conversion makes."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from menagerie.typed_json import plain
from zoo.spec import Dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zoo.spec import ModelSpec

__all__ = ["build_key"]

_SCHEME = 1  # raised when the key's own composition changes
# Of the artifact; all else is in it or in its report.
_NO_PART_OF_IT = {"tags", "targets", "precisions"}


def build_key(
    name: str,
    spec: ModelSpec,
    target: str,
    *,
    weights: str,
    code: str,
    versions: Mapping[str, str],
) -> str:
    """Identity of a conversion: with the same key it would make the same artifact.

    Args:
        name: the model's name.
        spec: its entry; its tags, other targets and other precisions do not count.
        target: what it is converted for.
        weights: `zoo.sources.fingerprint`'s answer.
        code: digest of the code that converts.
        versions: of the tools that convert, by name.

    Returns:
        64 hexadecimal digits: the SHA-256 of the canonical JSON of these facts.
    """
    facts = {
        "scheme": _SCHEME,
        "name": name,
        "entry": spec.model_dump(mode="json", exclude=_NO_PART_OF_IT),
        "tolerances": {dtype.value: plain(spec.tolerance(dtype)) for dtype in Dtype},
        "target": target,
        "weights": weights,
        "code": code,
        "versions": dict(versions),
    }
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
