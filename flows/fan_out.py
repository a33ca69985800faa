"""Converting on the workers of a Prefect server: one deployment run for each batch of models.

The parent run judges every child itself, by the rows that it leaves and the state that it ends in.
Outages of the server are tolerated up to a limit, and every wait is bounded: for a pool without a
worker, a run that does not end, a server that is gone. Submitted runs are found again after the
parent was restarted.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from prefect.logging import get_logger
from pydantic import Field, ValidationError, model_validator

from flows.connection import FlowName
from flows.dispatch.clock import Clock
from flows.outcome.results import Outcome
from flows.plan import crashed_row, found_row, timed_out_row
from flows.runs import Phase, Trigger, first_of
from tasks.failures import explain
from transforms.targets import all_targets, target_named
from zoo.base_models import Frozen
from zoo.errors import MenagerieError, UsageError
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flows.outcome.results import ModelResult
    from flows.parameters import ConversionOptions, RunLimits
    from flows.plan import PlannedModel
    from flows.runs import Run, Runs
    from flows.services import Recorder

_VARIABLE = "MENAGERIE_PLACEMENT"


class TargetPlaces(Frozen):
    """Pools of one target."""

    convert: str
    confirm: str | None = None


class Pool(Frozen):
    """A work pool."""

    worker: str = Field(description="what a person has to start for it, e.g. `a Mac`")


class BatchRule(Frozen):
    """How much work goes into one deployment run."""

    seconds: float = Field(gt=0)
    most: int = Field(ge=1, le=100)
    unknown_seconds: float = Field(gt=0)


class Placement(Frozen):
    """Who works where."""

    targets: dict[str, TargetPlaces] = Field(default_factory=dict)
    pools: dict[str, Pool]
    batches: BatchRule

    @model_validator(mode="after")
    def _complete(self) -> Placement:
        if strange := sorted(self.targets.keys() - all_targets().keys()):
            raise ValueError(f"there is no target {strange[0]!r}")
        for target in all_targets():
            places = self.places(target)
            for pool in (places.convert, places.confirm):
                if pool is not None and pool not in self.pools:
                    raise ValueError(f"target {target} names the unknown pool {pool!r}")
        return self

    def places(self, target: str) -> TargetPlaces:
        """Where a target's work is done: as the operator says, else as the target itself does."""
        if target in self.targets:
            return self.targets[target]
        known = target_named(target)
        return TargetPlaces(convert=known.convert_pool, confirm=known.confirm_pool)


