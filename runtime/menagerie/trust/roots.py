"""The keys that this machine's owner trusts, as root metadata of The Update Framework."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from menagerie.durable import disk_errors, make_folders, write_durably
from menagerie.errors import ArtifactError
from menagerie.paths import home, require_own
from menagerie.typed_json import Malformed, check, load

TRUST = "MENAGERIE_TRUST"
ALLOW_UNSIGNED = "MENAGERIE_ALLOW_UNSIGNED"
WARNING = (
    "unsigned bundles are allowed: no trusted key has signed them, and each is native code that "
    "may do whatever you may"
)
MAX_ROOT_BYTES = 64 * 2**10
_KEY = re.compile(r"[0-9a-f]{64}")
_MOST_ROOTS = 100


def trusted_place() -> Path:
    """Return `$MENAGERIE_TRUST`, a file or folder of trusted roots, else `trust` in `home()`.

    `menagerie-run` looks there too. Raise UsageError if another user owns it or may write to it,
    and so could have put any root there, and StoreError if it cannot be read.
    """
    asked = os.environ.get(TRUST)
    place = Path(asked).expanduser().absolute() if asked else home() / "trust"
    with disk_errors(place):
        if place.exists():
            require_own(place, f"Remove it, or set {TRUST} to a file or folder of your own")
    return place


def allows_unsigned(asked: bool | None = None) -> bool:
    """Return whether unsigned bundles are accepted; None: `MENAGERIE_ALLOW_UNSIGNED=1` decides."""
    return os.environ.get(ALLOW_UNSIGNED) == "1" if asked is None else asked


@dataclass(frozen=True)
class TrustRoot:
    """The keys for releases in a trusted root, and the number of them that must sign."""

    keys: Mapping[str, bytes]  # Ed25519 public keys, 32 bytes each, by key id
    threshold: int  # the number of keys that must have signed
    version: int  # of the root, from 1
    document: bytes  # its metadata, byte for byte
    place: str  # where the root was read


def parse_root(document: bytes, place: str) -> TrustRoot:
    """Read root metadata, or raise ArtifactError. Its own signatures are not verified here."""
    try:
        keys, threshold, version = _read(bounded(document, MAX_ROOT_BYTES))
    except Malformed as error:
        fact = f"is not a trusted root: {error}"
        raise ArtifactError(place, fact, "Ask its sender for root.json") from None
    return TrustRoot(keys, threshold, version, document, place)


def trusted_roots(place: Path | None = None) -> tuple[TrustRoot, ...]:
    """Return the trusted roots, by default from `trusted_place()`; ArtifactError if damaged."""
    place = place or trusted_place()
    with disk_errors(place):
        paths = sorted(place.glob("*.json"))[:_MOST_ROOTS] if place.is_dir() else [place]
        found = []
        for path in filter(Path.is_file, paths):
            with path.open("rb") as file:
                found.append(parse_root(file.read(MAX_ROOT_BYTES + 1), str(path)))
    return tuple(found)


def add_root(document: bytes, place: str, folder: Path | None = None) -> TrustRoot:
    """Save a trusted root in a file that only its owner may write; raise ArtifactError if bad."""
    root = parse_root(document, place)
    folder = folder or trusted_place()
    with disk_errors(folder):
        make_folders(folder)
        path = folder / f"{hashlib.sha256(document).hexdigest()[:16]}.json"
        write_durably(path, document, partial=path.with_suffix(".partial"))
    return root


def bounded(content: bytes, most: int) -> bytes:
    """Return `content`, or raise Malformed if it exceeds the given number of bytes."""
    if len(content) > most:
        raise Malformed(f"has more than {most:,} bytes")
    return content


def _read(document: bytes) -> tuple[dict[str, bytes], int, int]:
    """Return the root's keys, threshold and version."""
    signed = _object(load(document), "signed")
    if signed.get("_type") != "root":
        raise Malformed("signed._type: is not 'root'")
    role, known = _object(_object(signed, "roles"), "targets"), _object(signed, "keys")
    ids: tuple[str, ...] = check(tuple[str, ...], role.get("keyids"), "roles.targets.keyids")
    threshold: int = check(int, role.get("threshold"), "roles.targets.threshold")
    version: int = check(int, signed.get("version"), "version")
    if threshold < 1 or version < 1:
        raise Malformed("threshold and version are at least 1")
    listed = {i: _object(known, i) for i in ids}
    keys = {i: _public(key) for i, key in listed.items() if key.get("keytype") == "ed25519"}
    return keys, threshold, version


def _object(value: Any, name: str) -> dict[str, Any]:
    inner = value.get(name) if isinstance(value, dict) else None
    if not isinstance(inner, dict):
        raise Malformed(f"{name}: is missing or no object")
    return inner


def _public(key: dict[str, Any]) -> bytes:
    text = _object(key, "keyval").get("public")
    if not isinstance(text, str) or not _KEY.fullmatch(text):
        raise Malformed("keyval.public: is not 64 hexadecimal digits")
    return bytes.fromhex(text)
