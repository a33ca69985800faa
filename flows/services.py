"""What flows work with besides their parameters, which Prefect must be able to write as JSON.

A context variable and not a parameter: it reaches child flows and threads, and a test can put its
own in place without replacing any function of Prefect's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flows.results import Listener
from menagerie.validation import validate as run_goldens
from menagerie.validation.findings import ValidationReport
from tasks.forking import load_ahead
from tasks.job import Job, StageRecords
from tasks.model_process import ModelProcess
from tasks.stage_table import Hold, ModelHolder
from transforms.stages import Stage

if TYPE_CHECKING:
    from flows.plan import PlannedModel

_SERVICES: ContextVar[Services | None] = ContextVar("services", default=None)


def _model_process(job: Job) -> ModelHolder:
    """Start a model's process, and load the libraries of other planned models meanwhile."""
    process = ModelProcess(job)
    for kind in {one.spec.source.kind for one in services().planned if one.settled is None}:
        load_ahead(kind)
    return process


@dataclass(frozen=True)
class Services:
    """The machinery of conversions and proofs, who listens to it, and what is planned already."""

    hold: Hold = _model_process
    # In place of functions in the table of stages.
    instead: Mapping[Stage, Callable[[Job, StageRecords], Any]] = field(default_factory=dict)
    judge: Callable[..., ValidationReport] = run_goldens  # of a release
    stop: Callable[[], None] = ModelProcess.stop_all  # ends every model at work in this process
    listener: Listener = field(default_factory=Listener)
    planned: Sequence[PlannedModel] = ()  # in this process
    leaves_rows: bool = False  # whether the run at work keeps the row of every model


def services() -> Services:
    """Return those in use, by default the real ones without a listener."""
    return _SERVICES.get() or Services()


@contextmanager
def use_services(given: Services) -> Iterator[None]:
    """Let the flows that are called inside the block work with `given`."""
    token = _SERVICES.set(given)
    try:
        yield
    finally:
        _SERVICES.reset(token)
