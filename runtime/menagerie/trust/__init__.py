"""Verification of releases' signatures against trusted roots, without a package for cryptography.

A *root* is root metadata of The Update Framework, https://theupdateframework.io: its owner
trusts the keys that it names for the role `targets`, and it sets how many of them must sign. They
sign a release's manifest.json (rule 13 of FORMAT.md) and the ledger of each model, which lists the
releases, and names the latest one and those that were retracted.
"""

from __future__ import annotations

from menagerie.trust.roots import add_root, allows_unsigned, trusted_place, trusted_roots
from menagerie.trust.signature import check_signature

__all__ = ["add_root", "allows_unsigned", "check_signature", "trusted_place", "trusted_roots"]
