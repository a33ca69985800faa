"""A TCP forwarder on loopback that breaks connections where a test wants them broken."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 65536


class Forwarder:
    """Forwards to a port of 127.0.0.1 and counts the bytes of both directions.

    ``cuts`` holds pairs of a direction's byte count and what to do when it is passed; a cut closes
    the connection at hand after doing that, and is then forgotten. ``pace`` slows every connection
    down to so many bytes a second. After ``deaf_after`` bytes up nothing passes any more, though
    connections are still taken.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.sent = {"up": 0, "down": 0}
        self.cuts: dict[str, list[tuple[int, Callable[[], object]]]] = {"up": [], "down": []}
        self.pace: float | None = None
        self.deaf_after: int | None = None
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        _close(self._listener)
        for each in self._open:
            _close(each)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    _close(client)
                    continue
                self._open += [client, server]
                for way in (("up", client, server), ("down", server, client)):
                    thread = threading.Thread(target=self._pump, args=way)
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, way: str, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                self.sent[way] += len(chunk)
                if self.cuts[way] and self.sent[way] > self.cuts[way][0][0]:
                    self.cuts[way].pop(0)[1]()
                    break
                self._hold(len(chunk))
                sink.sendall(chunk)
        _close(source)
        _close(sink)

    def _hold(self, count: int) -> None:
        """Keep a chunk for as long as the line is slow; for ever, if it is deaf."""
        if self.deaf_after is not None and self.sent["up"] > self.deaf_after:
            self._ended.wait()
        elif self.pace is not None:
            self._ended.wait(count / self.pace)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
