"""Batches become runs on the server; those of an earlier life of this run are found again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flows.dispatch.batches import Batch
from flows.dispatch.runs import Phase
from flows.dispatch.supervisor import Child
from flows.names import FlowName
from flows.outcome.results import Outcome
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flows.dispatch.runs import Run, Runs
    from flows.outcome.results import ModelResult
    from flows.planning.placement import Placement
    from flows.planning.plan import PlannedModel
    from flows.request.parameters import ConversionOptions

__all__ = ["BatchChild", "Submission"]

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
                f"work pool {pool}", f"there is no deployment of {flow} in it", "Run `zoo up` again"
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
                tags=[*names[:3], batch.target],
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
