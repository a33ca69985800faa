"""A secret between the servers of Swift, which by themselves answer whoever reaches their ports.

Every user of a machine reaches its loopback: without this, any of them could list, read and replace
what the proxy guards. The token lives in this process alone and is another one at each start.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_HEADER = "X-Menagerie-Inner-Token"
_IN_ENVIRON = "HTTP_" + _HEADER.upper().replace("-", "_")


class InnerToken:
    """A token of this process: what it sends bears it, and what it guards asks for it."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(32)

    def send(self) -> None:
        """From now on, whatever one of Swift's servers asks of another bears the token."""
        from swift.common import bufferedhttp  # type: ignore[import-untyped]

        token = self._token

        class Connection(bufferedhttp.BufferedHTTPConnection):  # type: ignore[misc]
            def putrequest(self, *order: Any, **options: Any) -> None:
                super().putrequest(*order, **options)
                self.putheader(_HEADER, token)

        bufferedhttp.BufferedHTTPConnection = Connection

    def guard(self, application: Application) -> Application:
        """The WSGI application, but 403 for every request without the token."""

        def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            given = environ.pop(_IN_ENVIRON, "").encode("latin-1")
            if hmac.compare_digest(given, self._token.encode()):
                return application(environ, start_response)
            start_response("403 Forbidden", [("Content-Length", "0")])
            return [b""]

        return guarded