def load_placement() -> Placement:
    """The placement in the file that MENAGERIE_PLACEMENT names, else Menagerie's own.

    Raises:
        UsageError: the file cannot be read or says something that cannot be.
    """
    path = Path(os.environ.get(_VARIABLE) or Path(__file__).with_name("placement.toml"))
    try:
        return Placement.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(str(path), f"is no TOML: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"{path}: {where}".rstrip(": "), fault["msg"]) from error


@dataclass(frozen=True)
class Batch:
    """Models that one deployment run converts for one target, one after another."""

    target: str
    models: tuple[PlannedModel, ...]

    @property
    def key(self) -> str:
        """The same for the same builds, in whatever order: 16 hexadecimal digits."""
        builds = sorted(f"{p.model} {p.build_key}" for p in self.models)
        return hashlib.sha256("\n".join(builds).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """What the run is called, e.g. `resnet18 and 3 more for cpu`."""
        return f"{first_of([one.model for one in self.models])} for {self.target}"


def share_out(
    work: Sequence[PlannedModel], rule: BatchRule, seconds: Mapping[tuple[str, str], float]
) -> list[Batch]:
    """Put models into batches of about equal time.

    Args:
        work: what to convert; only models of one target share a batch.
        rule: how large a batch may become.
        seconds: what is expected of a model and target, from earlier runs.

    Returns:
        The batches, in the order of their first models.
    """
    batches: list[Batch] = []
    for target in dict.fromkeys(one.target for one in work):
        group: list[PlannedModel] = []
        expected = 0.0
        for one in (w for w in work if w.target is target):
            cost = seconds.get((one.model, target), rule.unknown_seconds)
            if group and (expected + cost > rule.seconds or len(group) == rule.most):
                batches.append(Batch(target, tuple(group)))
                group, expected = [], 0.0
            group.append(one)
            expected += cost
        if group:
            batches.append(Batch(target, tuple(group)))
    return batches


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

    def look(self) -> None:
        """The runs are looked at now."""

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
        self._policy.look()
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


_SINGLE, _BATCH = FlowName.CONVERT_MODEL, FlowName.CONVERT_BATCH
_ATTEMPTS = 5  # new runs in place of ones that were cancelled before this run was restarted


@dataclass
class BatchChild(Child):
    """A submitted batch, and what is still missing of it."""

    batch: Batch = field(kw_only=True)
    missing: dict[tuple[str, str], PlannedModel] = field(init=False)

    def __post_init__(self) -> None:
        self.missing = {(p.model, p.target): p for p in self.batch.models}

    def take_rows(self, rows: Iterable[ModelResult], tell: Callable[[ModelResult], object]) -> None:
        """A row is the last word: of two, from before and after a crash of the run, the first."""
        for row in rows:
            if self.missing.pop((row.model, row.target), None) is not None:
                tell(self._whole(row))
        self.done = not self.missing

    def _whole(self, row: ModelResult) -> ModelResult:
        """What a run finds in the store when it is run again, it published the time before."""
        if row.outcome is not Outcome.SKIPPED or self.run.attempts <= 1:
            return row
        return row.model_copy(update={"outcome": Outcome.PUBLISHED})


class Submission:
    """Submits for one run, to the pools that `placement` names.

    Args:
        runs: the server; it is asked for its deployments at once.
        placement: which pool converts for which target.
        options: passed on to every run.
    """

    def __init__(self, runs: Runs, placement: Placement, options: ConversionOptions) -> None:
        self._runs = runs
        self._placement = placement
        self._options = options
        self._deployments = {flow: runs.deployments(flow) for flow in (_SINGLE, _BATCH)}

    def submit(self, batch: Batch, now: float) -> BatchChild:
        """A run for `batch`: of one model by itself, or of several.

        Raises:
            MenagerieError: the pool has no such deployment.
        """
        pool = self._placement.places(batch.target).convert
        single = len(batch.models) == 1 and not self._options.manifest
        flow = _SINGLE if single and pool in self._deployments[_SINGLE] else _BATCH
        deployment = self._deployments[flow].get(pool)
        if deployment is None:
            raise MenagerieError(
                f"work pool {pool}",
                f"there is no deployment of {flow} in it",
                "Run `zoo cluster up` again",
            )
        names = [one.model for one in batch.models]
        models: dict[str, Any] = {"models": names}
        if flow is _SINGLE:
            models = {"model": names[0]}
        else:
            models["build_keys"] = {one.model: one.build_key for one in batch.models}
        # Only what is asked for: a worker of another version need not know our other options.
        options = self._options.model_dump(mode="json")
        for attempt in range(_ATTEMPTS):
            run = self._runs.submit(
                deployment,
                {**models, "target": batch.target, "options": options},
                name=batch.name,
                tags=[*names, batch.target, Trigger.CONVERT_ZOO],
                key=f"{batch.key}-{attempt}",
                linked=True,
            )
            if run.phase is not Phase.ENDED:  # else it was cancelled before a restart of ours
                break
        return BatchChild(run, pool, now, batch=batch)

    def taken_up(
        self, work: Sequence[PlannedModel], now: float, tell: Callable[[ModelResult], object]
    ) -> list[BatchChild]:
        """Runs that were submitted before this run was restarted, and may still succeed.

        What they said already counts, and is told: a model that failed is not converted again.
        """
        planned = {(one.model, one.target): one for one in work}
        children = []
        submitted = self._runs.children()
        rows = self._runs.rows([run.id for run in submitted])
        for run in submitted:
            target = str(run.parameters.get("target", ""))
            found = [one for name in _models(run) if (one := planned.get((name, target)))]
            if not found:
                continue
            batch = Batch(found[0].target, tuple(found))
            pool = self._placement.places(batch.target).convert
            child = BatchChild(run, pool, now, batch=batch)
            child.take_rows(rows.get(run.id, ()), tell)
            again = child.missing if run.phase is Phase.ENDED else {}
            if child.missing and not again:
                children.append(child)
            for one in found:
                if (one.model, target) not in again:
                    del planned[one.model, target]
        return children


def _models(run: Run) -> list[str]:
    """The models that a run of either flow was asked for."""
    if (single := run.parameters.get("model")) is not None:
        return [str(single)]
    return [str(name) for name in run.parameters.get("models") or ()]


Key = tuple[str, str]


class Conversions(Policy[BatchChild]):
    """Converts models on workers: the policy for the runs that do it.

    Args:
        runs: the server.
        placement: which pool converts for which target.
        limits: how long what may take.
        options: passed on to every run.
        recorder: hears of every row.
        clock: time.
        confirm: asks devices to confirm these rows, if they await it.
        attended: whether an interrupt is a person's, who wants all of it to end.
    """

    def __init__(
        self,
        runs: Runs,
        *,
        placement: Placement,
        limits: RunLimits,
        options: ConversionOptions,
        recorder: Recorder,
        clock: Clock | None = None,
        confirm: Callable[[Sequence[ModelResult]], None] | None = None,
        attended: bool = False,
    ) -> None:
        self._runs = runs
        self._submission = Submission(runs, placement, options)
        self._placement = placement
        self._limits = limits
        self._options = options
        self._recorder = recorder
        self._clock = clock or Clock()
        self._confirm = confirm
        self._attended = attended
        self._fresh: list[ModelResult] = []  # since the last look
        self._waiting: list[Batch] = []
        self._log = get_logger(__name__)

    def convert(
        self, work: Sequence[PlannedModel], seconds: Mapping[Key, float], until: float
    ) -> None:
        """Convert all of `work`; afterwards every model of it has its row.

        Args:
            work: models to convert.
            seconds: what is expected of them, from earlier runs.
            until: when the hours of the run are over, by the clock.
        """
        supervisor: Supervisor[BatchChild] = Supervisor(
            self._runs, self._clock, self, self._limits.minutes_without_server
        )
        supervisor.children = self._submission.taken_up(work, self._clock.now(), self._take_row)
        known = {key for child in supervisor.children for key in child.missing} | {
            (model, str(target)) for model, target in self._recorder.rows
        }
        rest = [one for one in work if (one.model, one.target) not in known]
        self._waiting = share_out(rest, self._placement.batches, seconds)
        try:
            supervisor.watch(until)
        except BaseException as stop:
            self._abandon(supervisor.children, stop)
            raise

    def begin(self) -> Iterator[BatchChild]:
        """Submit what waits; where there is no place for a batch, its models have failed."""
        while self._waiting:
            try:
                yield self._submission.submit(self._waiting[0], self._clock.now())
            except MenagerieError as error:
                self._fail(self._waiting[0].models, error)
            del self._waiting[0]

    def look(self) -> None:
        """Have devices confirm what ended meanwhile."""
        fresh, self._fresh = self._fresh, []
        if self._confirm is not None:
            self._confirm(fresh)

    def take(self, child: BatchChild, rows: Sequence[ModelResult]) -> None:
        """Tell the rows that are new."""
        child.take_rows(rows, self._take_row)

    def verdict(self, child: BatchChild, age: float, alone: float | None) -> str:
        """It runs for longer than its models may, or nobody comes for it."""
        minutes = self._limits.minutes_per_model * len(child.batch.models)
        if child.run.phase is Phase.RUNNING and age > minutes * MINUTE:
            return f"not done after {minutes} minutes"
        patience = self._limits.minutes_without_worker
        lonely = alone is not None and alone >= patience * MINUTE
        if child.run.phase is Phase.WAITING and lonely:
            worker = self._placement.pools[child.pool].worker
            return f"no worker in pool {child.pool} for {patience} minutes: start {worker}"
        return ""

    def give_up(self, child: BatchChild, reason: str) -> None:
        """Have it end, so that it does not run when nobody waits for it any more."""
        child.doomed = reason
        self._runs.cancel(child.run)

    def conclude(self, child: BatchChild) -> None:
        """Rows for what the ended run left none for."""
        missing = list(child.missing.values())
        child.missing.clear()
        if child.doomed:
            self._time_out(missing, child.doomed)
        elif not child.run.phase.is_final:
            self._fail(missing, MenagerieError("Prefect", "the run was deleted"))
        else:
            detail = f": {child.run.message}" if child.run.message else ""
            fact = f"its run ended {child.run.state}{detail}"
            error = MenagerieError("Prefect", fact, "The run's logs say why")
            for one in missing:
                self._take_row(self._stored_row(one) or crashed_row(one, error))

    def time_is_up(self, children: Sequence[BatchChild]) -> None:
        """What is not done has timed out, begun or not."""
        reason = f"the run's {self._limits.hours:g} hours are over"
        for child in children:
            child.doomed = child.doomed or reason
            self._cancel(child)
            self.conclude(child)
        for batch in self._waiting:
            self._time_out(batch.models, reason)

    def server_is_gone(self, children: Sequence[BatchChild], error: Exception) -> None:
        """What is not done has crashed, begun or not."""
        fact = explain(error, "Prefect")
        for batch in self._waiting:
            self._fail(batch.models, fact)
        for child in children:
            self._fail(child.missing.values(), fact)

    def _take_row(self, row: ModelResult) -> None:
        self._recorder.model_ended(row)
        self._fresh.append(row)

    def _stored_row(self, one: PlannedModel) -> ModelResult | None:
        """The row of a model that was published by a run that could not say so any more."""
        if self._options.force or not one.build_key:
            return None
        try:
            store = open_store(self._options.store_url)
            return found_row(one) if store.has(one.model, one.target, one.build_key) else None
        except MenagerieError:
            return None

    def _abandon(self, children: Sequence[BatchChild], stop: BaseException) -> None:
        """This run is being stopped: if that is what somebody wants, its children are as well."""
        try:
            interrupted = isinstance(stop, KeyboardInterrupt) and self._attended
            if not interrupted and not self._runs.is_being_cancelled():
                return  # its host goes down: the children go on, and a restarted run finds them
        except Exception:  # noqa: BLE001 - nothing can be known, so nothing is done
            return
        for child in children:
            self._cancel(child)

    def _cancel(self, child: BatchChild) -> None:
        try:
            self._runs.cancel(child.run)
        except Exception as error:  # noqa: BLE001 - the others are to be cancelled all the same
            self._log.warning("%s could not be cancelled: %s", child.batch.name, error)

    def _fail(self, models: Iterable[PlannedModel], error: MenagerieError) -> None:
        for one in models:
            self._recorder.model_ended(crashed_row(one, error))

    def _time_out(self, models: Iterable[PlannedModel], reason: str) -> None:
        for one in models:
            self._recorder.model_ended(timed_out_row(one, reason))
