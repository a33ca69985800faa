"""The workbench: what holds a model while its stages work on it.

A model and its exported programs live in memory only; they are never passed through Prefect, which
would want to serialise or hash them. The tasks get a bench and call one stage of it after another.
Two implementations: `tasks.workshop.Workshop` in this process, and `tasks.isolated.IsolatedBench`,
which keeps a Workshop in a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tasks.job import ExportRecord, LowerRecord, PullRecord, Suspect, TransformRecord
    from zoo.records import Diagnosis

__all__ = ["Bench"]


class Bench(Protocol):
    """The stages that need the model in memory, to be called once each and in this order.

    The last is only called where the bundle turned out wrong.

    Every method raises an error of the MenagerieError tree when its stage fails.
    """

    def pull(self) -> PullRecord:
        """Fetch or make the weights and build the model."""
        ...

    def export(self) -> ExportRecord:
        """Export every program and compute its golden cases with eager PyTorch."""
        ...

    def transform(self) -> TransformRecord:
        """Run the graph passes over every program."""
        ...

    def lower(self) -> LowerRecord:
        """Compile every program and write the bundle, sealed as `lowered`."""
        ...

    def locate(self, suspects: Sequence[Suspect]) -> Diagnosis:
        """Find where the lowered programs diverge from eager; the job says for how long.

        The smallest program with the fault goes to `Job.reproducer`.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
