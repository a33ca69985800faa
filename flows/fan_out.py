"""Converting on the workers of a Prefect server: one deployment run for each batch of models.

The parent run judges every child itself, by the rows that it leaves and the state that it ends in.
Outages of the server are tolerated up to a limit, and every wait is bounded: for a pool without a
worker, a run that does not end, a server that is gone. Submitted runs are found again after the
parent was restarted.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from uuid import UUID

from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, StateType
from prefect.logging import get_logger

from flows.parameters import ConversionOptions, RunLimits
from flows.plan import PlannedModel, looked_up
from flows.results import Listener, ModelResult, Outcome, Step
from flows.runs import Runs
from flows.this_run import Trigger, first_of
from transforms.stages import Stage
from transforms.targets import all_targets, target_named
from zoo.errors import MenagerieError, UsageError, explain

CONVERT_BATCH = "convert-batch"  # the flow
POOLS_VARIABLE = "MENAGERIE_POOLS"
BATCH_MODELS = 8  # at most: a deployment run costs six to eight seconds before its first stage
_MINUTE = 60.0
_POLL_SECONDS = 2.0
_REVIVAL_SECONDS = 30.0  # so long an automation may take to put a crashed run back in the queue
_STOP_SECONDS = 60.0  # so long a worker may take to stop a run
_AT_WORK = (StateType.RUNNING, StateType.CANCELLING)
_UNDONE = (StateType.FAILED, StateType.CANCELLED)  # a crashed run may be revived
_ATTEMPTS = 5  # new runs in place of ones that were cancelled before this run was restarted
_log = get_logger(__name__)


def pool_of(target: str) -> str:
    """Return the work pool that converts for a target: as the operator says, else as it does.

    The operator says it by `MENAGERIE_POOLS`, such as `metal=macos-metal`, with commas between
    several; UsageError where it has another form.
    """
    chosen = {}
    for one in filter(None, map(str.strip, os.environ.get(POOLS_VARIABLE, "").split(","))):
        name, _, pool = map(str.strip, one.partition("="))
        if not pool or name not in all_targets():
            fact = f"{one!r} is not a target with its pool"
            advice = "Write metal=macos-metal, with commas between several"
            raise UsageError(POOLS_VARIABLE, fact, advice)
        chosen[name] = pool
    return chosen.get(target) or target_named(target).convert_pool


@dataclass
class Batch:
    """Models that one deployment run converts for one target, and which of them lack a row."""

    target: str
    models: tuple[PlannedModel, ...]
    run: FlowRun | None = None  # as it was seen last; None: it is not submitted yet
    since: float = 0.0  # when the run came to its state, or was asked to end
    served: float = 0.0  # when its pool had a worker last, or the run was submitted
    doomed: str = ""  # why it was asked to end
    missing: dict[tuple[str, str], PlannedModel] = field(init=False)

    def __post_init__(self) -> None:
        self.missing = {(p.model, p.target): p for p in self.models}

    @property
    def pool(self) -> str:
        """Where it is converted."""
        return pool_of(self.target)

    @property
    def key(self) -> str:
        """The same for the same builds, in whatever order: 16 hexadecimal digits."""
        builds = sorted(f"{p.model} {p.build_key}" for p in self.models)
        return hashlib.sha256("\n".join(builds).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """What the run is called, e.g. `resnet18 and 3 more for cpu`."""
        return f"{first_of([one.model for one in self.models])} for {self.target}"

    @property
    def state(self) -> StateType | None:
        """Of the run, where there is one."""
        return None if self.run is None else self.run.state_type

    def see(self, run: FlowRun | None, now: float, *, served: bool) -> None:
        """Note the run as it is now, None if it was deleted, and whether its pool has a worker."""
        before, self.run = self.state, run
        if self.state is not before:
            self.since = now
        if served or self.state in _AT_WORK:
            self.served = now

    def take_rows(self, rows: Iterable[ModelResult], tell: Callable[[ModelResult], object]) -> None:
        """Take a child's rows; of two rows from before and after a crash, the first counts."""
        restarted = self.run is not None and self.run.run_count > 1
        for row in rows:
            if self.missing.pop((row.model, row.target), None) is not None:
                # What a run finds in the store when it is run again, it published the time before.
                again = row.outcome is Outcome.SKIPPED and restarted
                tell(row.model_copy(update={"outcome": Outcome.PUBLISHED}) if again else row)


