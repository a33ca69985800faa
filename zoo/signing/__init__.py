"""Who may sign releases: keys, the store's metadata, and what a promotion checks."""

from __future__ import annotations

from zoo.signing.keyring import Expiry, Keyring, Role, keyring_for
from zoo.signing.metadata import StoreMetadata
from zoo.signing.promotion import Promoter, check_candidate, sign_bundle, sign_own

__all__ = [
    "Expiry",
    "Keyring",
    "Promoter",
    "Role",
    "StoreMetadata",
    "check_candidate",
    "keyring_for",
    "sign_bundle",
    "sign_own",
]
