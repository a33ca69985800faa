"""Checks signatures of releases against trusted roots; needs no package for cryptography.

A *root* is root metadata of The Update Framework, https://theupdateframework.io: its owner
trusts the keys that it names for the role `targets`, as many of them as it asks for. Those sign a
release's manifest.json (rule 13 of FORMAT.md) and the ledger of each model, which says which
releases there are, which is the latest and which were retracted.
"""

from __future__ import annotations

from menagerie.trust.roots import add_root, allows_unsigned, trusted_place, trusted_roots
from menagerie.trust.signature import check_signature

__all__ = ["add_root", "allows_unsigned", "check_signature", "trusted_place", "trusted_roots"]
