"""The local cluster: Prefect's server, an S3 server and a worker on loopback, and how to reach it.

What the rest of Menagerie needs of it is small:

- `connection()` says which Prefect server is meant, if any: the one that `PREFECT_API_URL` names,
  else the local cluster that `zoo up` left running, else None (then Prefect is embedded).
- `connection().environment()` is what a process needs to use it. On a worker it is all set already,
  and flows find everything in their environment.
"""

from __future__ import annotations

from flows.cluster.connection import Connection, connection

__all__ = ["Connection", "connection"]
