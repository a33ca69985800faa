"""A cluster to try things on: Prefect's server, an S3 server and a worker, on loopback.

`zoo up`, `zoo status` and `zoo down` call `up`, `status` and `down`. The processes stand in a table
(`processes`); supervisord carries them. What other commands need to know of the cluster is in
`flows.local_cluster`.
"""