def submit_all(runs: Runs, work: Sequence[PlannedModel], options: ConversionOptions) -> list[Batch]:
    """Submit runs that convert all of `work`, and wait for none of them.

    Raise MenagerieError if a pool has no such deployment, or the server refuses a run.
    """
    batches, deployments = share_out(work, BATCH_MODELS), runs.deployments(CONVERT_BATCH)
    for batch in batches:
        batch.run = _submit(runs, deployments, batch, options, batch.key)
    return batches


def _submit(
    runs: Runs,
    deployments: Mapping[str, UUID],
    batch: Batch,
    options: ConversionOptions,
    key: str,
    *tags: str,
) -> FlowRun:
    if batch.pool not in deployments:
        fact = f"there is no deployment of {CONVERT_BATCH} in it"
        raise MenagerieError(f"work pool {batch.pool}", fact, "Run `zoo cluster up` again")
    names = [one.model for one in batch.models]
    # Only what is asked for: a worker of another version need not know our other options.
    asked = options.model_dump(mode="json")
    return runs.submit(
        deployments[batch.pool],
        {"models": names, "target": batch.target, "options": asked},
        name=batch.name,
        tags=[*names, batch.target, *tags],
        key=key,
    )


def share_out(work: Sequence[PlannedModel], most: int) -> list[Batch]:
    """Put models into batches of one target and at most `most`, in the order of their first."""
    batches = []
    for target in dict.fromkeys(one.target for one in work):
        group = [one for one in work if one.target == target]
        parts = (group[start : start + most] for start in range(0, len(group), most))
        batches += [Batch(target, tuple(part)) for part in parts]
    return batches


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

    runs: Runs  # on the server, which is asked for its deployments at once
    limits: RunLimits
    options: ConversionOptions  # passed on to every run
    recorder: Listener  # is given every row
    attended: bool = False  # whether an interrupt is a person's, who wants all of it to end
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _batches: list[Batch] = field(default_factory=list)  # of which rows are missing
    _answered: float = 0.0  # when the server answered last
    _ended: set[tuple[str, str, Stage]] = field(default_factory=set)  # that were reported

    def __post_init__(self) -> None:
        self._deployments = self.runs.deployments(CONVERT_BATCH)

    def convert(self, work: Sequence[PlannedModel], until: float) -> None:
        """Convert all of `work`, at the latest until `until`; each model of it has its row then."""
        self._answered = self.now()
        self._batches = self._taken_up(work)
        settled = {key for batch in self._batches for key in batch.missing}
        settled |= self.recorder.rows.keys()
        rest = [one for one in work if (one.model, one.target) not in settled]
        self._batches += share_out(rest, BATCH_MODELS)
        try:
            self._watch(until)
        except BaseException as stop:
            self._abandon(stop)
            raise

    def _taken_up(self, work: Sequence[PlannedModel]) -> list[Batch]:
        """Return runs that were submitted before this run was restarted, and may still succeed.

        Their rows count already: a model that failed is not converted again.
        """
        planned = {(one.model, one.target): one for one in work}
        batches = []
        submitted = self.runs.children()
        rows = self.runs.rows([run.id for run in submitted])
        for run in submitted:
            target = str(run.parameters.get("target", ""))
            keys = [(str(name), target) for name in run.parameters.get("models") or ()]
            models = tuple(planned[key] for key in keys if key in planned)
            batch = Batch(target, models, run, self.now(), self.now())
            batch.take_rows(rows.get(run.id, ()), self.recorder.model_ended)
            again = batch.missing if batch.state in _UNDONE else {}
            if batch.missing and not again:
                batches.append(batch)
            for one in models:
                if (one.model, target) not in again:
                    del planned[one.model, target]
        return batches

    def _watch(self, until: float) -> None:
        """Return when nothing is waited for any more, at the latest after `until`."""
        while self._batches:
            try:
                self._submit_waiting()
                self._look()
                self._answered = self.now()
            except Exception as error:  # noqa: BLE001 - whatever the way to the server can fail in
                # It may only be restarting.
                if self.now() - self._answered >= self.limits.minutes_without_server * _MINUTE:
                    for batch in self._batches:  # begun or not
                        self._crash(batch, explain(error, "Prefect"))
                    return
                _log.warning("Prefect's API did not answer: %s", error)
            self._batches = [batch for batch in self._batches if batch.missing]
            if self.now() > until:
                for batch in self._batches:  # begun or not
                    batch.doomed = batch.doomed or f"the run's {self.limits.hours:g} hours are over"
                    self._cancel(batch)
                    self._conclude(batch)
                return
            if self._batches:
                self.sleep(_POLL_SECONDS)

    def _submit_waiting(self) -> None:
        """Submit what waits; where there is no place for a batch, its models have failed."""
        for batch in self._batches:
            if batch.run is None:
                try:
                    batch.run = self._submitted(batch)
                    batch.since = batch.served = self.now()
                except MenagerieError as error:
                    self._crash(batch, error)

    def _submitted(self, batch: Batch) -> FlowRun:
        """Submit a run for `batch`; MenagerieError: the pool has no such deployment."""
        for attempt in range(_ATTEMPTS):
            key = f"{batch.key}-{attempt}"
            run = _submit(
                self.runs, self._deployments, batch, self.options, key, Trigger.CONVERT_ZOO
            )
            if run.state_type not in _UNDONE:  # else it was cancelled before a restart of ours
                break
        return run

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
                self._end_stage(model, target, stage, seconds)
        for run, batch in submitted.items():
            batch.take_rows(rows.get(run, ()), self._take_row)
            if batch.missing:
                batch.see(runs.get(run), self.now(), served=batch.pool in served)
                self._act(batch)

    def _take_row(self, row: ModelResult) -> None:
        for stage in row.stages:  # the server notes the end of a task some seconds later
            self._end_stage(row.model, row.target, Stage(stage.stage), stage.seconds)
        self.recorder.model_ended(row)

    def _end_stage(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        if (model, target, stage) not in self._ended:
            self._ended.add((model, target, stage))
            self.recorder.stage_ended(model, target, stage, seconds)

    def _act(self, batch: Batch) -> None:
        action, reason = decide(batch, self.limits, self.now())
        if batch.run is not None and action in (Action.CANCEL, Action.GIVE_UP):
            self.runs.cancel(batch.run, force=action is Action.GIVE_UP)
        if action is Action.CANCEL:
            batch.since, batch.doomed = self.now(), reason
        elif action is not Action.WAIT:
            self._conclude(batch)

    def _conclude(self, batch: Batch) -> None:
        """Write rows for the models that the ended run left without one."""
        if batch.doomed:
            self._end(batch, lambda one: one.row(Outcome.TIMED_OUT, Step.RUN, batch.doomed))
        elif batch.run is None:
            self._crash(batch, MenagerieError("Prefect", "the run was deleted"))
        else:
            message = batch.run.state.message if batch.run.state else ""
            detail = f": {message}" if message else ""
            fact = f"its run ended {batch.run.state_name}{detail}"
            error = MenagerieError("Prefect", fact, "The run's logs say why")
            self._end(batch, lambda one: self._stored_row(one, error))

    def _stored_row(self, one: PlannedModel, error: MenagerieError) -> ModelResult:
        """Return the row of a model that its run published before it died; else it crashed."""
        with suppress(MenagerieError):
            [now] = looked_up([one], self.options)
            if now.settled is not None:
                return now.settled.model_copy(update={"outcome": Outcome.PUBLISHED})
        return one.row(Outcome.CRASHED, Step.FLOW, error)

    def _abandon(self, stop: BaseException) -> None:
        """Stop the children if a person cancels this run."""
        try:
            interrupted = isinstance(stop, KeyboardInterrupt) and self.attended
            if not interrupted and not self.runs.is_being_cancelled():
                return  # its host goes down: the children go on, and a restarted run finds them
        except Exception:  # noqa: BLE001 - nothing can be known, so nothing is done
            return
        for batch in self._batches:
            self._cancel(batch)

    def _cancel(self, batch: Batch) -> None:
        try:
            if batch.run is not None:
                self.runs.cancel(batch.run)
        except Exception as error:  # noqa: BLE001 - the others are to be cancelled all the same
            _log.warning("%s could not be cancelled: %s", batch.name, error)

    def _crash(self, batch: Batch, error: MenagerieError) -> None:
        self._end(batch, lambda one: one.row(Outcome.CRASHED, Step.FLOW, error))

    def _end(self, batch: Batch, row: Callable[[PlannedModel], ModelResult]) -> None:
        """Stop waiting for a batch, and give its missing models this row."""
        missing, batch.missing = batch.missing, {}
        for one in missing.values():
            self.recorder.model_ended(row(one))
