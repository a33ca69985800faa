"""Ports of 127.0.0.1 for the servers of the local cluster."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from itertools import islice

# Below the ports that Linux (32768) and macOS (49152) lend to outgoing connections: one of those
# may be taken between our look and the server's start.
_RANGE = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens on now, chosen at random."""
    order = random.SystemRandom().sample(_RANGE, len(_RANGE))
    return list(islice(filter(is_free, order), count))


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 there now."""
    with socket.socket() as each:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do it themselves
        with suppress(OSError):
            each.bind(("127.0.0.1", port))
            return True
        return False
