"""A server that takes mail and keeps it."""

from __future__ import annotations

import email
from contextlib import contextmanager
from email.policy import default
from typing import TYPE_CHECKING, Any

from aiosmtpd.controller import Controller

from infra.local.cluster import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator


class Inbox:
    """The mails that arrived, and the port of their server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.mails: list[Any] = []

    @property
    def address(self) -> str:
        """As Apprise wants it."""
        sender = "from=zoo@example.org&to=owner@example.org"
        return f"mailto://127.0.0.1:{self.port}/?{sender}"

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:  # noqa: N802
        """As aiosmtpd calls it."""
        self.mails.append(email.message_from_bytes(envelope.content, policy=default))
        return "250 OK"


@contextmanager
def receiving() -> Iterator[Inbox]:
    """A server while the block runs."""
    [port] = free_ports(1)
    inbox = Inbox(port)
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield inbox
    finally:
        controller.stop()
