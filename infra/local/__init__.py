"""A cluster to try things on: Prefect's server, an S3 server and a worker, on loopback.

`python -m infra.local up|down|status` is what `zoo cluster` runs: `cluster` brings it up, ends it
and looks at it, supervisord carries the table in `processes` and starts again what dies. What other
commands need to know of the cluster is in `flows.connection`.
"""
