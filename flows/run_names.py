"""What runs are called: by what they do, while they wait for their hour as well as at work.

A server calls the runs of a schedule by two words of chance, and a flow gives its run a name only
when it begins: `flows.schedules` names those that wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefect.runtime import flow_run

from flows.connection import FlowName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def own_name(flow: FlowName) -> Callable[[], str]:
    """What a flow says as its `flow_run_name`: the name of the run that it is called in."""
    return lambda: SPEAKING[flow](flow_run.get_parameters())


def _convert_zoo(asked: Mapping[str, Any]) -> str:
    """E.g. `convert resnet18 and 3 more for metal`."""
    models = [*asked.get("models", ()), *(f"tag {tag}" for tag in asked.get("selected_tags", ()))]
    targets = ", ".join(map(str, asked.get("targets", ())))
    what = f"convert {_first(models) or 'the default models'}"
    return f"{what} for {targets}" if targets else what


def _convert_batch(asked: Mapping[str, Any]) -> str:
    """As its parent calls it, e.g. `resnet18 and 3 more for cpu`."""
    return f"{_first(asked.get('models', ())) or 'nothing'} for {asked.get('target', '')}"


def _verify_releases(asked: Mapping[str, Any]) -> str:
    """E.g. `verify all releases`."""
    return f"verify {', '.join(asked.get('models', ())) or 'all releases'}"


def _rebuild_release(asked: Mapping[str, Any]) -> str:
    """E.g. `rebuild the release whose turn it is`: which, it finds when it begins."""
    return f"rebuild {' or '.join(asked.get('models', ())) or 'the release whose turn it is'}"


def _collect_garbage(asked: Mapping[str, Any]) -> str:
    return "list garbage" if asked.get("dry_run") else "collect garbage"


def _first(models: list[str]) -> str:
    """The first, and how many more; empty where there is none."""
    more = f" and {len(models) - 1} more" if len(models) > 1 else ""
    return f"{models[0]}{more}" if models else ""


# By the parameters of a run, of which any may lack.
SPEAKING: dict[FlowName, Callable[[Mapping[str, Any]], str]] = {
    FlowName.CONVERT_ZOO: _convert_zoo,
    FlowName.CONVERT_BATCH: _convert_batch,
    FlowName.VERIFY_RELEASES: _verify_releases,
    FlowName.REBUILD_RELEASE: _rebuild_release,
    FlowName.COLLECT_GARBAGE: _collect_garbage,
}
