"""Having devices confirm what was published as emulated.

A confirmation is a run of its own in the pool of the device. It belongs to no parent: with no
worker there it stays in the queue, also after the run that asked for it ended, and runs when one
appears.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect.logging import get_logger

from flows.dispatch.runs import REVIVAL_SECONDS, Phase, Run
from flows.names import FlowName
from flows.outcome.results import Confirmation
from menagerie.format.bundle_manifest import ReleaseState
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from flows.dispatch.clock import Clock
    from flows.dispatch.runs import Runs
    from flows.outcome.results import ModelResult
    from flows.planning.placement import Placement
    from flows.request.parameters import RunLimits

__all__ = ["Confirmations"]

_MINUTE = 60.0
_ATTEMPTS = 100  # runs of one build in all: it is asked for again after one that failed


@dataclass
class _Asked:
    row: ModelResult
    pool: str
    run: Run
    since: float


class Confirmations:
    """Asks for confirmations and waits for those that a worker is there for.

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
        self._log = get_logger(__name__)

    def confirm(self, rows: Sequence[ModelResult], until: float) -> list[ModelResult]:
        """The same rows, each emulated one with the state of its confirmation.

        A device that contradicts fails the row, as does a confirmation that ends without a word;
        the model stays published as emulated. After `until`, by the clock, they are left to
        themselves.
        """
        done = {(row.model, row.target): row for row in rows}
        try:
            asked = self._ask([row for row in rows if self._is_unconfirmed(row)])
            for each in asked:
                done[each.row.model, each.row.target] = _told(each.row, Confirmation.WAITING)
            for row in self._outcomes(asked, until):
                done[row.model, row.target] = row
        except Exception as error:  # noqa: BLE001 - whatever the way to the server can fail in
            self._log.warning("Confirmations could not be followed: %s", error)
        return list(done.values())

    def _is_unconfirmed(self, row: ModelResult) -> bool:
        asks = self._placement.targets[row.target].confirm is not None
        return asks and row.succeeded and row.proof is ReleaseState.EMULATED

    def _ask(self, rows: list[ModelResult]) -> list[_Asked]:
        """The runs that confirm these rows: those that wait already, for the others new ones."""
        deployments = self._runs.deployments(FlowName.CONFIRM_RELEASE) if rows else {}
        rows = [row for row in rows if self._pool(row) in deployments]
        asked: list[_Asked] = []
        for attempt in range(_ATTEMPTS):
            keys = [self._key(row, attempt) for row in rows]
            known = self._runs.known(keys)
            failed = []
            for row, key in zip(rows, keys, strict=True):
                run = known.get(key) or self._submit(row, key, deployments[self._pool(row)])
                if run is None:
                    continue
                if run.is_over:
                    failed.append(row)
                else:
                    asked.append(_Asked(row, self._pool(row), run, self._clock.now()))
            rows = failed
        return asked

    def _submit(self, row: ModelResult, key: str, deployment: UUID) -> Run | None:
        parameters = {
            "model": row.model,
            "target": row.target.value,
            "build_key": row.build_key,
            "store": self._store,
        }
        try:
            return self._runs.submit(
                deployment,
                parameters,
                name=f"{row.model} for {row.target}: confirm",
                tags=[row.model, row.target.value],
                key=key,
                linked=False,
            )
        except MenagerieError as error:
            self._log.warning("%s for %s cannot be confirmed: %s", row.model, row.target, error)
            return None

    def _pool(self, row: ModelResult) -> str:
        return self._placement.targets[row.target].confirm or ""

    def _key(self, row: ModelResult, attempt: int) -> str:
        """The same for the same build in the same store."""
        store = hashlib.sha256(self._store.encode()).hexdigest()[:8]
        return f"{row.build_key}-{store}-{attempt}"

    def _outcomes(self, asked: list[_Asked], until: float) -> list[ModelResult]:
        """Rows of the confirmations that end while workers are there for them."""
        rows = []
        while (asked := self._awaited(asked)) and self._clock.now() < until:
            found = self._runs.look([each.run.id for each in asked])
            told = self._runs.rows([each.run.id for each in asked])
            for each in asked:
                self._follow(each, found.get(each.run.id, each.run))
            over = [each for each in asked if each.run.is_over]
            rows += [_ended(each.row, each.run, told.get(each.run.id, [])) for each in over]
            asked = [each for each in asked if not each.run.is_over]
            if asked:
                self._clock.sleep(self._clock.poll_seconds)
        return rows

    def _follow(self, each: _Asked, run: Run) -> None:
        now = self._clock.now()
        if run.phase is not each.run.phase:
            each.since = now
        each.run = run
        if run.may_be_revived and now - each.since >= REVIVAL_SECONDS:
            self._runs.run_again(run)  # the automation did not

    def _awaited(self, asked: list[_Asked]) -> list[_Asked]:
        """Those that somebody works on or will: the others are left in the queue."""
        pools = {each.pool for each in asked}
        served = {pool for pool in pools if self._runs.has_worker(pool)}
        latest = self._clock.now() - self._limits.minutes_per_model * _MINUTE
        return [
            each
            for each in asked
            if each.since >= latest and (each.run.phase is Phase.RUNNING or each.pool in served)
        ]


def _told(row: ModelResult, confirmation: Confirmation, reason: str = "") -> ModelResult:
    update = {"confirmation": confirmation, "confirmation_detail": reason or None}
    return row.model_copy(update=update)


def _ended(row: ModelResult, run: Run, told: Sequence[ModelResult]) -> ModelResult:
    """The row after the confirmation ended, by what it said of itself."""
    for said in told:
        if said.confirmation is not None:
            row = row.model_copy(update={"proof": said.proof or row.proof})
            return _told(row, said.confirmation, said.confirmation_detail or "")
    return _told(row, Confirmation.FAILED, f"its run ended {run.state}: {run.message}")
