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
from flows.dispatch.runs import Phase
from flows.dispatch.submission import BatchChild, Submission
from flows.dispatch.supervisor import MINUTE, Policy, Supervisor
from flows.planning.plan import crashed_row, found_row, timed_out_row
from tasks.failures import explain
from zoo.errors import MenagerieError
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flows.dispatch.runs import Runs
    from flows.dispatch.stages import StageWatch
    from flows.outcome.results import ModelResult
    from flows.planning.placement import Placement
    from flows.planning.plan import PlannedModel
    from flows.request.parameters import ConversionOptions, RunLimits
    from flows.running.listener import Recorder

__all__ = ["Conversions"]

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
        watch: follows the stages on workers, where somebody looks on.
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
        watch: StageWatch | None = None,
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
        self._watch = watch
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

    def look(self, children: Sequence[BatchChild]) -> None:
        """Have whoever looks on see the stages, and devices confirm what ended meanwhile."""
        if self._watch is not None:
            self._watch.look([child.run.id for child in children])
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
        if child.run.phase is Phase.CRASHED:
            self._close_children(child)

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

    def _close_children(self, child: BatchChild) -> None:
        try:
            self._runs.close_children(child.run.id)
        except Exception as error:  # noqa: BLE001 - its rows are written; this only tidies up
            self._log.warning("The runs below %s stay as they are: %s", child.batch.name, error)

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
