"""The flows that keep a store: verify, confirm on a device, rebuild, and collect garbage."""

from datetime import UTC, datetime
from typing import Annotated

from prefect import State, flow
from prefect.client.orchestration import get_client
from prefect.states import Failed
from pydantic import Field

from flows.connection import FlowName
from flows.convert_model import ModelChoice, TargetChoice
from flows.dispatch.clock import Clock
from flows.dispatch.confirmations import Confirmations
from flows.fan_out import load_placement
from flows.outcome.artifacts import leave_artifact
from flows.outcome.results import Confirmation, ModelResult, Outcome, Step
from flows.parameters import ConversionOptions, RunLimits, allowed_store
from flows.proofs import (
    VerifyResult,
    awaiting_device,
    rebuild,
    rebuild_markdown,
    turn_of_the_day,
    verification_markdown,
    verify_all,
)
from flows.runs import (
    NOTHING_KEPT,
    Runs,
    failed,
    first_of,
    leave_row,
    run_name,
    tag_run,
    this_run,
)
from flows.services import services
from flows.work import Collected, collect, new_work_folder
from menagerie.format.bundle_manifest import ReleaseState
from tasks.failures import explain
from tasks.retries import patiently, run_as_task
from tasks.verify import Proof, ProofOutcome, Rebuild, verify_release
from tasks.verify import confirm_release as confirm
from transforms.targets import all_targets
from zoo.errors import MenagerieError, StoreUnreachable
from zoo.store import KeepRule, Release, open_store


@flow(
    name=FlowName.VERIFY_RELEASES.value,
    flow_run_name=run_name(lambda asked: f"verify {first_of(asked['models']) or 'all releases'}"),
    **NOTHING_KEPT,
)
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
    tag_run([*models, *targets])
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


# The first target whose conversion validates nothing by itself.
_UNCONFIRMED = next(name for name, target in all_targets().items() if target.confirm_pool)


def _found(store: str, model: str, target: str, build_key: str) -> Release:
    """The release, or the candidate that nobody has promoted yet."""
    opened = open_store(store, allow_unsigned=True)
    if build_key:
        return opened.find_any(model, target, build_key)
    return opened.find(model, target)


@flow(
    name=FlowName.CONFIRM_RELEASE.value,
    flow_run_name=run_name("{model} for {target}: confirm"),
    **NOTHING_KEPT,
)
def confirm_release(
    model: ModelChoice,
    target: TargetChoice = _UNCONFIRMED,
    build_key: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = "",
    store: str = "",
) -> ModelResult | State[ModelResult]:
    """Run a published release on this machine's device; if it holds, it becomes *validated*.

    On a machine without the device it is only proven again by emulation, and stays as it is.

    Args:
        model: A published model.
        target: What for.
        build_key: Which build. Empty: the latest.
        store: Folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    tag_run([model, target])
    place = allowed_store(store)
    try:
        release = patiently(lambda: _found(place, model, target, build_key))
        row = _confirmed(place, release, target)
    except StoreUnreachable as error:  # says nothing of the release: to be asked for again
        row = _failed(model, target, build_key, error, Confirmation.WAITING)
    except MenagerieError as error:
        row = _failed(model, target, build_key, error)
    except Exception as error:  # noqa: BLE001 - the row must say what happened
        row = _failed(model, target, build_key, explain(error, model))
    leave_row(row, this_run())
    if row.succeeded:
        return row
    return failed(row.confirmation_detail or "not confirmed", row)


def _confirmed(store: str, release: Release, target: str) -> ModelResult:
    row = ModelResult(
        model=release.model,
        target=target,
        outcome=Outcome.SKIPPED,
        build_key=release.build_key,
        random_weights=release.manifest.random_weights,
        proof=release.manifest.state,
        confirmation=Confirmation.CONFIRMED,
    )
    if release.manifest.state is ReleaseState.VALIDATED:
        return row
    judge, folder = services().judge, new_work_folder(f"confirm-{release.model}-{target}")
    proof = run_as_task(
        "verify", lambda: confirm(store, release, folder, judge=judge), retried=True
    )
    row = row.model_copy(update={"seconds": proof.seconds, "proof": proof.state})
    if proof.outcome is not ProofOutcome.PROVEN:
        update = {"confirmation": Confirmation.FAILED, "confirmation_detail": proof.detail}
        return row.model_copy(update=update)
    if proof.state is ReleaseState.VALIDATED:
        return row.model_copy(update={"outcome": Outcome.PUBLISHED})
    return row.model_copy(
        update={
            "confirmation": Confirmation.WAITING,
            "confirmation_detail": f"emulated once more: this worker has no device of {target}",
        }
    )


def _failed(
    model: str,
    target: str,
    build_key: str,
    error: MenagerieError,
    confirmation: Confirmation = Confirmation.FAILED,
) -> ModelResult:
    return ModelResult(
        model=model,
        target=target,
        outcome=Outcome.FAILED,
        stage=Step.CONFIRM,
        reason=str(error),
        build_key=build_key or None,
        confirmation=confirmation,
        confirmation_detail=str(error),
    )


@flow(
    name=FlowName.REBUILD_RELEASE.value,
    flow_run_name=run_name(
        lambda asked: f"rebuild {first_of(asked['models']) or 'the release of the day'}"
    ),
    **NOTHING_KEPT,
)
def rebuild_release(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    targets: list[TargetChoice] = [],  # noqa: B006
    *,
    store: str = "",
) -> Rebuild | State[Rebuild] | None:
    """Convert a published release again and compare its files and manifest, byte for byte.

    Nothing is published. The run's state is failed if a byte differs, or the build could not be
    made again. Of all that was made by the code that this worker has, another one every day.

    Args:
        models: Only these. None: all that is published.
        targets: Only for these. None: all.
        store: Folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    place = allowed_store(store)
    release = turn_of_the_day(
        open_store(place), models, targets, datetime.now(UTC).date().toordinal()
    )
    if release is None:
        text = "Nothing that is published was made by the code of this worker.\n"
        leave_artifact("rebuild-release", "Nothing to rebuild", lambda: text)
        return None
    tag_run([release.model, release.target])
    found = rebuild(release, ConversionOptions(store=store), services().hold)
    summary = f"{found.model} for {found.target}: {found.outcome}"
    leave_artifact("rebuild-release", f"Rebuilt: {summary}", lambda: rebuild_markdown(found))
    if found.succeeded:
        return found
    return failed(f"{summary}, {found.detail}", found)


@flow(
    name=FlowName.COLLECT_GARBAGE.value,
    flow_run_name=run_name(lambda asked: "list garbage" if asked["dry_run"] else "collect garbage"),
    **NOTHING_KEPT,
)
def collect_garbage(
    keep: KeepRule = KeepRule(),  # noqa: B008 - frozen
    *,
    dry_run: bool = False,
    store: str = "",
) -> Collected | State[Collected]:
    """Remove superseded releases and files that no release names; others may publish meanwhile.

    Args:
        keep: What stays in any case.
        dry_run: Only say what would be removed.
        store: Folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    tag_run([])
    try:
        collected = collect(allowed_store(store), keep, dry_run=dry_run)
    except MenagerieError as error:
        return Failed(message=str(error))
    leave_artifact("collect-garbage", collected.summary, lambda: _markdown(collected))
    return collected


def _markdown(collected: Collected) -> str:
    removed = "".join(f"- `{key}`\n" for key in collected.swept.documents)
    return f"{collected.summary}\n\n{removed}"
