"""Batches of models, each of which one deployment run on a worker converts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from prefect.client.schemas.objects import FlowRun, StateType

from flows.parameters import ConversionOptions
from flows.plan import PlannedModel
from flows.runs import Runs
from flows.this_run import first_of
from transforms.targets import all_targets, target_named
from zoo.errors import MenagerieError, UsageError

CONVERT_BATCH = "convert-batch"  # the flow
POOLS_VARIABLE = "MENAGERIE_POOLS"
BATCH_MODELS = 8  # at most; a deployment run takes six to eight seconds before its first stage
UNDONE = (StateType.FAILED, StateType.CANCELLED)  # not crashed runs, which may be revived
_ATTEMPTS = 5  # new runs that replace runs cancelled before this run was restarted


def pool_of(target: str) -> str:
    """Return the work pool that converts for a target, as set by the operator or by default.

    The operator sets `MENAGERIE_POOLS`, such as `metal=macos-metal`, with commas between several
    pools. Raise UsageError if it has another form.
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
    """Models that one deployment run converts for one target, and those that lack a row."""

    target: str
    models: tuple[PlannedModel, ...]
    run: FlowRun | None = None  # as last seen; None if not submitted yet
    since: float = 0.0  # when the run reached its state or was asked to end
    served: float = 0.0  # when its pool last had a worker, or the run was submitted
    doomed: str = ""  # why it was asked to end
    missing: dict[tuple[str, str], PlannedModel] = field(init=False)

    def __post_init__(self) -> None:
        self.missing = {(p.model, p.target): p for p in self.models}

    @property
    def pool(self) -> str:
        """The work pool that converts the batch."""
        return pool_of(self.target)

    @property
    def key(self) -> str:
        """16 hexadecimal digits that depend on the builds but not on their order."""
        builds = sorted(f"{p.model} {p.build_key}" for p in self.models)
        return hashlib.sha256("\n".join(builds).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The run's name, e.g. `resnet18 and 3 more for cpu`."""
        return f"{first_of([one.model for one in self.models])} for {self.target}"

    @property
    def state(self) -> StateType | None:
        """The run's state; None without a run."""
        return None if self.run is None else self.run.state_type


def submit_all(runs: Runs, work: Sequence[PlannedModel], options: ConversionOptions) -> list[Batch]:
    """Submit runs that convert all of `work`, without waiting for them.

    Raise MenagerieError if a pool has no such deployment, or the server refuses a run.
    """
    batches, deployments = share_out(work, BATCH_MODELS), runs.deployments(CONVERT_BATCH)
    for batch in batches:
        batch.run = submit(runs, deployments, batch, options)
    return batches


def submit(
    runs: Runs, deployments: Mapping[str, UUID], batch: Batch, options: ConversionOptions
) -> FlowRun:
    """Submit a run that converts a batch.

    `deployments` are the flow's deployments by work pool. Raise MenagerieError if the pool has
    none, or the server refuses the run.
    """
    if batch.pool not in deployments:
        fact = f"there is no deployment of {CONVERT_BATCH} in it"
        raise MenagerieError(f"work pool {batch.pool}", fact, "Run `zoo cluster up` again")
    names = [one.model for one in batch.models]
    # Only options that differ from defaults: a worker of another version may not know the others.
    asked = options.model_dump(mode="json")
    for attempt in range(_ATTEMPTS):
        run = runs.submit(
            deployments[batch.pool],
            {"models": names, "target": batch.target, "options": asked},
            name=batch.name,
            tags=[*names, batch.target],
            key=f"{batch.key}-{attempt}",
        )
        if run.state_type not in UNDONE:  # otherwise it was cancelled before our restart
            break
    return run


def share_out(work: Sequence[PlannedModel], most: int) -> list[Batch]:
    """Group models into batches of one target and at most `most` models, keeping their order."""
    batches = []
    for target in dict.fromkeys(one.target for one in work):
        group = [one for one in work if one.target == target]
        parts = (group[start : start + most] for start in range(0, len(group), most))
        batches += [Batch(target, tuple(part)) for part in parts]
    return batches
