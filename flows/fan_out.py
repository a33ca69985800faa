"""Conversion on the workers of a Prefect server: one deployment run for each batch of models.

The parent run judges every child itself, by the child's rows and final state. Outages of the
server are tolerated up to a limit, and every wait is bounded: for a pool without a worker, a run
that does not end, a server that is gone. After a restart, the parent finds its submitted runs
again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from prefect.client.schemas.objects import TERMINAL_STATES, StateType
from prefect.logging import get_logger

from flows.batches import BATCH_MODELS, UNDONE, Batch, share_out, submit
from flows.parameters import ConversionOptions, RunLimits
from flows.plan import PlannedModel, looked_up
from flows.results import Listener, ModelResult, Outcome, Step
from flows.runs import Runs
from flows.this_run import or_warned
from transforms.stages import Stage
from zoo.errors import MenagerieError, explain
from zoo.store import open_store

_MINUTE = 60.0
_POLL_SECONDS = 2.0
_REVIVAL_SECONDS = 30.0  # in which an automation may put a crashed run back into the queue
_STOP_SECONDS = 60.0  # in which a worker may stop a run
_AT_WORK = (StateType.RUNNING, StateType.CANCELLING)
_log = get_logger(__name__)


class Action(Enum):
    """The next action on a batch after a check of its run."""

    WAIT = auto()
    CANCEL = auto()  # stops the run, whose rows will not count any more
    GIVE_UP = auto()  # its worker did not stop the run
    CONCLUDE = auto()  # models without a row get one


def decide(batch: Batch, limits: RunLimits, now: float) -> tuple[Action, str]:
    """Return the action on a submitted batch as last seen, and the reason to cancel its run.

    It is cancelled if it runs longer than its models may, or if no worker takes it.
    """
    state, age = batch.state, now - batch.since
    if state is None or state in TERMINAL_STATES:
        revivable = state is StateType.CRASHED and age < _REVIVAL_SECONDS
        return Action.WAIT if revivable else Action.CONCLUDE, ""
    if batch.doomed:
        return Action.GIVE_UP if age > _STOP_SECONDS else Action.WAIT, ""
    reason = ""
    if state in _AT_WORK:
        minutes = limits.minutes_per_model * len(batch.models)
        if age > minutes * _MINUTE:
            reason = f"not done after {minutes} minutes"
    elif now - batch.served >= (minutes := limits.minutes_without_worker) * _MINUTE:
        reason = f"no worker in pool {batch.pool} for {minutes} minutes: start one"
    return Action.CANCEL if reason else Action.WAIT, reason


@dataclass(eq=False)
class Conversions:
    """Conversions of models on workers, and judgement of their runs."""

    runs: Runs  # on the server
    deployments: Mapping[str, UUID]  # of the batch flow, by work pool
    limits: RunLimits
    options: ConversionOptions  # passed to every run
    recorder: Listener  # gets every row
    attended: bool = False  # whether an interrupt is a user's, who wants everything to stop
    _batches: list[Batch] = field(default_factory=list)  # batches that lack rows

    def convert(self, work: Sequence[PlannedModel], until: float) -> None:
        """Convert all of `work`, at most until `until`; afterwards each model has its row."""
        self._batches += share_out(self._take_up(work), BATCH_MODELS)
        try:
            self._watch(until)
        except BaseException as stop:
            if self._is_given_up(stop):
                self._cancel_all()
            raise

    def _take_up(self, work: Sequence[PlannedModel]) -> list[PlannedModel]:
        """Resume runs that were submitted before this run was restarted and may still succeed.

        Return the other models. Existing rows of those runs count: a failed model is not converted
        again.
        """
        rest = {(one.model, one.target): one for one in work}
        submitted, now = self.runs.children(), time.monotonic()
        rows = self.runs.rows([run.id for run in submitted])
        for run in submitted:
            target = str(run.parameters.get("target", ""))
            keys = [(str(name), target) for name in run.parameters.get("models") or ()]
            models = tuple(rest.pop(key) for key in keys if key in rest)
            batch = Batch(target, models, run, now, now)
            self._take_rows(batch, rows.get(run.id, ()))
            if batch.state in UNDONE:
                rest |= batch.missing
            elif batch.missing:
                self._batches.append(batch)
        return [*rest.values()]

    def _watch(self, until: float) -> None:
        """Wait until no batch lacks rows, at most until `until`."""
        answered = time.monotonic()
        while self._batches:
            try:
                self._submit_waiting()
                self._look()
                answered = time.monotonic()
            except Exception as error:  # noqa: BLE001 - the connection can fail in any way
                # The server may only be restarting.
                if time.monotonic() - answered >= self.limits.minutes_without_server * _MINUTE:
                    return self._end_all(explain(error, "Prefect"))
                _log.warning("Prefect's API did not answer: %s", error)
            self._batches = [batch for batch in self._batches if batch.missing]
            if time.monotonic() > until:
                self._cancel_all()
                return self._end_all(f"the run's {self.limits.hours:g} hours are over")
            if self._batches:
                time.sleep(_POLL_SECONDS)
        return None

    def _submit_waiting(self) -> None:
        """Submit waiting batches; the models of a batch that no pool accepts fail."""
        for batch in self._batches:
            if batch.run is None:
                try:
                    batch.run = submit(self.runs, self.deployments, batch, self.options)
                    batch.since = batch.served = time.monotonic()
                except MenagerieError as error:
                    self._end(batch, error)

    def _look(self) -> None:
        submitted = {b.run.id: b for b in self._batches if b.run is not None and b.missing}
        # Runs are read before rows: a run that has ended has left all its rows.
        runs = self.runs.look([*submitted])
        rows = self.runs.rows([*submitted])
        waiting = {batch.pool for batch in submitted.values() if batch.state not in _AT_WORK}
        served = {pool for pool in waiting if self.runs.has_worker(pool)}
        for model, target, stage, seconds in (
            self.runs.stages([*submitted]) if self.attended else ()
        ):
            if seconds is None:
                self.recorder.stage_at(model, target, stage)
            else:
                self.recorder.stage_ended(model, target, stage, seconds)
        for run, batch in submitted.items():
            self._take_rows(batch, rows.get(run, ()))
            before, batch.run, now = batch.state, runs.get(run), time.monotonic()
            if batch.state is not before:
                batch.since = now
            if batch.pool in served or batch.state in _AT_WORK:
                batch.served = now
            if batch.missing:
                self._act(batch, *decide(batch, self.limits, now))

    def _take_rows(self, batch: Batch, rows: Iterable[ModelResult]) -> None:
        """Take a child's rows; if a crash caused two rows for a model, the first one counts."""
        restarted = batch.run is not None and batch.run.run_count > 1
        for row in rows:
            if batch.missing.pop((row.model, row.target), None) is not None:
                for stage in row.stages:  # the server records a task's end some seconds later
                    name = Stage(stage.stage)
                    self.recorder.stage_ended(row.model, row.target, name, stage.seconds)
                # A restarted run itself published what it finds in the store.
                again = row.outcome is Outcome.SKIPPED and restarted
                self.recorder.model_ended(_published(row) if again else row)

    def _act(self, batch: Batch, action: Action, reason: str) -> None:
        if batch.run is not None and action in (Action.CANCEL, Action.GIVE_UP):
            self.runs.cancel(batch.run, force=action is Action.GIVE_UP)
        if action is Action.CANCEL:
            batch.since, batch.doomed = time.monotonic(), reason
        elif action is Action.GIVE_UP:
            self._end(batch, batch.doomed)
        elif action is Action.CONCLUDE:
            self._end(batch, batch.doomed or self._death(batch))

    def _death(self, batch: Batch) -> MenagerieError:
        """Return how a run ended; add rows for what it had published in the store."""
        if batch.run is None:
            return MenagerieError("Prefect", "the run was deleted")
        with suppress(MenagerieError):
            store, missing = open_store(self.options.store_url), [*batch.missing.values()]
            now = looked_up(missing, store, force=self.options.force)
            self._take_rows(batch, [_published(one.settled) for one in now if one.settled])
        message = batch.run.state.message if batch.run.state else ""
        fact = f"its run ended {batch.run.state_name}{f': {message}' if message else ''}"
        return MenagerieError("Prefect", fact, "The run's logs say why")

    def _end(self, batch: Batch, reason: str | MenagerieError) -> None:
        """Stop waiting for a batch; missing models crashed by an error `reason`, else timed out."""
        outcome, step = Outcome.TIMED_OUT, Step.RUN
        if isinstance(reason, MenagerieError):
            outcome, step = Outcome.CRASHED, Step.FLOW
        for one in batch.missing.values():
            self.recorder.model_ended(one.row(outcome, step, reason))
        batch.missing = {}

    def _end_all(self, reason: str | MenagerieError) -> None:
        for batch in self._batches:  # whether it began or not
            self._end(batch, reason)

    def _is_given_up(self, stop: BaseException) -> bool:
        """Return whether a user, rather than a shutdown of the host, ends this run.

        If the host shuts down, the children continue, and a restarted run finds them.
        """
        if self.attended and isinstance(stop, KeyboardInterrupt):
            return True
        with suppress(Exception):  # unknown, so nothing is done
            return self.runs.is_being_cancelled()
        return False

    def _cancel_all(self) -> None:
        for batch in self._batches:
            if batch.run is not None:
                with or_warned(f"{batch.name} could not be cancelled"):
                    self.runs.cancel(batch.run)


def _published(row: ModelResult) -> ModelResult:
    return row.model_copy(update={"outcome": Outcome.PUBLISHED})
