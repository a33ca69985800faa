"""Detached signatures over content in DSSE's encoding for authentication.

The encoding (https://github.com/secure-systems-lab/dsse/blob/master/protocol.md) binds
the type to the bytes, so that content signed as one type cannot pass as another.
The library with which the runtime is built verifies Ed25519 itself.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final, Literal

from menagerie.errors import ArtifactError, Untrusted
from menagerie.format.bundle_manifest import Sha256
from menagerie.paths import built
from menagerie.trust.roots import TrustRoot, bounded, trusted_roots
from menagerie.typed_json import Malformed, document, from_json, matching

BUNDLE_TYPE: Final = "application/vnd.menagerie.bundle+json"
LEDGER_TYPE: Final = "application/vnd.menagerie.ledger+json"
MAX_SIGNATURE_BYTES = 64 * 2**10
_signature = matching("[0-9a-f]{128}", "a signature is 128 lower-case hexadecimal digits")
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_ADVICE = (
    "Trust its owner's root (`menagerie trust root.json`), or take it as it is with "
    "--allow-unsigned, in Python allow_unsigned=True, as native code of unproven origin"
)


@dataclass(frozen=True)
class _Entry:
    keyid: Sha256
    sig: Annotated[str, _signature]


@dataclass(frozen=True, kw_only=True)
class _Signatures:
    """The content of the signature.json next to a manifest."""

    format: Literal["menagerie-signature"] = "menagerie-signature"
    version: Literal[1] = 1
    signatures: tuple[_Entry, ...]

    def __post_init__(self) -> None:
        if len({entry.keyid for entry in self.signatures}) != len(self.signatures):
            raise ValueError("a key has signed twice")


def encoded(kind: str, content: bytes) -> bytes:
    """Return the bytes to sign for `content` of the media type `kind`."""
    return f"DSSEv1 {len(kind)} {kind} {len(content)} ".encode() + content


def signature_document(signatures: Mapping[str, bytes]) -> bytes:
    """Return the bytes of signature.json for signatures by key id."""
    entries = [_Entry(keyid, each.hex()) for keyid, each in sorted(signatures.items())]
    return document(_Signatures(signatures=tuple(entries)))


def read_signatures(content: bytes, place: str) -> dict[str, bytes]:
    """Return signature.json's signatures by key id; raise ArtifactError if it is malformed."""
    try:
        found = from_json(_Signatures, bounded(content, MAX_SIGNATURE_BYTES))
    except Malformed as error:
        raise ArtifactError(place, f"its signature is damaged: {error}", "Pull it again") from None
    return {entry.keyid: bytes.fromhex(entry.sig) for entry in found.signatures}


def check_signature(
    content: bytes,
    signatures: bytes | Mapping[str, bytes] | None,
    place: str,
    *,
    kind: str = BUNDLE_TYPE,
    roots: Iterable[TrustRoot] | None = None,
) -> None:
    """Raise Untrusted unless enough trusted keys have signed exactly these bytes.

    `signatures` is the bytes of a signature.json, or its parsed content; None if there is none.
    `roots` defaults to the roots of this machine's owner; `kind` is the media type of `content`.
    Raise ArtifactError if the signatures are damaged.
    """
    if signatures is None:
        raise Untrusted(place, "nobody has signed this bundle, and it is native code", _ADVICE)
    found = (
        read_signatures(signatures, place) if isinstance(signatures, bytes) else dict(signatures)
    )
    message = encoded(kind, content)
    known = False
    for root in trusted_roots() if roots is None else roots:
        theirs = {i: key for i, key in root.keys.items() if i in found}
        known = known or bool(theirs)
        signers = {key for i, key in theirs.items() if is_signed(found[i], key, message)}
        if len(signers) >= root.threshold:
            return
    if known:
        fact = "is damaged: it is not what was signed"
        raise Untrusted(place, fact, "Pull it again; if that does not help, tell its owner")
    raise Untrusted(place, "no trusted key has signed it", _ADVICE)


def is_signed(signature: bytes, key: bytes, message: bytes) -> bool:
    """Return whether the holder of an Ed25519 key (RFC 8032, 32 bytes) signed `message`.

    A signature of another length than 64 bytes is not valid. Raise SessionError if the runtime is
    not built.
    """
    if len(signature) != _SIGNATURE_BYTES or len(key) != _KEY_BYTES:
        return False
    return bool(_library().menagerie_ed25519_check(signature, key, message, len(message)) == 0)


@cache
def _library() -> ctypes.CDLL:
    name = f"libmenagerie-signature.{'dylib' if sys.platform == 'darwin' else 'so'}"
    loaded = ctypes.CDLL(str(built(name)), mode=ctypes.RTLD_LOCAL)
    loaded.menagerie_ed25519_check.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_size_t]
    loaded.menagerie_ed25519_check.restype = ctypes.c_int
    return loaded
