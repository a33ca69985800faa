"""What a process is for: a worker, which runs models, never opens keys."""

from __future__ import annotations

import os

__all__ = ["OWN_STORE", "ROLE", "WORKER", "is_worker", "owns"]

ROLE = "MENAGERIE_ROLE"
WORKER = "worker"
OWN_STORE = "MENAGERIE_OWN_STORE"


def is_worker() -> bool:
    """Whether this process belongs to a worker, as its service says by `MENAGERIE_ROLE=worker`."""
    return os.environ.get(ROLE) == WORKER


def owns(store: str) -> bool:
    """Whether it is this user's own store, though a worker asks: that of `zoo up`, and its worker.

    They run as the user whose keys they are, on his machine; a promotion by hand would judge by the
    same manifest what the same processes proved.
    """
    return os.environ.get(OWN_STORE) == store
