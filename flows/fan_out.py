"""Converting on the workers of a Prefect server: one deployment run for each batch of models.

The parent run judges every child itself, by the rows that it leaves and the state that it ends in.
Outages of the server are tolerated up to a limit, and every wait is bounded: for a pool without a
worker, a run that does not end, a server that is gone. Submitted runs are found again after the
parent was restarted.
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
_REVIVAL_SECONDS = 30.0  # so long an automation may take to put a crashed run back in the queue
_STOP_SECONDS = 60.0  # so long a worker may take to stop a run
_AT_WORK = (StateType.RUNNING, StateType.CANCELLING)
_log = get_logger(__name__)


class Action(Enum):
    """What is done about a batch after a look at its run."""

    WAIT = auto()
    CANCEL = auto()  # its run, so that it does not run when its rows count no more
    GIVE_UP = auto()  # its worker did not stop it
    CONCLUDE = auto()  # what left no row gets one


def decide(batch: Batch, limits: RunLimits, now: float) -> tuple[Action, str]:
    """Decide about a submitted batch as it was seen last, with the reason to cancel its run.

    It is cancelled when it runs for longer than its models may, or when no worker comes for it.
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
    """Converts models on workers and judges the runs that do it."""

    runs: Runs  # on the server
    deployments: Mapping[str, UUID]  # of the flow that converts a batch, by work pool
    limits: RunLimits
    options: ConversionOptions  # passed on to every run
    recorder: Listener  # is given every row
    attended: bool = False  # whether an interrupt is a person's, who wants all of it to end
    _batches: list[Batch] = field(default_factory=list)  # of which rows are missing

    def convert(self, work: Sequence[PlannedModel], until: float) -> None:
        """Convert all of `work`, at the latest until `until`; each model of it has its row then."""
        self._batches += share_out(self._take_up(work), BATCH_MODELS)
        try:
            self._watch(until)
        except BaseException as stop:
            if self._is_given_up(stop):
                self._cancel_all()
            raise

    def _take_up(self, work: Sequence[PlannedModel]) -> list[PlannedModel]:
        """Go on with runs that were submitted before this run was restarted, and may still succeed.

        Return the other models. Rows of those runs count already: a model that failed is not
        converted again.
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
        """Return when nothing is waited for any more, at the latest after `until`."""
        answered = time.monotonic()
        while self._batches:
            try:
                self._submit_waiting()
                self._look()
                answered = time.monotonic()
            except Exception as error:  # noqa: BLE001 - whatever the way to the server can fail in
                # It may only be restarting.
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
        """Submit what waits; where there is no place for a batch, its models have failed."""
        for batch in self._batches:
            if batch.run is None:
                try:
                    batch.run = submit(self.runs, self.deployments, batch, self.options)
                    batch.since = batch.served = time.monotonic()
                except MenagerieError as error:
                    self._end(batch, error)

    def _look(self) -> None:
        submitted = {b.run.id: b for b in self._batches if b.run is not None and b.missing}
        # In this order: a run that is seen to have ended has left its rows.
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
        """Take a child's rows; of two rows from before and after a crash, the first counts."""
        restarted = batch.run is not None and batch.run.run_count > 1
        for row in rows:
            if batch.missing.pop((row.model, row.target), None) is not None:
                for stage in row.stages:  # the server notes the end of a task some seconds later
                    name = Stage(stage.stage)
                    self.recorder.stage_ended(row.model, row.target, name, stage.seconds)
                # What a run finds in the store when it is run again, it published the time before.
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
        """Say how a run ended; what it published before is in the store, and gets its rows."""
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
        """Stop waiting for a batch; what is missing of it crashed by an error, else timed out."""
        outcome, step = Outcome.TIMED_OUT, Step.RUN
        if isinstance(reason, MenagerieError):
            outcome, step = Outcome.CRASHED, Step.FLOW
        for one in batch.missing.values():
            self.recorder.model_ended(one.row(outcome, step, reason))
        batch.missing = {}

    def _end_all(self, reason: str | MenagerieError) -> None:
        for batch in self._batches:  # begun or not
            self._end(batch, reason)

    def _is_given_up(self, stop: BaseException) -> bool:
        """Return whether a person ends this run, and not its host.

        Where that goes down, the children go on, and a restarted run finds them.
        """
        if self.attended and isinstance(stop, KeyboardInterrupt):
            return True
        with suppress(Exception):  # nothing can be known, so nothing is done
            return self.runs.is_being_cancelled()
        return False

    def _cancel_all(self) -> None:
        for batch in self._batches:
            if batch.run is not None:
                with or_warned(f"{batch.name} could not be cancelled"):
                    self.runs.cancel(batch.run)


def _published(row: ModelResult) -> ModelResult:
    return row.model_copy(update={"outcome": Outcome.PUBLISHED})
