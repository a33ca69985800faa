"""Submit many runs at once to a running local cluster, and watch `zoo cluster status` meanwhile.

`python benchmarks/burst.py` after `zoo cluster up`: 200 runs through the function behind
`zoo convert --no-wait`, each by a client of its own. Exit code 0: every run was taken, none twice,
every status came within 10 s, and one said busy. The pool is paused meanwhile, so that nothing is
converted, and all submitted runs are deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.options import use_cluster
from flows.prefect_api import prefect_api

if TYPE_CHECKING:
    from uuid import UUID

    from flows.plan import PlannedModel

ZOO = Path(sys.executable).with_name("zoo")
POOL = "linux-cpu"
STATUS_SECONDS = 10.0


@dataclass(frozen=True)
class Status:
    """One answer of `zoo cluster status`."""

    seconds: float
    busy: bool


def main() -> int:
    """Submit runs, watch the status, count the runs and delete them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--model", default="digits_cnn")
    parser.add_argument("--json", action="store_true", help="Figures on standard output as JSON.")
    asked = parser.parse_args()
    if use_cluster(lambda found: found.environment()) is None:
        parser.error("no cluster is up: run `zoo cluster up`")
    with prefect_api():
        figures = _burst(asked.model, asked.runs)
    print(json.dumps(figures) if asked.json else _words(figures))
    return 0 if figures["held"] else 1


def _burst(model: str, count: int) -> dict[str, Any]:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolUpdate

    from flows.parameters import ConversionOptions
    from flows.plan import plan

    [one] = plan([model], ["cpu"], ConversionOptions(force=True))
    with get_client(sync_client=True) as client:
        client.update_work_pool(POOL, WorkPoolUpdate(is_paused=True))
        known = _runs(client, one)
        try:
            took, ids, failures, answers = _submitted(one, count)
            made = _runs(client, one) - known
        finally:
            for run in _runs(client, one) - known:
                client.delete_flow_run(run)
            client.update_work_pool(POOL, WorkPoolUpdate(is_paused=False))
    slowest = max(answer.seconds for answer in answers)
    busy = any(answer.busy for answer in answers)
    return {
        "runs": count,
        "seconds": round(took, 1),
        "taken": len(ids),
        "twice": len(made) - len(ids),
        "failures": failures,
        "status_answers": len(answers),
        "slowest_status_seconds": round(slowest, 1),
        "busy": busy,
        "held": set(ids) == made and len(ids) == count and busy and slowest <= STATUS_SECONDS,
    }


def _submitted(one: PlannedModel, count: int) -> tuple[float, list[UUID], list[str], list[Status]]:
    """Submit all runs at once; read the status until the last one is accepted."""
    from prefect.client.orchestration import get_client

    from flows.batches import submit_all
    from flows.parameters import ConversionOptions
    from flows.runs import Runs

    def submit() -> UUID:
        with get_client(sync_client=True) as client:
            [batch] = submit_all(Runs(client, None), [one], ConversionOptions(force=True))
        assert batch.run is not None
        return batch.run.id

    answers: list[Status] = []
    began = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        futures: list[Future[UUID]] = [pool.submit(submit) for _ in range(count)]
        while not answers or wait(futures, 0).not_done:
            answers.append(_status())
        wait(futures)
    took = time.perf_counter() - began
    errors = [future.exception() for future in futures]
    failures = [f"{type(error).__name__}: {error}" for error in errors if error is not None]
    ids = [future.result() for future in futures if future.exception() is None]
    return took, ids, failures, answers


def _status() -> Status:
    began = time.perf_counter()
    done = subprocess.run([ZOO, "cluster", "status", "--json"], capture_output=True, check=False)
    took = time.perf_counter() - began
    checks = json.loads(done.stdout)["checks"]
    return Status(took, any(each["detail"].startswith("busy") for each in checks))


def _runs(client: Any, one: PlannedModel) -> set[UUID]:
    """Return the ids of all runs that convert this model."""
    from prefect.client.schemas.filters import FlowRunFilter

    its = FlowRunFilter.model_validate({"tags": {"all_": [one.model, one.target]}})
    found: set[UUID] = set()
    while page := client.read_flow_runs(flow_run_filter=its, limit=200, offset=len(found)):
        found |= {run.id for run in page}
    return found


def _words(figures: dict[str, Any]) -> str:
    taken = "{taken} of {runs} runs were taken in {seconds} s, {twice} twice"
    status = "{status_answers} answers of the status, the slowest in {slowest_status_seconds} s"
    busy = "busy: {busy}"
    return "\n".join(
        [*(line.format(**figures) for line in (taken, status, busy)), *figures["failures"][:5]]
    )


if __name__ == "__main__":
    sys.exit(main())
