"""The short part of the fault tests, which every test run includes: a real server and a worker.

One conversion goes through them, beside a model that crashes in the same run, and one kill.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from zoo.store import open_store

if TYPE_CHECKING:
    from toy_cluster import ToyCluster


def outcomes(cluster: ToyCluster) -> dict[str, str]:
    """How each model ended."""
    return {key.split()[0]: str(row["outcome"]) for key, row in cluster.table().items()}


def test_a_killed_flow_process_is_run_again(cluster: ToyCluster) -> None:
    """Crashed, revived by the automation, done by the same run; what was done is not done again.

    The run has a name that says what it does.
    """
    cluster.write_manifest(ant="fine", asp="segfaults", bee="sleeps 6")
    cluster.convert()
    flow = cluster.flow_process("bee")
    held = int(cluster.noted("bee")[-1].split()[0])
    flow.send_signal(signal.SIGKILL)
    ended = {"ant": "published", "asp": "crashed", "bee": "published"}
    assert outcomes(cluster) == ended
    [run] = cluster.batches()
    assert (run["name"], run["state_name"]) == ("ant and 2 more for cpu", "With failures")
    assert not cluster.is_running(held)
    assert len(cluster.noted("asp")) == 1
    assert cluster.noted("ant").count("done") == 1
    assert cluster.noted("bee").count("done") == 1
    store = open_store(cluster.store)
    assert [r.model for r in store.releases() if store.held([r.names])] == ["ant", "bee"]
