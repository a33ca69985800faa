"""Models of torchvision, with seeded weights or one of its weights enum members."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

from zoo.errors import SourceError, SourceRefused, advice
from zoo.models.torchvision_operators import torchvision_operators
from zoo.sources.checkpoint import fetch, read_state
from zoo.sources.context import Context
from zoo.spec import TorchvisionSource

_FILE_HASH = re.compile(r"-([0-9a-f]{8,64})\.pth$")
_patching = threading.Lock()


def untrained(source: TorchvisionSource, context: Context) -> nn.Module:
    """Return the builder's module as torchvision initialises it; raise SourceError if unknown."""
    builder = _builder(source, context)
    # Segmentation and detection would download a trained backbone by default.
    spare = {"weights_backbone"} & set(inspect.signature(builder).parameters)
    module: nn.Module = builder(weights=None, **dict.fromkeys(spare))
    return module


def trained(source: TorchvisionSource, context: Context) -> nn.Module:
    """Return the builder's module with the weights that the entry names.

    Raise SourceError if torchvision has no such builder or weights, or they cannot be fetched,
    SourceRefused if torchvision publishes no hash for them.
    """
    builder = _builder(source, context)
    known = {str(member): member for member in library().models.get_model_weights(builder)}
    if source.weights not in known:
        fact = f"{source.builder} has no weights {source.weights}"
        step = advice(source.weights, known, f"It has: {', '.join(known)}")
        raise SourceError(context.model, fact, step)
    with _weights_through_us(source.sha256, context):
        module: nn.Module = builder(weights=known[source.weights])
    return module


@functools.cache
def library() -> ModuleType:
    """Import torchvision and return it."""
    with torchvision_operators():
        import torchvision

    library: ModuleType = torchvision
    return library


def _builder(source: TorchvisionSource, context: Context) -> Any:
    models = library().models
    try:
        return models.get_model_builder(source.builder)
    except ValueError as error:
        step = advice(source.builder, models.list_models(), "Fix the entry")
        fact = f"torchvision has no builder {source.builder!r}"
        raise SourceError(context.model, fact, step) from error


@contextmanager
def _weights_through_us(sha256: str | None, context: Context) -> Iterator[None]:
    """Make torchvision's builders read weights through our loader: check the hash, tensors only.

    A builder sets its options to match its weights, so the builder itself must load them, but
    torchvision's loader unpickles anything in the file. All builders share one loading function.
    """
    api = library().models._api  # noqa: SLF001 (where all builders load)

    def load(url: str, *_: object, **__: object) -> Mapping[str, Tensor]:
        found = _FILE_HASH.search(url)
        promised = sha256 or (found and found[1])
        if promised is None:
            fact = f"{url} names no hash"
            raise SourceRefused(context.model, fact, "Give the entry's source its `sha256`")
        return read_state(fetch(url, promised, model=context.model), context.model)

    with _patching, patch.object(api, "load_state_dict_from_url", load):
        yield
