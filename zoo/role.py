"""What a process is for: a worker, which runs models, never opens keys."""

from __future__ import annotations

import os

__all__ = ["ROLE", "WORKER", "is_worker"]

ROLE = "MENAGERIE_ROLE"
WORKER = "worker"


def is_worker() -> bool:
    """Whether this process belongs to a worker, as its service says by `MENAGERIE_ROLE=worker`."""
    return os.environ.get(ROLE) == WORKER
