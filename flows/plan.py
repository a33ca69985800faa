"""What of a selection needs converting at all: decided by build key, without torch or Prefect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.reports import known_report, report_folder
from flows.results import ModelResult, Outcome
from flows.toolchain import code_digest, versions
from zoo.build_key import build_key
from zoo.errors import MenagerieError
from zoo.manifest import load_manifest
from zoo.sources.fingerprint import fingerprint, seed_used
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flows.parameters import ConversionOptions
    from zoo.spec import ModelSpec, Target

__all__ = [
    "PlannedModel",
    "crashed_row",
    "failed_row",
    "plan",
    "skipped_row",
]


@dataclass(frozen=True)
class PlannedModel:
    """A model for a target, its build key, and whether the store already has that release.

    `seed` is of its random weights; None where it keeps its own. `error` says why there can be no
    build key (a missing file, say), and then `build_key` is empty.
    """

    model: str
    target: Target
    spec: ModelSpec
    origin: Path
    seed: int | None
    build_key: str
    in_store: bool
    error: str | None = None


def plan(
    patterns: Sequence[str],
    targets: Sequence[Target],
    options: ConversionOptions,
    *,
    tags: Sequence[str] = (),
) -> list[PlannedModel]:
    """Decide for every selected model and target whether there is work.

    Args:
        patterns: names and globs; empty for the default selection.
        targets: each model is taken for those of them it supports; empty: all it supports.
        options: store, manifest, random weights, force.
        tags: further models, by tag.

    Raises:
        UsageError: for a name that is not in the manifest.
        ManifestError: if the manifest has faults.
        StoreError: if the store cannot be asked.
    """
    manifest = load_manifest(options.manifest_folder)
    store = open_store(options.store_url)
    code = code_digest()
    wanted = [
        (name, target)
        for name in manifest.select(patterns, tags)
        for target in manifest.spec(name).targets
        if not targets or target in targets
    ]

    def one(pair: tuple[str, Target]) -> PlannedModel:
        name, target = pair
        spec, origin = manifest.spec(name), manifest.origin(name).file
        seed = seed_used(spec, options.random_weights)
        try:
            weights = fingerprint(spec, origin=origin, random_weights=seed)
        except MenagerieError as error:
            return PlannedModel(name, target, spec, origin, seed, "", False, str(error))
        key = build_key(name, spec, target, weights=weights, code=code, versions=versions())
        in_store = not options.force and store.has(name, target, key)
        return PlannedModel(name, target, spec, origin, seed, key, in_store)

    with ThreadPoolExecutor(8) as pool:  # a question to the store may cross an ocean
        return list(pool.map(one, wanted))


def skipped_row(planned: PlannedModel) -> ModelResult:
    """The row of a model whose release is in the store already."""
    row = ModelResult(
        model=planned.model,
        target=planned.target,
        outcome=Outcome.SKIPPED,
        build_key=planned.build_key,
        random_weights=planned.seed,
    )
    report = known_report(planned.model, planned.target, planned.build_key)
    if report is None:
        return row
    return row.with_report(report, report_folder(planned.model, planned.target))


def failed_row(planned: PlannedModel) -> ModelResult:
    """The row of a model that cannot even be planned."""
    return ModelResult(
        model=planned.model,
        target=planned.target,
        outcome=Outcome.FAILED,
        stage="plan",
        reason=planned.error,
        random_weights=planned.seed,
    )


def crashed_row(planned: PlannedModel, error: MenagerieError, seconds: float = 0.0) -> ModelResult:
    """The row of a model whose run ended without one of its own."""
    return ModelResult(
        model=planned.model,
        target=planned.target,
        outcome=Outcome.CRASHED,
        stage="flow",
        reason=str(error),
        build_key=planned.build_key or None,
        random_weights=planned.seed,
        seconds=seconds,
    )
