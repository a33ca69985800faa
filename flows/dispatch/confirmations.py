"""Having devices confirm what was published as emulated.

A confirmation is a run of its own in the pool of the device. It belongs to no parent: with no
worker there it stays in the queue, also after the run that asked for it ended, and runs when one
appears.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefect.logging import get_logger

from flows.connection import FlowName
from flows.fan_out import MINUTE, Child, Policy, Supervisor
from flows.outcome.results import Confirmation
from flows.runs import Phase
from menagerie.format.bundle_manifest import ReleaseState
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from flows.dispatch.clock import Clock
    from flows.fan_out import Placement
    from flows.outcome.results import ModelResult
    from flows.parameters import RunLimits
    from flows.runs import Run, Runs

_ATTEMPTS = 100  # runs of one build in all: it is asked for again after one that failed


@dataclass
class Asked(Child):
    """A confirmation that was asked for, and the row that it is for."""

    row: ModelResult = field(kw_only=True)
    told: ModelResult | None = None  # what it said of itself


class Confirmations(Policy[Asked]):
    """Asks for confirmations and waits for those that a worker is there for: the policy for them.

    Args:
        runs: the server.
        placement: which pool confirms which target.
        limits: how long to wait.
        store: the store's address, passed on.
        clock: time.
    """

    def __init__(
        self, runs: Runs, placement: Placement, limits: RunLimits, store: str, clock: Clock
    ) -> None:
        self._runs = runs
        self._placement = placement
        self._limits = limits
        self._store = store
        self._clock = clock
        self._done: dict[tuple[str, str], ModelResult] = {}
        self._due: list[ModelResult] = []  # not asked for yet: a server did not answer
        self._asked: set[str] = set()  # keys of the runs whose word is to be heard, however early
        self._log = get_logger(__name__)

    def confirm(self, rows: Sequence[ModelResult], until: float) -> list[ModelResult]:
        """The same rows, each emulated one with the state of its confirmation.

        A device that contradicts fails the row, as does a confirmation that ends without a word;
        the model stays published as emulated. After `until`, by the clock, they are left to
        themselves.
        """
        self._done = {(row.model, row.target): row for row in rows}
        self._due = [row for row in rows if self._is_unconfirmed(row)]
        supervisor: Supervisor[Asked] = Supervisor(
            self._runs, self._clock, self, self._limits.minutes_without_server
        )
        try:
            supervisor.watch(until)
        except Exception as error:  # noqa: BLE001 - whatever the way to the server can fail in
            self._log.warning("Confirmations could not be followed: %s", error)
        return list(self._done.values())

    def ask(self, rows: Sequence[ModelResult]) -> None:
        """Ask for what awaits a device, and wait for none of it.

        Those that wait on this server are found; after a change of database there are none. What a
        server that is away could not be asked, the next call asks.
        """
        self._due += [row for row in rows if self._is_unconfirmed(row)]
        try:
            self.begin()
        except Exception as error:  # noqa: BLE001 - whatever the way to the server can fail in
            self._log.warning("Confirmations could not be asked for: %s", error)

    def begin(self) -> list[Asked]:
        """The runs for what was not asked for yet, or by somebody else."""
        asked = self._ask(self._due)
        self._due = []
        for each in asked:
            self._tell(each.row, Confirmation.WAITING)
        return asked

    def take(self, child: Asked, rows: Sequence[ModelResult]) -> None:
        """Remember what it said; it counts when its run has ended, or is waited for no longer."""
        child.told = next((row for row in rows if row.confirmation is not None), None)

    def verdict(self, child: Asked, age: float, alone: float | None) -> str:
        """Nobody works on it or will, or it takes too long."""
        if alone is not None and child.run.phase is not Phase.RUNNING:
            return "no device is there"
        return "it takes long" if age > self._limits.minutes_per_model * MINUTE else ""

    def give_up(self, child: Asked, reason: str) -> None:  # noqa: ARG002 - nobody is told
        """Leave it in the queue, or to its device, unless that has spoken."""
        child.done = True
        if child.told is not None:
            self.conclude(child)

    def conclude(self, child: Asked) -> None:
        """The row by what the run said of itself, else by how it ended."""
        row, run, said = child.row, child.run, child.told
        if said is None and not run.phase.is_final:
            self._tell(row, Confirmation.FAILED, "its run was deleted")
        elif said is None:
            self._tell(row, Confirmation.FAILED, f"its run ended {run.state}: {run.message}")
        elif said.confirmation is not None:
            row = row.model_copy(update={"proof": said.proof or row.proof})
            self._tell(row, said.confirmation, said.confirmation_detail)

    def _tell(
        self, row: ModelResult, confirmation: Confirmation, reason: str | None = None
    ) -> None:
        update = {"confirmation": confirmation, "confirmation_detail": reason or None}
        self._done[row.model, row.target] = row.model_copy(update=update)

    def _is_unconfirmed(self, row: ModelResult) -> bool:
        asks = self._placement.places(row.target).confirm is not None
        return asks and row.succeeded and row.proof is ReleaseState.EMULATED

    def _ask(self, rows: list[ModelResult]) -> list[Asked]:
        """The runs that confirm these rows: those that wait already, for the others new ones."""
        deployments = self._runs.deployments(FlowName.CONFIRM_RELEASE) if rows else {}
        rows = [row for row in rows if self._pool(row) in deployments]
        asked: list[Asked] = []
        for attempt in range(_ATTEMPTS):
            keys = [self._key(row, attempt) for row in rows]
            known = self._runs.known(keys)
            failed = []
            for row, key in zip(rows, keys, strict=True):
                run = known.get(key) or self._submit(row, key, deployments[self._pool(row)])
                if run is None:
                    continue
                if run.is_over and key not in self._asked:  # an earlier run asked for it
                    failed.append(row)
                else:
                    self._asked.add(key)
                    asked.append(Asked(run, self._pool(row), self._clock.now(), row=row))
            rows = failed
        return asked

    def _submit(self, row: ModelResult, key: str, deployment: UUID) -> Run | None:
        parameters = {
            "model": row.model,
            "target": row.target,
            "build_key": row.build_key,
            "store": self._store,
        }
        try:
            return self._runs.submit(
                deployment,
                parameters,
                name=f"{row.model} for {row.target}: confirm",
                tags=[row.model, row.target],
                key=key,
                linked=False,
            )
        except MenagerieError as error:
            self._log.warning("%s for %s cannot be confirmed: %s", row.model, row.target, error)
            return None

    def _pool(self, row: ModelResult) -> str:
        return self._placement.places(row.target).confirm or ""

    def _key(self, row: ModelResult, attempt: int) -> str:
        """The same for the same build in the same store."""
        store = hashlib.sha256(self._store.encode()).hexdigest()[:8]
        return f"{row.build_key}-{store}-{attempt}"
