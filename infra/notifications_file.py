"""Which file says who hears of what; see `infra.notifications`, which needs Prefect to read it."""

from __future__ import annotations

import os
from pathlib import Path


def notifications_file() -> Path:
    """The file that MENAGERIE_NOTIFICATIONS names, else our own, which tells nobody."""
    named = os.environ.get("MENAGERIE_NOTIFICATIONS")
    return Path(named or Path(__file__).with_name("notifications.yaml"))
