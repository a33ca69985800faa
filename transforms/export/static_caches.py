"""transformers' caches of fixed size (`StaticCache`): their tensors become buffers."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from zoo.errors import UsageError

_WHOLE = (
    "Give one that is made from a copy of the model's config with sliding_window = None and "
    "layer_types = ['full_attention'] * num_hidden_layers: the model's own mask slides all the same"
)
_Place = tuple[Any, str]  # a layer of a cache, and the attribute that holds a tensor


def with_caches_as_state(
    place: str, module: nn.Module, inputs: Iterable[Any], keywords: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """Return a module that keeps its static caches in buffers, and the keywords without caches.

    A cache is a keyword argument, or an attribute of the module. One without tensors gets them by
    an eager call; the caller's own cache is not written. Raise UsageError if a cache has a sliding
    layer, which counts its tokens in Python.
    """
    rest = dict(keywords)
    utilities = sys.modules.get("transformers.cache_utils")  # if not imported, there are none
    kind: Any = utilities and utilities.StaticCache
    caches = {n: c for n, c in {**vars(module), **keywords}.items() if kind and isinstance(c, kind)}
    if not caches:
        return module, rest
    if any(layer.is_sliding for cache in caches.values() for layer in cache.layers):
        fact = f"{next(iter(caches))} has sliding layers, which count their tokens in Python"
        raise UsageError(place, fact, _WHOLE)
    kept, caches = copy.copy(module), copy.deepcopy(caches)
    kept._buffers = dict(module._buffers)
    given = {name: caches[name] for name in caches if rest.pop(name, None) is not None}
    kept.__dict__.update({name: cache for name, cache in caches.items() if name not in given})
    if not all(cache.is_initialized for cache in caches.values()):
        with torch.no_grad():
            kept(*inputs, **rest, **given)
        for cache in caches.values():
            cache.reset()
    _keep(kept, given, list(caches), kind)
    return kept, rest


def _keep(module: nn.Module, given: dict[str, Any], names: list[str], kind: type) -> None:
    """Register buffers for the tensors of a module's caches, and a class that lends them back."""
    module.__dict__["_static_caches"] = given
    for name, place in _places(module, names):
        module.register_buffer(name, getattr(*place), persistent=False)
        setattr(*place, None)
    base = type(module)

    @functools.wraps(base.forward)  # with the caches' names, whose default is None
    def forward(self: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        with _lent(self, names):
            result = base.forward(self, *arguments, **keywords | vars(self)["_static_caches"])
        return tree_map_only(kind, lambda _: None, result)

    own = {"forward": forward, "__module__": base.__module__, "__qualname__": base.__qualname__}
    module.__class__ = type(base.__name__, (base,), own)


def _places(module: nn.Module, names: list[str]) -> Iterator[tuple[str, _Place]]:
    """Yield the tensors of caches with names for buffers, e.g. `past_key_values_keys_0`."""
    caches = {**vars(module), **vars(module)["_static_caches"]}
    for name in names:
        for number, layer in enumerate(caches[name].layers):
            for attribute, value in vars(layer).items():
                buffer = f"{name}_{attribute}_{number}"
                if isinstance(value, torch.Tensor) or buffer in module._buffers:
                    yield buffer, (layer, attribute)


@contextmanager
def _lent(module: nn.Module, names: list[str]) -> Iterator[None]:
    """Make caches hold a module's buffers for one call, so that their writes are its state."""
    places = list(_places(module, names))
    for name, (layer, attribute) in places:
        setattr(layer, attribute, getattr(module, name))
    try:
        yield
    finally:
        for _, place in places:
            setattr(*place, None)
