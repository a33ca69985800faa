"""Ports of 127.0.0.1 for the servers of the local cluster."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

__all__ = ["free_ports", "is_free"]


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens on now."""
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 there now."""
    with socket.socket() as each:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do it themselves
        with suppress(OSError):
            each.bind(("127.0.0.1", port))
            return True
        return False
