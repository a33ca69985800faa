"""State dicts from a file beside the manifest or from a URL, checked before they are opened."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from menagerie.durable import sha256_of
from zoo.errors import SourceError, SourceRefused
from zoo.sources import factory
from zoo.sources.context import resolve_inside
from zoo.sources.download import fetch, require_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from zoo.sources.context import Context
    from zoo.spec import CheckpointSource

__all__ = ["fill", "read_state", "trained", "untrained"]


def untrained(source: CheckpointSource, context: Context) -> nn.Module:
    """The module that the weights are for."""
    return factory.build(source.builder, source.arguments, context)


def trained(source: CheckpointSource, context: Context) -> nn.Module:
    """The module with the checkpoint's weights.

    Raises:
        HashMismatch: if the file's bytes are not the promised ones.
        SourceRefused: if it leads out of the manifest's folder or holds more than tensors.
        SourceError: if it cannot be had or read, or does not fit the module.
    """
    path = _checked(source, context)
    module = untrained(source, context)
    fill(module, read_state(path, context.model), context.model)
    return module


def read_state(path: Path, model: str) -> Mapping[str, Tensor]:
    """The tensors of a checked file; nothing in it is run.

    Raises:
        SourceRefused: if it is no pickle of tensors only.
        SourceError: if it cannot be read or is no state dict.
    """
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        _refuse_inflation(path, model)
        with warnings.catch_warnings(action="ignore"):  # what matters of the file is raised
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise SourceRefused(
            model,
            f"{path.name} is not a pickle of tensors only",
            "Save the state dict as safetensors",
        ) from error
    except SourceRefused:
        raise
    except Exception as error:  # bytes from anywhere make readers raise anything
        fact = f"{path.name} cannot be read ({_first_line(error)})"
        raise SourceError(model, fact, "Save the state dict again") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise SourceError(
            model, f"{path.name} is not a state dict", "Save module.state_dict() as safetensors"
        )
    return state


def fill(module: nn.Module, state: Mapping[str, Tensor], model: str) -> None:
    """Give `module` exactly the tensors of `state`.

    Raises:
        SourceError: if a name or a shape differs; says how many and the first of each.
    """
    own = module.state_dict()
    differences = {
        "missing": sorted(own.keys() - state.keys()),
        "unknown to the module": sorted(state.keys() - own.keys()),
        "of another shape": sorted(
            key for key in own.keys() & state.keys() if own[key].shape != state[key].shape
        ),
    }
    facts = [f"{len(keys)} {what} ({keys[0]})" for what, keys in differences.items() if keys]
    if facts:
        raise SourceError(
            model,
            f"the weights do not fit: {', '.join(facts)}",
            "Mend the builder or its arguments",
        )
    module.load_state_dict(state)


def _checked(source: CheckpointSource, context: Context) -> Path:
    if source.is_fetched:
        return fetch(source.path, source.sha256, model=context.model)
    path = resolve_inside(source.path, context)
    require_digest(sha256_of(path), source.sha256, source.path, context.model)
    return path


def _refuse_inflation(path: Path, model: str) -> None:
    """PyTorch stores tensors as they are: a file that inflates was made to fill the memory.

    Raises:
        SourceRefused: it is a zip whose entries are compressed, or overlap.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise SourceRefused(
            model,
            f"{path.name} would unpack to more than it is",
            "Save the state dict with torch.save, or as safetensors",
        )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
