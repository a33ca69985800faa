"""A Prefect server of a few lines, whose workers do what a test says, when it says so."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.objects import FlowRun, State, StateType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from flows.results import ModelResult

Step = tuple[StateType, list["ModelResult"]]


@dataclass
class FakeRuns:
    """In place of `flows.runs.Runs`: each look moves every run on by one step.

    `script` says what a run's steps are: its state and the rows that it leaves.
    """

    script: Callable[[list[str]], list[Step]]
    workers: set[str] = field(default_factory=lambda: {"linux-cpu"})
    pools: tuple[str, ...] = ("linux-cpu", "macos-metal")
    away: int = 0  # so many questions are not answered
    stopped: bool = False  # whether the parent is being cancelled
    obeys: bool = True  # whether a worker ends a run that is cancelled
    attempts: int = 0  # how often runs began before
    runs: dict[UUID, FlowRun] = field(default_factory=dict)
    keys: dict[str, UUID] = field(default_factory=dict)
    left: dict[UUID, list[ModelResult]] = field(default_factory=dict)
    steps: dict[UUID, list[Step]] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    time: float = 0.0

    def monotonic(self) -> float:
        """Time that passes only while one sleeps."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """It passes."""
        self.time += seconds

    def deployments(self, flow: str) -> dict[str, UUID]:
        """One in every pool."""
        return {pool: uuid.uuid4() for pool in self.pools} if flow == "convert-batch" else {}

    def children(self) -> list[FlowRun]:
        """All that was submitted."""
        return list(self.runs.values())

    def submit(
        self, deployment: UUID, parameters: dict[str, Any], *, name: str, key: str, **_: Any
    ) -> FlowRun:
        """The same key gives the same run."""
        self._answer()
        if key not in self.keys:
            self.keys[key] = uuid.uuid4()
            self.names.append(name)
            self.add(self.keys[key], parameters["models"], parameters)
        return self.runs[self.keys[key]]

    def add(self, run: UUID, models: list[str], parameters: dict[str, Any]) -> None:
        """A run that waits for a worker."""
        self.runs[run] = FlowRun(
            id=run, flow_id=run, parameters=parameters, run_count=self.attempts
        )
        self._come_to(run, StateType.SCHEDULED)
        self.steps[run] = self.script(models)
        self.left[run] = []

    def look(self, ids: Sequence[UUID]) -> dict[UUID, FlowRun]:
        """Every run moves on."""
        self._answer()
        for each in ids:
            if self.steps.get(each):
                state, rows = self.steps[each].pop(0)
                self.left[each] += rows
                self._come_to(each, state)
        return {each: self.runs[each] for each in ids if each in self.runs}

    def rows(self, ids: Sequence[UUID]) -> dict[UUID, list[ModelResult]]:
        """What they left up to the last look."""
        if ids:
            self._answer()
        return {each: list(self.left[each]) for each in ids if each in self.left}

    def cancel(self, run: FlowRun, *, force: bool = False) -> None:
        """A waiting run ends at once."""
        self.cancelled.append("forced" if force else "asked")
        if force or run.state_type is StateType.SCHEDULED or self.obeys:
            self.steps[run.id] = []
            self._come_to(run.id, StateType.CANCELLED)

    def has_worker(self, pool: str) -> bool:
        """As the test says."""
        return pool in self.workers

    def is_being_cancelled(self) -> bool:
        """As the test says."""
        return self.stopped

    def _come_to(self, run: UUID, to: StateType) -> None:
        """As the server answers: a new object each time."""
        last = self.runs[run]
        state: State[Any] = State(type=to, name=to.value.title(), message="so it is")
        update = {"state": state, "state_type": to, "state_name": state.name}
        self.runs[run] = last.model_copy(update=update)

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise ConnectionError("the server does not answer")
