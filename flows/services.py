"""Services that flows use besides their parameters, which Prefect must serialise as JSON.

They are in a context variable instead of a parameter: it reaches child flows and threads, and a
test can substitute its own services without replacing a function of Prefect's.
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
    """Start a model's process, and meanwhile load the libraries of other planned models."""
    process = ModelProcess(job)
    for kind in {one.spec.source.kind for one in services().planned if one.settled is None}:
        load_ahead(kind)
    return process


@dataclass(frozen=True)
class Services:
    """The services of conversions and proofs, their listener, and the existing plan."""

    hold: Hold = _model_process
    # Replacements of functions in the table of stages.
    instead: Mapping[Stage, Callable[[Job, StageRecords], Any]] = field(default_factory=dict)
    judge: Callable[..., ValidationReport] = run_goldens  # of a release
    stop: Callable[[], None] = ModelProcess.stop_all  # stops every running model of this process
    listener: Listener = field(default_factory=Listener)
    planned: Sequence[PlannedModel] = ()  # in this process
    leaves_rows: bool = False  # whether the current run keeps every model's row


def services() -> Services:
    """Return the current services, by default the real ones without a listener."""
    return _SERVICES.get() or Services()


@contextmanager
def use_services(given: Services) -> Iterator[None]:
    """Make `given` the services of flows that are called inside the block."""
    token = _SERVICES.set(given)
    try:
        yield
    finally:
        _SERVICES.reset(token)
