"""The flow in which a device confirms a release that was published as emulated."""

from typing import Annotated

from prefect import State, flow
from pydantic import Field

from flows.machine.work import new_work_folder
from flows.names import FlowName
from flows.outcome.results import Confirmation, ModelResult, Outcome, Step
from flows.outcome.rows import leave_row, this_run
from flows.request.choices import ModelChoice, TargetChoice
from flows.request.parameters import allowed_store
from flows.running.services import services
from flows.running.settings import NOTHING_KEPT, failed
from menagerie.format.bundle_manifest import ReleaseState
from tasks.failures import explain
from tasks.retries import patiently, run_as_task
from tasks.verify import ProofOutcome
from tasks.verify import confirm_release as confirm
from transforms.targets import all_targets
from zoo.errors import MenagerieError, StoreUnreachable
from zoo.store import Release, open_store

__all__ = ["confirm_release"]

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
    flow_run_name="{model} for {target}: confirm",
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
