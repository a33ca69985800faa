"""manifest.json as bytes: written in one canonical way, read with suspicion."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pydantic import ValidationError

from menagerie.format.bundle_manifest import FORMAT_NAME, FORMAT_VERSION, BundleManifest
from zoo.errors import ArtifactError

__all__ = ["MAX_MANIFEST_BYTES", "manifest_document", "parse_manifest"]

MAX_MANIFEST_BYTES = 8 * 2**20
_LONGEST_QUOTE = 300

_DAMAGED = "The bundle is damaged or not a bundle: pull or convert it again"


def manifest_document(manifest: BundleManifest) -> bytes:
    """The bytes of manifest.json: sorted keys, an entry a line, one newline at the end."""
    fields = manifest.model_dump(mode="json")
    text = json.dumps(fields, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def parse_manifest(document: bytes, place: str) -> BundleManifest:
    """Reads manifest.json.

    Args:
        document: the file's bytes.
        place: where they come from, for the message.

    Raises:
        ArtifactError: rules 1 to 4 of FORMAT.md are broken.
    """
    if len(document) > MAX_MANIFEST_BYTES:
        raise ArtifactError(
            place, f"{len(document):,} bytes, above the {MAX_MANIFEST_BYTES:,} allowed", _DAMAGED
        )
    fields = _parse_json(document, place)
    _check_version(fields, place)
    try:
        return BundleManifest.model_validate_json(document)
    except ValidationError as error:
        raise ArtifactError(place, _first_fault(error), _DAMAGED) from None


def _parse_json(document: bytes, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(
            document.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        reason = "is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ArtifactError(
            place, f"is not JSON as the format wants it: {_line(reason)}", _DAMAGED
        ) from None
    if not isinstance(fields, dict):
        raise ArtifactError(place, "is not a JSON object", _DAMAGED)
    return fields


def _check_version(fields: dict[str, Any], place: str) -> None:
    """Checked before all else: a later version may have any other fields."""
    if fields.get("format") != FORMAT_NAME:
        raise ArtifactError(place, f"its format is not {FORMAT_NAME!r}", _DAMAGED)
    version = fields.get("version")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            place,
            f"format version {_line(str(version))}, but only {FORMAT_VERSION} is known here",
            "Upgrade Menagerie to read it",
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} stands twice in one object")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _first_fault(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False)
    first = faults[0]
    path = ".".join(str(step) for step in first["loc"]) or "manifest"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{_line(path)}: {_line(first['msg'])}{more}"


def _line(text: str) -> str:
    """Foreign text made fit for a terminal: printable and short."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= _LONGEST_QUOTE else shown[:_LONGEST_QUOTE] + "..."
