"""One process of the S3 server: `python -P swift_node.py PROGRAM CONF [with-parent]`.

PROGRAM is account, container, object or proxy; `rings FOLDER KIND=PORT...` writes where those are.
`with-parent` is for tests: on Linux the kernel then ends the process when its parent dies, however
that dies.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_MODULES = {"object": "swift.obj.server"}


def main() -> int:
    """Serve until a signal ends it."""
    program, place, *others = sys.argv[1:]
    if program == "rings":
        return write_rings(place, dict(each.split("=") for each in others))
    if others and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = importlib.import_module(_MODULES.get(program, f"swift.{program}.server"))
    sys.argv[1:] = [place]  # Swift parses them itself
    return int(server.main() or 0)


def write_rings(folder: str, ports: dict[str, str]) -> int:
    """One replica on one device: the smallest ring there is."""
    from swift.common.ring import RingBuilder  # type: ignore[import-untyped]

    for kind, port in ports.items():
        builder = RingBuilder(2, 1, 0)
        here = {"ip": "127.0.0.1", "port": int(port), "device": "d1", "region": 1, "zone": 1}
        copied = {"replication_ip": "127.0.0.1", "replication_port": int(port)}
        builder.add_dev({"id": 0, "weight": 1.0, "meta": "", **here, **copied})
        builder.rebalance()
        builder.get_ring().save(f"{folder}/{kind}.ring.gz")
    return 0


def tempauth(global_conf: dict[str, str], **local: str) -> Any:
    """Swift's tempauth with its one user's secret from the environment instead of a file.

    A filter as paste.deploy wants it; `key_name` names account:user in the conf file.
    """
    from swift.common.middleware import tempauth as theirs  # type: ignore[import-untyped]

    account, user = local.pop("key_name").split(":")
    known = {f"user_{account}_{user}": f"{os.environ['MENAGERIE_SWIFT_SECRET']} .admin"}
    return theirs.filter_factory(global_conf, **local, **known)


if __name__ == "__main__":
    sys.exit(main())
