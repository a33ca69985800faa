"""Converting on the workers of a Prefect server: one deployment run for each batch of models.

This run judges every child itself, by the rows that it leaves and the state that it ends in, and
never waits for ever: not for a pool without a worker, not for a run that does not end, not for a
server that is gone. Submitted runs are found again after this run was restarted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect.logging import get_logger

from flows.dispatch.batches import Batch, share_out
from flows.dispatch.clock import Clock
from flows.dispatch.runs import REVIVAL_SECONDS, Phase, Run
from flows.dispatch.submission import Child, Submission
from flows.planning.plan import crashed_row, found_row, timed_out_row
from tasks.failures import explain
from zoo.errors import MenagerieError
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flows.dispatch.runs import Runs
    from flows.dispatch.stages import StageWatch
    from flows.outcome.results import ModelResult
    from flows.planning.placement import Placement
    from flows.planning.plan import PlannedModel
    from flows.request.parameters import ConversionOptions, RunLimits
    from flows.running.listener import Recorder

__all__ = ["Dispatch"]

_MINUTE = 60.0
_STOP_SECONDS = 60.0  # so long a worker may take to stop a run

Key = tuple[str, str]


class Dispatch:
    """Converts models on workers.

    Args:
        runs: the server.
        placement: which pool converts for which target.
        limits: how long what may take.
        options: passed on to every run.
        recorder: hears of every row.
        clock: time.
        watch: follows the stages on workers, where somebody looks on.
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
        watch: StageWatch | None = None,
        attended: bool = False,
    ) -> None:
        self._runs = runs
        self._submission = Submission(runs, placement, options)
        self._placement = placement
        self._limits = limits
        self._options = options
        self._recorder = recorder
        self._clock = clock or Clock()
        self._watch = watch
        self._attended = attended
        self._alone: dict[str, float] = {}  # pools, and since when they have no worker
        self._silent_since: float | None = None
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
        now, tell = self._clock.now(), self._recorder.model_ended
        children = self._submission.taken_up(work, now, tell)
        known = {key for child in children for key in child.missing} | {
            (model, str(target)) for model, target in self._recorder.rows
        }
        rest = [one for one in work if (one.model, one.target.value) not in known]
        waiting = share_out(rest, self._placement.batches, seconds)
        try:
            while waiting or children:
                self._turn(waiting, children, until)
                children = [child for child in children if child.missing]
                if waiting or children:
                    self._clock.sleep(self._clock.poll_seconds)
        except BaseException as stop:
            self._abandon(children, stop)
            raise

    def _turn(self, waiting: list[Batch], children: list[Child], until: float) -> None:
        """Submit, look and judge once; a server that is away for a while is borne with."""
        try:
            while waiting:
                self._submit(waiting[0], children)
                del waiting[0]
            self._look(children)
            self._silent_since = None
        except Exception as error:  # noqa: BLE001 - whatever the way to the server can fail in
            self._silence(error, waiting, children)
        if self._clock.now() > until:
            reason = f"the run's {self._limits.hours:g} hours are over"
            self._give_up(children, reason)
            for batch in waiting:
                self._time_out(batch.models, reason)
            waiting.clear()

    def _submit(self, batch: Batch, children: list[Child]) -> None:
        """Submit a batch; where there is no place for it, its models have failed."""
        try:
            children.append(self._submission.submit(batch, self._clock.now()))
        except MenagerieError as error:
            self._fail(batch.models, error)

    def _look(self, children: list[Child]) -> None:
        ids = [child.run.id for child in children]
        if self._watch is not None:
            self._watch.look(ids)
        runs = self._runs.look(ids)  # first: a run that is seen to have ended has left its rows
        rows = self._runs.rows(ids)
        lonely = {child.pool for child in children if child.run.phase is Phase.WAITING}
        for pool in lonely:
            if self._runs.has_worker(pool):
                self._alone.pop(pool, None)
            else:
                self._alone.setdefault(pool, self._clock.now())
        for child in children:
            child.take_rows(rows.get(child.run.id, ()), self._recorder.model_ended)
            if child.missing:
                self._judge(child, runs.get(child.run.id))

    def _judge(self, child: Child, run: Run | None) -> None:
        now = self._clock.now()
        if run is None:
            self._fail(child.missing.values(), MenagerieError("Prefect", "the run was deleted"))
            child.missing.clear()
            return
        if run.phase is not child.run.phase:
            child.since = now
        child.run = run
        age = now - child.since
        if run.phase is Phase.CRASHED and age < REVIVAL_SECONDS:
            return
        if run.may_be_revived and not child.doomed:
            self._runs.run_again(run)  # the automation did not: a busy SQLite can lose its event
        elif run.phase.is_final:
            self._conclude(child)
        elif child.doomed:
            if age > _STOP_SECONDS:
                self._runs.cancel(run, force=True)
                self._conclude(child)
        else:
            self._doom(child, self._verdict(child, age), now)

    def _verdict(self, child: Child, age: float) -> str:
        """Why a child that has not ended must be given up; empty when it need not."""
        minutes = self._limits.minutes_per_model * len(child.batch.models)
        if child.run.phase is Phase.RUNNING and age > minutes * _MINUTE:
            return f"not done after {minutes} minutes"
        alone = self._alone.get(child.pool)
        patience = self._limits.minutes_without_worker
        lonely = alone is not None and self._clock.now() - alone >= patience * _MINUTE
        if child.run.phase is Phase.WAITING and lonely:
            worker = self._placement.pools[child.pool].worker
            return f"no worker in pool {child.pool} for {patience} minutes: start {worker}"
        return ""

    def _doom(self, child: Child, reason: str, now: float) -> None:
        if reason:
            child.doomed, child.since = reason, now
            self._runs.cancel(child.run)

    def _conclude(self, child: Child) -> None:
        """Rows for what the ended run left none for."""
        missing = list(child.missing.values())
        child.missing.clear()
        if child.doomed:
            self._time_out(missing, child.doomed)
        else:
            detail = f": {child.run.message}" if child.run.message else ""
            fact = f"its run ended {child.run.state}{detail}"
            error = MenagerieError("Prefect", fact, "The run's logs say why")
            for one in missing:
                self._recorder.model_ended(self._stored_row(one) or crashed_row(one, error))
        if child.run.phase is Phase.CRASHED:
            self._close_children(child)

    def _stored_row(self, one: PlannedModel) -> ModelResult | None:
        """The row of a model that was published by a run that could not say so any more."""
        if self._options.force or not one.build_key:
            return None
        try:
            store = open_store(self._options.store_url)
            return found_row(one) if store.has(one.model, one.target, one.build_key) else None
        except MenagerieError:
            return None

    def _give_up(self, children: list[Child], reason: str) -> None:
        for child in children:
            child.doomed = child.doomed or reason
            self._cancel(child)
            self._conclude(child)

    def _silence(self, error: Exception, waiting: list[Batch], children: list[Child]) -> None:
        """The server did not answer: it may be restarting, or gone."""
        now = self._clock.now()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < self._limits.minutes_without_server * _MINUTE:
            self._log.warning("Prefect's API did not answer: %s", error)
            return
        fact = explain(error, "Prefect")
        for batch in waiting:
            self._fail(batch.models, fact)
        waiting.clear()
        for child in children:
            self._fail(child.missing.values(), fact)
            child.missing.clear()

    def _abandon(self, children: list[Child], stop: BaseException) -> None:
        """This run is being stopped: if that is what somebody wants, its children are as well."""
        try:
            interrupted = isinstance(stop, KeyboardInterrupt) and self._attended
            if not interrupted and not self._runs.is_being_cancelled():
                return  # its host goes down: the children go on, and a restarted run finds them
        except Exception:  # noqa: BLE001 - nothing can be known, so nothing is done
            return
        for child in children:
            self._cancel(child)

    def _close_children(self, child: Child) -> None:
        try:
            self._runs.close_children(child.run.id)
        except Exception as error:  # noqa: BLE001 - its rows are written; this only tidies up
            self._log.warning("The runs below %s stay as they are: %s", child.batch.name, error)

    def _cancel(self, child: Child) -> None:
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
