"""Runs the `convert-zoo` flow from the command line, with the live display listening."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from flows.cli.progress import LiveDisplay
from flows.plan import crashed_row
from flows.prefect_api import prefect_api
from flows.services import Recorder
from tasks.failures import explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.outcome.results import ModelResult
    from flows.parameters import ConversionOptions
    from flows.plan import PlannedModel
    from zoo.errors import MenagerieError

__all__ = ["run_flow"]


def run_flow(
    work: Sequence[PlannedModel], options: ConversionOptions, jobs: int
) -> dict[tuple[str, str], ModelResult]:
    """Convert what was planned in one run of the real flow.

    Returns:
        A row for every model and target, whatever happened to it or to the run.

    Raises:
        MenagerieError: if Prefect's API cannot be had.
    """
    embedded = not os.environ.get("PREFECT_API_URL")
    first = work[0].spec.source.kind if embedded and work else ""
    with LiveDisplay() as display, prefect_api(display.status, lambda: _load(first)):
        from flows.runs import without_heartbeats
        from flows.services import Services, use_services

        display.status("starting the run")
        recorder = Recorder(display)
        given = Services(listener=recorder, planned={(one.model, one.target): one for one in work})
        with use_services(given), without_heartbeats(when=embedded):
            error = _run(work, options, jobs)
        for one in work:
            if (one.model, one.target) not in recorder.rows:
                recorder.model_ended(crashed_row(one, error))
    return recorder.rows


def _run(work: Sequence[PlannedModel], options: ConversionOptions, jobs: int) -> MenagerieError:
    """Run the flow; what it says went wrong counts only for models that left no row."""
    from flows.convert import convert_zoo
    from flows.runs import state_error

    try:
        state = convert_zoo(
            models=list(dict.fromkeys(one.model for one in work)),
            targets=list(dict.fromkeys(one.target for one in work)),
            options=options,
            jobs=jobs,
            return_state=True,
        )
    except Exception as error:  # noqa: BLE001 - Prefect's API can fail in any way
        return explain(error, "Prefect")
    return state_error(state)


def _load(first: str) -> None:
    """Import Prefect, and let the libraries of the first model be loaded, as the API starts.

    Args:
        first: the kind of source of that model; none: it is converted elsewhere.
    """
    from tasks.warm_start import load_ahead

    if first:
        load_ahead(first)
    importlib.import_module("flows.convert")
