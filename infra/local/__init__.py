"""A cluster to try things on: Prefect's server, an S3 server and a worker, on loopback.

`cluster` has the commands of `zoo cluster`; supervisord runs what `supervisord.conf` lists, and
starts again what dies. What other commands need to know of the cluster is in `flows.connection`.
"""
