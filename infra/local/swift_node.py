"""One process of the S3 server: `python -P swift_node.py PROGRAM CONF [with-parent]`.

PROGRAM is account, container, object or proxy. `with-parent` is for tests: on Linux the kernel then
ends the process when its parent dies, however that dies.
"""

from __future__ import annotations

import ctypes
import importlib
import signal
import sys

_PR_SET_PDEATHSIG = 1
_MODULES = {"object": "swift.obj.server"}


def main() -> int:
    """Serve until a signal ends it."""
    program, conf, *mode = sys.argv[1:]
    if mode and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = importlib.import_module(_MODULES.get(program, f"swift.{program}.server"))
    sys.argv[1:] = [conf]  # Swift parses them itself
    return int(server.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
