"""The models of a selection that need conversion, decided by build key, and their jobs.

This module imports neither torch nor Prefect.
"""

from __future__ import annotations

import base64
import functools
import json
import platform
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flows.parameters import ConversionOptions, factories_allowed, manifest_folder
from flows.reports import conversion_log, known_report, report_folder
from flows.results import ModelResult, Outcome, Step
from flows.work import new_work_folder
from menagerie.compilers import find_host_compiler, package_version
from menagerie.host import RUNTIME_ABI
from menagerie.store.layout import Build, candidate_key, ledger_key
from menagerie.trust.ledger import MAX_LEDGER_BYTES
from tasks.job import Job
from transforms.stages import Stage
from transforms.targets import Target, all_targets, target_named
from zoo.build_key import build_key, code_digest
from zoo.errors import MenagerieError, UsageError, explain
from zoo.manifest import load_manifest
from zoo.precision import Precision
from zoo.sources.fingerprint import fingerprint, seed_used
from zoo.spec import ModelSpec
from zoo.store import Store, open_store

_PACKAGES = ("torch", "torchvision", "transformers", "numpy", "safetensors")
_FEW = 8  # ledgers that are read from the store at once


@functools.cache
def versions(target: Target) -> dict[str, str]:
    """Return versions of packages, compiler, platform and runtime ABI; `absent` if missing."""
    result = {name: package_version(name) for name in _PACKAGES}
    compiler = find_host_compiler()
    result["compiler"] = compiler.version if compiler is not None else "absent"
    result["host"] = f"{platform.system().lower()}-{platform.machine()}"
    result["platform"] = target.platform
    result |= target.versions()
    result["runtime abi"] = str(RUNTIME_ABI)  # an artifact with another ABI does not load
    return result


@dataclass(frozen=True)
class PlannedModel:
    """A model for a target, its build key, and the row of its release if the store has one.

    `seed` is the seed of its random weights; None if it keeps its own weights. `error` is why there
    is no build key (e.g. a missing file); `build_key` is then empty.
    """

    model: str
    target: str
    spec: ModelSpec
    origin: Path
    seed: int | None
    build_key: str
    error: MenagerieError | None = None
    stored: ModelResult | None = None  # None also if the stored release does not count

    @property
    def names(self) -> Build:
        """Model, target and build key, as in a store."""
        return self.model, self.target, self.build_key

    def row(
        self,
        outcome: Outcome,
        stage: Stage | Step | None = None,
        reason: object = None,
        seconds: float = 0.0,
    ) -> ModelResult:
        """Return the table's row for this outcome."""
        return ModelResult(
            model=self.model,
            target=self.target,
            outcome=outcome,
            stage=stage,
            reason=None if reason is None else str(reason),
            build_key=self.build_key or None,
            random_weights=self.seed,
            seconds=seconds,
        )

    @property
    def settled(self) -> ModelResult | None:
        """The row of a model that cannot be built or is stored; None if it must be converted."""
        return (
            self.stored if self.error is None else self.row(Outcome.FAILED, Step.PLAN, self.error)
        )


