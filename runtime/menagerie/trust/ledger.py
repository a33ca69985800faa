"""The ledger of a model on a platform: all promoted releases in order, signed as a whole.

It names the latest release. The releases themselves cannot, because their makers can write any
date into them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import Moment, Name, ReleaseState, Sha256
from menagerie.trust.roots import TrustRoot
from menagerie.trust.signature import LEDGER_TYPE, check_signature
from menagerie.typed_json import Malformed, check, document, from_json, load

MAX_LEDGER_BYTES = 4 * 2**20
FORMAT_NAME: Final = "menagerie-ledger"


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One decision about a release."""

    # `promote` makes it the latest, `admit` only allows its use, `rollback` makes it the latest
    # again in place of all later ones, `retract` forbids its use
    action: Literal["promote", "admit", "rollback", "retract"]
    build_key: Sha256  # of the release
    document: Sha256  # sha256 of its manifest.json; for a retraction, of the last one
    state: ReleaseState  # how the release was proven
    when: Moment  # by the signer's clock
    reason: str = ""  # for people


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """All decisions about a model's releases for a platform, oldest first."""

    format: Literal["menagerie-ledger"] = FORMAT_NAME
    version: Literal[1] = 1
    model: Name
    target: Name
    platform: str
    entries: tuple[LedgerEntry, ...] = ()

    @property
    def serial(self) -> int:
        """The number of decisions, which only grows."""
        return len(self.entries)

    @property
    def latest(self) -> LedgerEntry | None:
        """The release to use, the one promoted last; None if there is none."""
        ranked: list[LedgerEntry] = []
        for entry in self.entries:
            same = [each for each in ranked if each.build_key == entry.build_key]
            if entry.action == "promote":
                ranked = [each for each in ranked if each not in same] + [entry]
            elif entry.action == "rollback":
                while ranked and ranked[-1].build_key != entry.build_key:
                    ranked.pop()
                ranked = [*ranked[:-1], entry]
            elif entry.action == "retract":
                ranked = [each for each in ranked if each not in same]
            elif same:  # the same build with a better proof
                ranked[ranked.index(same[0])] = entry
        return ranked[-1] if ranked else None

    @property
    def usable(self) -> list[str]:
        """The build keys that may be used, in the order of their first promotion."""
        builds = dict.fromkeys(entry.build_key for entry in self.entries)
        return [key for key in builds if self.retraction(key) is None]

    def retraction(self, build_key: str) -> LedgerEntry | None:
        """Return the entry that forbids a release, unless it was promoted again later."""
        last = self.last(build_key)
        return last if last is not None and last.action == "retract" else None

    def last(self, build_key: str) -> LedgerEntry | None:
        """Return the last decision on a release."""
        return next((e for e in reversed(self.entries) if e.build_key == build_key), None)

    def names(self, build_key: str, digest: str) -> bool:
        """Return whether a release with this document was ever promoted or admitted."""
        return any(
            entry.build_key == build_key and entry.document == digest for entry in self.entries
        )

    def with_entry(self, entry: LedgerEntry) -> Ledger:
        """Return the ledger after one more decision."""
        return replace(self, entries=(*self.entries, entry))

    def document(self) -> bytes:
        """Return the canonical bytes, over which signatures are made."""
        return document(self)


def envelope(payload: bytes, signatures: Mapping[str, bytes], kind: str = LEDGER_TYPE) -> bytes:
    """Return a DSSE envelope of signed bytes."""
    return document(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": kind,
            "signatures": [
                {"keyid": keyid, "sig": base64.b64encode(each).decode()}
                for keyid, each in sorted(signatures.items())
            ],
        }
    )


def open_envelope(
    content: bytes, place: str, *, kind: str, roots: Iterable[TrustRoot] | None = None
) -> bytes:
    """Return the bytes in a DSSE envelope; raise Untrusted, or ArtifactError for another kind."""
    try:
        fields = _fields(load(content), kind)
        payload = _bytes(fields.get("payload"))
        listed: tuple[dict[str, str], ...] = check(
            tuple[dict[str, str], ...], fields.get("signatures"), "signatures"
        )
        signatures = {each.get("keyid", ""): _bytes(each.get("sig")) for each in listed}
    except Malformed as error:
        raise ArtifactError(place, f"is not a signed document: {error}", "Tell its owner") from None
    check_signature(payload, signatures, place, kind=kind, roots=roots)
    return payload


def read_ledger(content: bytes, place: str, roots: Iterable[TrustRoot] | None = None) -> Ledger:
    """Read the ledger in a signed envelope; raise Untrusted, or ArtifactError if damaged."""
    payload = open_envelope(content, place, kind=LEDGER_TYPE, roots=roots)
    try:
        return from_json(Ledger, payload)
    except Malformed as error:
        raise ArtifactError(place, f"is not a ledger: {error}", "Tell its owner") from None


def _fields(value: Any, kind: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("payloadType") != kind:
        raise Malformed(f"is no envelope of {kind}")
    return value


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(check(str, text), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("is not base64") from None
