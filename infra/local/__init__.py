"""A cluster to try things on: Prefect's server, an S3 server and a worker, on loopback.

`python -m infra.local up|down|status` is what `zoo up`, `zoo down` and `zoo status` run. The
processes stand in a table (`processes`); supervisord carries them. What other commands need to know
of the cluster is in `flows.connection`.
"""
