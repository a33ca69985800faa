"""The identity of what an entry refers to, as text for the build key; loads no weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from menagerie.durable import sha256_of
from zoo.sources.context import Context, resolve_inside, weights_folder
from zoo.spec import (
    CheckpointSource,
    FactorySource,
    ModelSpec,
    PackageSource,
    SourceSpec,
    TorchvisionSource,
    TransformersSource,
    is_ours,
)

_PROJECT = Path(__file__).parents[2]


def has_weights(source: SourceSpec) -> bool:
    """Return whether weights exist without `--random-weights`."""
    match source:
        case TorchvisionSource(weights=None) | TransformersSource(id=None, folder=None):
            return False
        case FactorySource():
            return source.has_weights
        case _:
            return True


def is_fetched(source: SourceSpec) -> bool:
    """Return whether a seed replaces the weights, as it does for weights from a network."""
    match source:
        case CheckpointSource():
            return source.path.startswith("https://")
        case PackageSource():
            return False  # the entry exists for the trained weights, and the index has them
        case FactorySource():
            return not source.has_weights
        case _:
            return not isinstance(source, TransformersSource) or source.folder is None


def seed_used(spec: ModelSpec, random_weights: int | None) -> int | None:
    """Return the seed if it replaces a download; None for local weights."""
    return random_weights if is_fetched(spec.source) else None


def fingerprint(spec: ModelSpec, *, origin: Path, random_weights: int | None) -> str:
    """Return the identity of an entry's content: weights, builder's code, data.

    The text differs whenever the content does. For a factory of the manifest's owner it covers the
    source file, but not the files that this reads. `origin` is the manifest file. Raise SourceError
    if a local folder, or the data of calibration or accuracy gate, is missing, SourceRefused if one
    leads out of the manifest's folder.
    """
    source, folder = spec.source, origin.parent
    seed = seed_used(spec, random_weights)
    facts = [_weights(source, folder) if seed is None else f"random {seed}"]
    if isinstance(source, CheckpointSource | PackageSource | FactorySource):
        facts.append(f"builder {_code_digest(source.builder, folder)}")
    if spec.calibration and not spec.calibrated_by_gate:
        context = Context("calibration", folder)
        facts.append(f"calibration {sha256_of(resolve_inside(spec.calibration, context))}")
    if spec.accuracy is not None:
        context, gate = Context("accuracy gate", folder), spec.accuracy
        made = gate.recording or gate.film  # the entry has the digests of packages' files
        if data := gate.data or getattr(made, "reference", None):
            facts.append(f"data {sha256_of(resolve_inside(data, context))}")
    if labels := getattr(spec.use, "labels", None):
        facts.append(f"labels {sha256_of(resolve_inside(labels, Context('labels', folder)))}")
    if spec.speech is not None and spec.speech.gate is not None:
        place = resolve_inside(spec.speech.gate.folder, Context("word gate", folder))
        facts.append(f"recordings {_digest(sorted(place.iterdir()))}")
    return ", ".join(facts)


def _weights(source: SourceSpec, folder: Path) -> str:
    match source:
        case TorchvisionSource():
            return f"torchvision {source.weights}"
        case CheckpointSource():
            return f"sha256 {source.sha256}"
        case PackageSource():
            return f"package {[part.model_dump(mode='json') for part in source.weights]}"
        case FactorySource():
            return "factory"
        case TransformersSource(folder=None):
            return f"hub {source.id} {source.revision}"
        case TransformersSource():
            context = Context(source.architecture, folder)
            return f"folder {_folder_digest(weights_folder(source.folder or '', context))}"


def _folder_digest(folder: Path) -> str:
    """Hash the names and bytes of the files that transformers reads from a folder."""
    return _digest(sorted(p for p in folder.iterdir() if p.suffix in {".safetensors", ".json"}))


def _digest(files: Sequence[Path]) -> str:
    lines = (f"{path.name} {sha256_of(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _code_digest(reference: str, folder: Path) -> str:
    """Hash the builder's source file, which is located without an import that would run it."""
    module = reference.partition(":")[0]
    places = [str(_PROJECT)] if is_ours(reference) else None
    path = _locate(module, places or [str(folder)])
    if path is None and places is None:
        path = _locate(module, None)
    return sha256_of(path) if path is not None else "unlocated"


def _locate(module: str, places: list[str] | None) -> Path | None:
    found = None
    for depth in range(module.count(".") + 1):
        name = ".".join(module.split(".")[: depth + 1])
        found = PathFinder.find_spec(name, places)
        if found is None:
            return None
        places = list(found.submodule_search_locations or ())
    origin = found.origin if found is not None else None
    return Path(origin) if origin is not None and Path(origin).is_file() else None
