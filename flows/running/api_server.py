"""The embedded Prefect server: `python -m flows.running.api_server FD`, on an inherited socket.

It lives as long as its standard input is open, so it cannot outlive the command that started it,
not even when that is killed.
"""

from __future__ import annotations

import os
import sys
import threading

__all__ = ["main"]


def main() -> None:
    """Serve the API until standard input ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    uvicorn.run(
        create_app, factory=True, fd=int(sys.argv[1]), log_level="error", lifespan="on", workers=1
    )


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
