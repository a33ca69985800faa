"""A release's signature in the format of OpenSSF Model Signing 1.0, for tools that need it.

`model_signing verify key` of PyPI's `model-signing` reads it: a Sigstore bundle
(https://docs.sigstore.dev/about/bundle) around an in-toto statement that names every file with its
sha256 (https://github.com/sigstore/model-transparency, its README and `model_signing/_signing`). A
signature by a key is in no transparency log. Menagerie's own tools check `signature.json`, which
is signed with other keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from menagerie.format.bundle_manifest import MODEL_SIGNATURE, SIGNATURE
from menagerie.trust.ledger import envelope
from menagerie.trust.signature import encoded

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

IN_TOTO: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "https://model_signing/signature/v1.0"
_BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
# Other files that the folder may hold: our signature, which is renewed when keys are rotated, this
# signature, and the files of a cloned repository.
_IGNORED = (SIGNATURE, MODEL_SIGNATURE, ".git", ".gitattributes", ".github", ".gitignore")


def model_signature(name: str, files: Mapping[str, str], key: CryptoSigner) -> bytes:
    """Return the bytes of model.sig.

    `files` maps paths in the folder, except the two signatures, to their sha256. `name` is the
    model's name for readers, and `key` is the promoter's key on the curve P-256.
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
    public = key.public_key.keyval["public"].encode()
    signature = bytes.fromhex(key.sign(encoded(IN_TOTO, payload)).signature)
    bundle = {
        "mediaType": _BUNDLE,
        "verificationMaterial": {
            "publicKey": {"hint": hashlib.sha256(public).hexdigest()},
            "tlogEntries": [],
        },
        "dsseEnvelope": json.loads(envelope(payload, {"": signature}, IN_TOTO)),
    }
    return json.dumps(bundle).encode() + b"\n"
