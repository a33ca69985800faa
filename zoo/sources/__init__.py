"""Sources of models: torchvision, transformers, checkpoints, packages and factories."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from zoo.errors import SourceError
from zoo.sources.context import Context
from zoo.sources.fingerprint import has_weights, seed_used
from zoo.spec import (
    CheckpointSource,
    ModelSpec,
    PackageSource,
    SourceSpec,
    TorchvisionSource,
    TransformersSource,
)

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for export: in eval mode, in the entry's dtype, without gradients.

    `random_weights` is the seed if the weights are random, and None if they are real.
    """

    module: nn.Module
    description: str
    random_weights: int | None


def load(
    name: str, spec: ModelSpec, *, origin: Path, random_weights: int | None, allow_factories: bool
) -> LoadedModel:
    """Fetch and build the model `name` of the manifest file `origin`, the base of relative paths.

    A seed in `random_weights` replaces a download. Local weights (a checkpoint or folder beside the
    manifest, a factory's own) are used nevertheless, and the result then has
    `random_weights=None`. With `allow_factories`, builders from outside Menagerie may run. Raise
    SourceError if the model cannot be loaded; SourceRefused or HashMismatch for these reasons.
    """
    context = Context(name, origin.parent, allow_factories)
    seed = seed_used(spec, random_weights)
    if seed is not None:
        module = _random(spec, context, seed)
    elif has_weights(spec.source):
        module = _kind(spec.source).trained(spec.source, context).eval()
    else:
        fact = "its entry names no weights"
        raise SourceError(name, fact, "Convert it with --random-weights SEED")
    import torch

    module = module.to(getattr(torch, spec.dtype.value)).requires_grad_(requires_grad=False)
    return LoadedModel(module, _describe(spec.source, seed), seed)


def _random(spec: ModelSpec, context: Context, seed: int) -> nn.Module:
    """Build the module with seeded weights, and leave the caller's random state unchanged."""
    import torch

    from zoo.sources.random_weights import enliven, torch_threads

    with torch.random.fork_rng(devices=[]), torch_threads(1):
        torch.manual_seed(seed)
        module: nn.Module = _kind(spec.source).untrained(spec.source, context).float().eval()
        enliven(module, spec, context.model)
    return module


def load_library(kind: str) -> None:
    """Import the library that builds models of a kind of source, if there is one."""
    module = importlib.import_module(f"zoo.sources.{kind}")
    if hasattr(module, "library"):
        module.library()


def _kind(source: SourceSpec) -> ModuleType:
    """Return the submodule for this kind of source, which has `trained` and `untrained`."""
    return importlib.import_module(f"zoo.sources.{source.kind}")


def _describe(source: SourceSpec, seed: int | None) -> str:
    if isinstance(source, TransformersSource):
        what = f"transformers {source.architecture}"
        place = f"folder {source.folder}" if source.folder else f"{source.id} at {source.revision}"
    elif isinstance(source, TorchvisionSource):
        what, place = f"torchvision {source.builder}", str(source.weights)
    elif isinstance(source, CheckpointSource):
        what, place = source.builder, f"{source.path}, sha256 {source.sha256}"
    elif isinstance(source, PackageSource):
        what, place = source.builder, f"package {source.distribution} {source.version}"
    else:
        what, place = source.builder, "the builder's own"
    return f"{what}; weights: " + (place if seed is None else f"random, seed {seed}")
