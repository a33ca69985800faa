"""A cluster for trying things: Prefect's server, an S3 server and a worker, on loopback.

`cluster` has the commands of `zoo cluster`; supervisord runs the processes in `supervisord.conf`
and restarts those that die. `flows.connection` has what other commands need to know of it.
"""
