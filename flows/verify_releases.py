"""The flow that proves again what is published: nightly, on whatever machine its worker is."""

from typing import Annotated

from prefect import State, flow
from prefect.client.orchestration import get_client
from pydantic import Field

from flows.dispatch.clock import Clock
from flows.dispatch.confirmations import Confirmations
from flows.dispatch.runs import Runs
from flows.machine.work import new_work_folder
from flows.names import FlowName
from flows.outcome.artifacts import leave_artifact
from flows.outcome.notices import Notice, tell
from flows.outcome.results import ModelResult, Outcome
from flows.outcome.rows import this_run
from flows.planning.placement import load_placement
from flows.request.choices import ModelChoice, TargetChoice
from flows.request.parameters import RunLimits, allowed_store
from flows.run_names import own_name
from flows.running.services import services
from flows.running.settings import NOTHING_KEPT, failed
from flows.schedules import give_way_to_later
from flows.verification import (
    VerifyResult,
    awaiting_device,
    verification_markdown,
    verify_all,
)
from tasks.retries import run_as_task
from tasks.verify import Proof, verify_release
from zoo.store import Release, open_store

__all__ = ["verify_releases"]


_NAME = FlowName.VERIFY_RELEASES


@flow(name=_NAME.value, flow_run_name=own_name(_NAME), **NOTHING_KEPT)
def verify_releases(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    targets: list[TargetChoice] = [],  # noqa: B006
    *,
    every_build: bool = False,
    threads: Annotated[int, Field(ge=1, le=256)] = 1,
    store: str = "",
) -> VerifyResult | State[VerifyResult]:
    """Pull releases, run their golden cases in a fresh process, and say which still hold.

    Nothing is removed: the verdict is noted beside the release, and the run's state is failed if
    one does not hold. What is for another kind of machine is named and passed over. What the store
    has as emulated is asked to be confirmed on a device, where that does not stand in a queue yet.

    Args:
        models: Only these. None: all that is published.
        targets: Only for these. None: all.
        every_build: Not only the latest release of each model and target, but all of them.
        threads: Threads to run with.
        store: Folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    if (skipped := give_way_to_later()) is not None:
        return skipped
    place = allowed_store(store)
    judge = services().judge

    def prove(release: Release) -> Proof:
        folder = new_work_folder(f"verify-{release.model}-{release.target}")
        return run_as_task(
            "verify",
            lambda: verify_release(place, release, folder, threads=threads, judge=judge),
            retried=True,
            run_name=f"{release.model} for {release.target}",
        )

    result = verify_all(place, models, targets, prove, every_build=every_build)
    leave_artifact(
        "verify-releases",
        f"Verification: {result.summary}",
        lambda: verification_markdown(result),
    )
    _ask_devices(store)
    if not result.succeeded:
        tell(Notice.REFUTED, f"verification: {result.summary}", verification_markdown(result))
        return failed(result.summary, result)
    return result


def _ask_devices(store: str) -> None:
    """Have devices confirm what the store has as emulated, as far as the server waits for none."""
    rows = [
        ModelResult(
            model=release.model,
            target=release.target,
            outcome=Outcome.SKIPPED,
            build_key=release.build_key,
            proof=release.manifest.state,
        )
        for release in awaiting_device(open_store(allowed_store(store)))
    ]
    with get_client(sync_client=True) as client:
        runs, placement = Runs(client, this_run()), load_placement()
        Confirmations(runs, placement, RunLimits(), store, Clock()).ask(rows)
