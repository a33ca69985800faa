"""Looking after runs on a Prefect server until each has ended or is waited for no longer.

What becomes of a run is judged here for all alike: a crash counts when the automation that mends it
has had its time, a server that is away for a while is borne with, and nothing is waited for without
end. How long that is, and what follows from it, is the business of a `Policy`: there is one for
conversions and one for confirmations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from prefect.logging import get_logger

from flows.dispatch.runs import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flows.dispatch.clock import Clock
    from flows.dispatch.runs import Run, Runs
    from flows.outcome.results import ModelResult

__all__ = ["MINUTE", "Child", "Policy", "Supervisor"]

MINUTE = 60.0
_REVIVAL_SECONDS = 20.0  # so long an automation may take to put a crashed run back in the queue
_STOP_SECONDS = 60.0  # so long a worker may take to stop a run


@dataclass
class Child:
    """A run that is looked after."""

    run: Run
    pool: str
    since: float  # when it came to its phase, or was told to end
    doomed: str = ""  # why it was told to end
    done: bool = False  # nothing more is expected of it


ChildT = TypeVar("ChildT", bound=Child)


class Policy(Generic[ChildT]):
    """What is expected of runs, and what follows where they do not do it."""

    def begin(self) -> Iterable[ChildT]:
        """Runs that were submitted just now; asked at every turn."""
        return ()

    def look(self, children: Sequence[ChildT]) -> None:
        """These are looked at now."""

    def take(self, child: ChildT, rows: Sequence[ModelResult]) -> None:
        """The rows that a run has left so far; `done` if no other is to come."""
        raise NotImplementedError

    def verdict(self, child: ChildT, age: float, alone: float | None) -> str:
        """Why a run that has not ended is waited for no longer; empty while it is.

        Args:
            child: with its run as it is now.
            age: seconds in its phase.
            alone: for so many seconds its pool has had no worker; None: it has one.
        """
        raise NotImplementedError

    def give_up(self, child: ChildT, reason: str) -> None:
        """Do what follows from a verdict."""
        raise NotImplementedError

    def conclude(self, child: ChildT) -> None:
        """Its run has ended for good, or was deleted: then its phase is not a final one."""
        raise NotImplementedError

    def time_is_up(self, children: Sequence[ChildT]) -> None:
        """The time of the whole is over, for these and for whatever has not begun."""

    def server_is_gone(self, children: Sequence[ChildT], error: Exception) -> None:
        """It has not answered for too long."""


class Supervisor(Generic[ChildT]):
    """Looks after the runs of one policy.

    Args:
        runs: the server.
        clock: time.
        policy: see there.
        patience: minutes for which a server that does not answer is borne with.
    """

    def __init__(self, runs: Runs, clock: Clock, policy: Policy[ChildT], patience: float) -> None:
        self._runs = runs
        self._clock = clock
        self._policy = policy
        self._patience = patience * MINUTE
        self._alone: dict[str, float] = {}  # pools, and since when they have no worker
        self._silent_since: float | None = None
        self._log = get_logger(__name__)
        self.children: list[ChildT] = []

    def watch(self, until: float) -> None:
        """Return when nothing is waited for any more, at the latest after `until` by the clock."""
        while True:
            try:
                for child in self._policy.begin():
                    self.children.append(child)  # one by one: the next may meet a silent server
                if self.children:
                    self._look()
                self._silent_since = None
            except Exception as error:  # noqa: BLE001 - whatever the way to the server can fail in
                if self._is_gone(error):
                    self._policy.server_is_gone(self.children, error)
                    return
            self.children = [child for child in self.children if not child.done]
            if self._clock.now() > until:
                self._policy.time_is_up(self.children)
                return
            if not self.children and self._silent_since is None:
                return
            self._clock.sleep(self._clock.poll_seconds)

    def _look(self) -> None:
        self._policy.look(self.children)
        ids = [child.run.id for child in self.children]
        runs = self._runs.look(ids)  # first: a run that is seen to have ended has left its rows
        rows = self._runs.rows(ids)
        waiting = {c.pool for c in self.children if c.run.phase is not Phase.RUNNING}
        for pool in self._alone.keys() - waiting:
            del self._alone[pool]  # nobody waited there meanwhile
        for pool in waiting:
            if self._runs.has_worker(pool):
                self._alone.pop(pool, None)
            else:
                self._alone.setdefault(pool, self._clock.now())
        for child in self.children:
            self._policy.take(child, rows.get(child.run.id, ()))
            if not child.done:
                self._judge(child, runs.get(child.run.id))

    def _judge(self, child: ChildT, run: Run | None) -> None:
        now = self._clock.now()
        if run is None:
            self._conclude(child)
            return
        if run.phase is not child.run.phase:
            child.since = now
        child.run = run
        age, alone = now - child.since, self._alone.get(child.pool)
        if run.phase.is_final and run.phase is not Phase.CRASHED:
            self._conclude(child)
        elif not child.doomed and (
            reason := self._policy.verdict(child, age, None if alone is None else now - alone)
        ):
            child.since = now
            self._policy.give_up(child, reason)
        elif run.phase is Phase.CRASHED:
            if age >= _REVIVAL_SECONDS:
                self._revive(child)
        elif child.doomed and age > _STOP_SECONDS:
            self._runs.cancel(run, force=True)
            self._conclude(child)

    def _revive(self, child: ChildT) -> None:
        """The automation did not: a busy SQLite can lose its event."""
        if child.run.may_be_revived and not child.doomed:
            self._runs.run_again(child.run)
        else:
            self._conclude(child)

    def _conclude(self, child: ChildT) -> None:
        child.done = True
        self._policy.conclude(child)

    def _is_gone(self, error: Exception) -> bool:
        """Whether the server has been away for too long: it may only be restarting."""
        now = self._clock.now()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since >= self._patience:
            return True
        self._log.warning("Prefect's API did not answer: %s", error)
        return False
