"""Sharing out models to deployment runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flows.planning.placement import BatchRule
    from flows.planning.plan import PlannedModel

__all__ = ["Batch", "share_out"]


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
        rest = len(self.models) - 1
        more = f" and {rest} more" if rest else ""
        return f"{self.models[0].model}{more} for {self.target}"


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
