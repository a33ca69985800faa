"""The flow that makes a release again: nightly, another one every day."""

from datetime import UTC, datetime

from prefect import State, flow

from flows.names import FlowName
from flows.outcome.artifacts import leave_artifact
from flows.outcome.notices import Notice, tell
from flows.rebuilding import rebuild, rebuild_markdown, turn_of_the_day
from flows.request.choices import ModelChoice, TargetChoice
from flows.request.parameters import ConversionOptions, allowed_store
from flows.run_names import own_name
from flows.running.services import services
from flows.running.settings import NOTHING_KEPT, failed
from flows.schedules import give_way_to_later
from tasks.rebuild import Rebuild
from zoo.store import open_store

__all__ = ["rebuild_release"]


_NAME = FlowName.REBUILD_RELEASE


@flow(name=_NAME.value, flow_run_name=own_name(_NAME), **NOTHING_KEPT)
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
    if (skipped := give_way_to_later()) is not None:
        return skipped
    place = allowed_store(store)
    release = turn_of_the_day(
        open_store(place), models, targets, datetime.now(UTC).date().toordinal()
    )
    if release is None:
        text = "Nothing that is published was made by the code of this worker.\n"
        leave_artifact("rebuild-release", "Nothing to rebuild", lambda: text)
        return None
    found = rebuild(release, ConversionOptions(store=store), services().hold)
    summary = f"{found.model} for {found.target}: {found.outcome}"
    leave_artifact("rebuild-release", f"Rebuilt: {summary}", lambda: rebuild_markdown(found))
    if found.succeeded:
        return found
    tell(Notice.REBUILT, f"rebuilt, {summary}", rebuild_markdown(found))
    return failed(f"{summary}, {found.detail}", found)
