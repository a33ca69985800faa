"""Ed25519 signatures, checked by the library that the runtime is built with."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

import menagerie
from menagerie.errors import SessionError

__all__ = ["is_signed"]

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64


def is_signed(signature: bytes, key: bytes, message: bytes) -> bool:
    """Whether the holder of an Ed25519 key (RFC 8032) signed `message`.

    Args:
        signature: 64 bytes; of another length it is none.
        key: 32 bytes, the public key.
        message: of any length.

    Raises:
        SessionError: the runtime is not built.
    """
    if len(signature) != _SIGNATURE_BYTES or len(key) != _KEY_BYTES:
        return False
    return bool(_library().menagerie_ed25519_check(signature, key, message, len(message)) == 0)


@cache
def _library() -> ctypes.CDLL:
    name = f"libmenagerie-signature.{'dylib' if sys.platform == 'darwin' else 'so'}"
    for folder in menagerie.__path__:
        if (path := Path(folder) / name).is_file():
            loaded = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
            texts = [ctypes.c_char_p] * 3
            loaded.menagerie_ed25519_check.argtypes = [*texts, ctypes.c_size_t]
            loaded.menagerie_ed25519_check.restype = ctypes.c_int
            return loaded
    raise SessionError(name, "is not built", "Build and install the package: make setup")