def plan(
    patterns: Sequence[str],
    targets: Sequence[str],
    options: ConversionOptions,
    *,
    tags: Sequence[str] = (),
    precisions: Sequence[Precision] = (),
) -> list[PlannedModel]:
    """Plan every selected model and target.

    Args:
        patterns: names and globs; empty for the default selection.
        targets: each model is planned for those that it supports; empty: all that it supports.
        options: store, manifest, random weights, force.
        tags: further models, by tag.
        precisions: precisions to select instead of those that the patterns name. One that a
        target of `targets` does not support, or in which a named model is not published, is
        a row with its error, after the others.

    Raises:
        UsageError: a name is not in the manifest, or no model supports any of the targets.
        ManifestError: the manifest has faults.
        StoreError: the store cannot be read.
    """
    store = open_store(options.store_url)
    manifest = load_manifest(manifest_folder(options), targets=all_targets())
    code = code_digest()

    def one(name: str, spec: ModelSpec, target: Target) -> PlannedModel:
        origin = manifest.origins[name].file
        seed = seed_used(spec, options.random_weights)
        unbuilt = PlannedModel(name, target.name, spec, origin, seed, "")
        if (refusal := target.refusal(spec.precision)) is not None:
            return replace(unbuilt, error=refusal)
        try:
            weights = fingerprint(spec, origin=origin, random_weights=seed)
        except (MenagerieError, OSError) as error:
            return replace(unbuilt, error=explain(error, name))
        key = build_key(
            name, spec, target.name, weights=weights, code=code, versions=versions(target)
        )
        return replace(unbuilt, build_key=key)

    chosen = {name: manifest.spec(name) for name in manifest.select(patterns, tags, precisions)}
    selection, refusals = [], []
    for name, spec in chosen.items():
        for target in map(target_named, targets or spec.targets):
            if target.refusal(spec.precision) is not None:
                refusals.append(one(name, spec, target))
            elif target.name in spec.targets:
                selection.append(one(name, spec, target))
    refusals += [
        PlannedModel(release, target, spec, manifest.origins[name].file, None, "", error)
        for name, release, error in manifest.unpublished(patterns, precisions)
        for spec in (manifest.spec(name),)
        for target in (targets or spec.targets)[:1]
    ]
    if targets and not selection:
        for error in (model.error for model in refusals if model.error is not None):
            raise error
        alternatives = sorted({target for spec in chosen.values() for target in spec.targets})
        step = (
            f"Pass `--target {alternatives[0]}`, which they support, or add `targets: "
            f"[{', '.join(targets)}]` to an entry; `{manifest.listing}` shows them"
        )
        raise UsageError(" or ".join(targets), "no selected model is for this target", step)
    return looked_up(selection, store, force=options.force) + refusals


def looked_up(planned: list[PlannedModel], store: Store, *, force: bool) -> list[PlannedModel]:
    """Return the plan updated with the store's current releases; `force` ignores them."""
    builds = [one.names for one in planned if one.error is None]
    if force or not builds:
        return planned
    manifests = store.held(builds)
    histories = {(release.model, release.platform) for release in manifests.values()}
    with ThreadPoolExecutor(_FEW) as pool:  # a request may cross an ocean
        retractions = list(pool.map(lambda history: _retractions(store, *history), histories))
    retracted = dict(zip(histories, retractions, strict=True))
    candidates = store.objects.list_keys(candidate_key.folder) if histories else []

    def with_row(one: PlannedModel) -> PlannedModel:
        if (manifest := manifests.get(one.names)) is None:
            return one
        facts = {
            "proof": manifest.state,
            "bytes": manifest.size,
            "candidate": candidate_key(*one.names) in candidates,
            "retracted": retracted[one.model, manifest.platform].get(one.build_key),
        }
        row = one.row(Outcome.SKIPPED).model_copy(update=facts)
        if (report := known_report(*one.names)) is not None:
            row = row.with_report(report, report_folder(one.model, one.target))
        return replace(one, stored=row)

    return list(map(with_row, planned))


def _retractions(store: Store, model: str, platform: str) -> dict[str, str]:
    """Return when and why builds were retracted, by build key, from a trusted ledger.

    Most ledgers retract nothing, and checking one can take seconds if its metadata is old.
    """
    content = store.objects.read_if_there(ledger_key(model, platform), MAX_LEDGER_BYTES) or b""
    with suppress(ValueError, LookupError, TypeError, RecursionError):  # no ledger
        if b'"retract"' in base64.b64decode(json.loads(content)["payload"]):
            return store.retractions(model, platform) or {}
    return {}


def sort_out(
    planned: Iterable[PlannedModel], tell: Callable[[ModelResult], object]
) -> list[PlannedModel]:
    """Return the models that must be converted, and report the rows of all others."""
    work = []
    for one in planned:
        if one.settled is None:
            work.append(one)
        else:
            tell(one.settled)
    return work


def job_for(planned: PlannedModel, options: ConversionOptions) -> Job:
    """Return a job with its own working folder, which is not created yet."""
    return Job(
        model=planned.model,
        target=planned.target,
        spec=planned.spec,
        origin=planned.origin,
        build_key=planned.build_key,
        seed=planned.seed,
        allow_factories=factories_allowed(options.manifest, asked=options.allow_factories),
        store=options.store_url,
        threads=options.threads,
        stage_seconds=options.stage_minutes * 60.0,
        search_seconds=options.search_minutes * 60.0,
        memory_bytes=None if options.memory_gib is None else options.memory_gib * 2**30,
        folder=new_work_folder(f"{planned.model}-{planned.target}"),
        reports=report_folder(planned.model, planned.target),
        log=conversion_log(planned.model, planned.target, planned.build_key),
    )
