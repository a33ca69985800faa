"""manifest.json as bytes: written in one canonical way, read with suspicion."""

from __future__ import annotations

from typing import Any

from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import (
    FORMAT_NAME,
    READABLE_VERSIONS,
    BundleManifest,
)
from menagerie.format.first_version import upgraded
from menagerie.typed_json import Malformed, check, load, whole_of_64_bits
from menagerie.typed_json import document as json_document

__all__ = ["MAX_MANIFEST_BYTES", "manifest_document", "parse_manifest"]

MAX_MANIFEST_BYTES = 8 * 2**20

_DAMAGED = "The bundle is damaged or not a bundle: pull or convert it again"


def manifest_document(manifest: BundleManifest) -> bytes:
    """The bytes of manifest.json: sorted keys, an entry a line, one newline at the end.

    What is of no use (rule 3 of FORMAT.md) is left out.
    """
    return json_document(manifest, sparse=True)


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
    try:
        fields = load(document, whole=whole_of_64_bits)
    except Malformed as error:
        raise ArtifactError(
            place, f"is not JSON as the format wants it: {error}", _DAMAGED
        ) from None
    version = _version(fields, place)
    try:
        manifest: BundleManifest = check(
            BundleManifest, upgraded(fields) if version == 1 else _named(fields)
        )
    except Malformed as error:
        raise ArtifactError(place, str(error), _DAMAGED) from None
    return manifest


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, if they have what a draft may leave out."""
    for name in ("platform", "runtime"):
        if fields.get(name) in (None, ""):
            raise Malformed(f"{name}: is missing")
    return fields


def _version(fields: object, place: str) -> int:
    """Looked at before all else: a later version may have any other fields."""
    if not isinstance(fields, dict):
        raise ArtifactError(place, "is not a JSON object", _DAMAGED)
    if fields.get("format") != FORMAT_NAME:
        raise ArtifactError(place, f"its format is not {FORMAT_NAME!r}", _DAMAGED)
    version = fields.get("version")
    if type(version) is not int or version not in READABLE_VERSIONS:
        known = " and ".join(map(str, READABLE_VERSIONS))
        raise ArtifactError(
            place,
            f"format version {repr(version)[:40]}, but only {known} are known here",
            "Upgrade Menagerie to read it",
        )
    return version
