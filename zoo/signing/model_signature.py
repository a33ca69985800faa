"""A release's signature in the form of OpenSSF Model Signing 1.0, for tools that know no other.

`model_signing verify key` of PyPI's `model-signing` reads it: a Sigstore bundle
(https://docs.sigstore.dev/about/bundle) around an in-toto statement that names every file with its
sha256 (https://github.com/sigstore/model-transparency, its README and `model_signing/_signing`). A
key by itself is in no transparency log. Menagerie's own tools check `signature.json`, which a key
of this kind has no part in.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from menagerie.format.bundle_manifest import MODEL_SIGNATURE, SIGNATURE
from menagerie.trust.signature import encoded
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

IN_TOTO: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "https://model_signing/signature/v1.0"
_BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
# What may lie in the folder besides: our signature, which is made anew when keys are rotated, this
# one, and what a clone of a repository has.
_BRING = "Bring the right one"
_IGNORED = (SIGNATURE, MODEL_SIGNATURE, ".git", ".gitattributes", ".github", ".gitignore")


def new_key() -> bytes:
    """A private key on the curve P-256, in PEM."""
    made = ec.generate_private_key(ec.SECP256R1())
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key in a PEM file.

    Raises:
        UsageError: it holds none on P-256.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(str(path), f"is no private key ({error})", _BRING) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise UsageError(str(path), "is no key on the curve P-256", _BRING)
    return key


def public_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """What others check signatures with, in PEM."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def model_signature(name: str, files: Mapping[str, str], key: ec.EllipticCurvePrivateKey) -> bytes:
    """The bytes of model.sig.

    Args:
        name: of the model, for people.
        files: the sha256 of each file by its path in the folder, but of the two signatures.
        key: of who promotes.
    """
    listed = sorted(files.items())
    whole = hashlib.sha256(b"".join(bytes.fromhex(digest) for _, digest in listed))
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": whole.hexdigest()}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": list(_IGNORED),
            },
            "resources": [
                {"name": path, "algorithm": "sha256", "digest": digest} for path, digest in listed
            ],
        },
    }
    payload = json.dumps(statement).encode()
    signature = key.sign(encoded(IN_TOTO, payload), ec.ECDSA(hashes.SHA256()))
    bundle = {
        "mediaType": _BUNDLE,
        "verificationMaterial": {
            "publicKey": {"hint": hashlib.sha256(public_key(key)).hexdigest()},
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": IN_TOTO,
            "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
        },
    }
    return json.dumps(bundle).encode() + b"\n"
