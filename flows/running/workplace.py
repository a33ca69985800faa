"""What the flows work with besides their parameters, which Prefect must be able to write as JSON.

A context variable and not a parameter: it reaches child flows and threads, and a test can put its
own in place without replacing any function of Prefect's.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flows.running.listener import Listener, Silence
from menagerie.home import home
from tasks.isolated import IsolatedBench
from tasks.publish import publish_bundle
from tasks.validate import prove
from tasks.verify import run_goldens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from flows.planning.plan import PlannedModel
    from tasks.bench import Bench
    from tasks.job import Evidence, Job, PublishRecord
    from zoo.records import ConversionReport, ValidationReport

__all__ = ["Workplace", "conversion_log", "use_workplace", "workplace"]


def conversion_log(job: Job) -> Path:
    """What the process of a conversion says; of two builds of one model each has its own."""
    return home() / "logs" / f"{job.model}-{job.target}-{job.build_key[:8]}.log"


def _isolated(job: Job) -> Bench:
    return IsolatedBench(job, conversion_log(job))


@dataclass(frozen=True)
class Workplace:
    """The machinery of conversions and proofs, who listens to it, and what is planned already."""

    open_bench: Callable[[Job], Bench] = _isolated
    prove: Callable[[Job, Evidence], ConversionReport] = prove
    publish: Callable[[Job], PublishRecord] = publish_bundle
    judge: Callable[..., ValidationReport] = run_goldens
    stop: Callable[[], None] = IsolatedBench.stop_all
    listener: Listener = field(default_factory=Silence)
    planned: Mapping[tuple[str, str], PlannedModel] = field(default_factory=dict)


_WORKPLACE: ContextVar[Workplace | None] = ContextVar("workplace", default=None)


def workplace() -> Workplace:
    """The one in use, by default the real one with nobody listening."""
    return _WORKPLACE.get() or Workplace()


@contextmanager
def use_workplace(place: Workplace) -> Iterator[None]:
    """Let the flows that are called inside the block work with `place`."""
    token = _WORKPLACE.set(place)
    try:
        yield
    finally:
        _WORKPLACE.reset(token)
