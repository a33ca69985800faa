"""The flow that removes what no release needs, from the store and from the worker's own folder."""

from prefect import State, flow
from prefect.states import Failed

from flows.machine.cleanup import Collected, collect
from flows.names import FlowName
from flows.outcome.artifacts import leave_artifact
from flows.outcome.notices import Notice, tell
from flows.request.parameters import allowed_store
from flows.run_names import own_name
from flows.running.settings import NOTHING_KEPT
from flows.schedules import give_way_to_later
from zoo.errors import MenagerieError
from zoo.report import plain_text
from zoo.store import KeepRule

__all__ = ["collect_garbage"]


_NAME = FlowName.COLLECT_GARBAGE


@flow(name=_NAME.value, flow_run_name=own_name(_NAME), **NOTHING_KEPT)
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
    if (skipped := give_way_to_later()) is not None:
        return skipped
    try:
        collected = collect(allowed_store(store), keep, dry_run=dry_run)
    except MenagerieError as error:
        tell(Notice.STORE, "the store cannot be swept", plain_text(str(error)))
        return Failed(message=str(error))
    leave_artifact("collect-garbage", collected.summary, lambda: _markdown(collected))
    return collected


def _markdown(collected: Collected) -> str:
    removed = "".join(f"- `{key}`\n" for key in collected.swept.documents)
    return f"{collected.summary}\n\n{removed}"
