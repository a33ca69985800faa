"""What this machine's owner has decided: whose keys count, and whether anybody's must."""

from __future__ import annotations

import os
from pathlib import Path

from menagerie.home import home

__all__ = ["ALLOW_UNSIGNED", "TRUST", "WARNING", "allows_unsigned", "trusted_place"]

TRUST = "MENAGERIE_TRUST"
ALLOW_UNSIGNED = "MENAGERIE_ALLOW_UNSIGNED"
WARNING = (
    "unsigned bundles are allowed: nobody vouches for them, and each is native code that may do "
    "whatever you may"
)


def trusted_place() -> Path:
    """The trusted roots: `$MENAGERIE_TRUST`, a file or a folder of them, else `trust` in `home()`.

    `menagerie-run` looks there too.
    """
    asked = os.environ.get(TRUST)
    return Path(asked).expanduser().absolute() if asked else home() / "trust"


def allows_unsigned(asked: bool | None = None) -> bool:
    """Whether bundles that nobody signed are taken.

    Args:
        asked: what a caller said; None: `MENAGERIE_ALLOW_UNSIGNED=1` decides.
    """
    return os.environ.get(ALLOW_UNSIGNED) == "1" if asked is None else asked
