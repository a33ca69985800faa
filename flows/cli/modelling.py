"""A model with its programs exported, for the commands that look into graphs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from transforms.export.prepare import Prepared, prepare
from transforms.goldens.real_samples import real_sample
from transforms.targets import all_targets
from zoo import sources
from zoo.manifest import load_manifest
from zoo.sources.context import Context
from zoo.sources.fingerprint import seed_used

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.spec import ModelSpec

__all__ = ["PreparedModel", "prepare_model"]


@dataclass(frozen=True)
class PreparedModel:
    """An entry of the manifest, and its programs before any pass."""

    spec: ModelSpec
    programs: tuple[Prepared, ...]


def prepare_model(
    model: str, manifest: Path | None, random_weights: int | None, *, allow_factories: bool
) -> PreparedModel:
    """Load a model and export its programs.

    Raises:
        UsageError: if the manifest has no such model.
        SourceError: if its weights cannot be had.
        ExportError: if a program cannot be exported.
    """
    entries = load_manifest(manifest, targets=all_targets())
    spec = entries.spec(model)
    origin = entries.origin(model).file
    loaded = sources.load(
        model,
        spec,
        origin=origin,
        random_weights=seed_used(spec, random_weights),
        allow_factories=allow_factories,
    )
    context = Context(model, origin.parent)
    real = (real_sample(spec, program, context) for program in spec.programs)
    prepared = map(prepare, repeat(loaded.module), spec.programs, real)
    return PreparedModel(spec, tuple(prepared))
