"""Swift's tempauth with its one user's secret from the environment instead of a file."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["filter_factory"]


def filter_factory(global_conf: dict[str, str], **local: str) -> Any:
    """Make the filter, as paste.deploy wants it; `key_name` names account:user in the conf file."""
    from swift.common.middleware import tempauth  # type: ignore[import-untyped]

    account, user = local.pop("key_name").split(":")
    known = {f"user_{account}_{user}": f"{os.environ['MENAGERIE_SWIFT_SECRET']} .admin"}
    return tempauth.filter_factory(global_conf, **local, **known)
