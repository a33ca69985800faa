"""Runs the `convert-zoo` flow from the command line, with the live display listening."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from flows.cli.progress import LiveDisplay
from flows.embedded import prefect_api
from flows.results import RunResult
from zoo.errors import MenagerieError
from zoo.home import home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.parameters import ConversionOptions
    from zoo.spec import Target

__all__ = ["run_flow"]


def run_flow(
    models: Sequence[str], targets: Sequence[Target], options: ConversionOptions, jobs: int
) -> RunResult:
    """Convert `models` in one run of the real flow.

    Raises:
        MenagerieError: if Prefect's API cannot be had. A failed model raises nothing: it is a row.
    """
    embedded = not os.environ.get("PREFECT_API_URL")
    with LiveDisplay() as display, prefect_api(display.status, _load):
        from flows.convert_zoo import convert_zoo
        from flows.settings import without_heartbeats
        from flows.workplace import Workplace, use_workplace

        display.status("starting the run")
        with use_workplace(Workplace(listener=display)), without_heartbeats(when=embedded):
            state = convert_zoo(
                models=list(models),
                targets=list(targets),
                options=options,
                jobs=jobs,
                return_state=True,
            )
        outcome = state.result(raise_on_failure=False)
    if isinstance(outcome, RunResult):
        return outcome
    if isinstance(outcome, BaseException):
        raise outcome
    raise MenagerieError("Prefect", f"the run ended {state.name}", "Its logs say why")


def _load() -> None:
    """Import Prefect, and let the first model's process import torch, while the API starts."""
    from tasks.isolated import IsolatedBench

    IsolatedBench.warm_up(home() / "logs")
    importlib.import_module("flows.convert_zoo")
