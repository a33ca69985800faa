"""Models built by a callable: our own always, any other only with permission."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from torch import nn

from zoo.errors import SourceError, SourceRefused
from zoo.models.torchvision_operators import torchvision_operators
from zoo.sources.context import Context
from zoo.spec import CheckpointSource, FactorySource, PackageSource, is_ours


def untrained(
    source: FactorySource | CheckpointSource | PackageSource, context: Context
) -> nn.Module:
    """Return the result of the callable; see `build`."""
    return build(source.builder, source.arguments, context)


trained = untrained  # the callable decides whether it loads weights


def build(reference: str, arguments: Mapping[str, object], context: Context) -> nn.Module:
    """Call a builder, `module:callable`; an nn.Module is used as it is, without arguments.

    `context` has the folder of the Python module, and whether outside code may run. Raise
    SourceRefused if the code is not ours and was not permitted, SourceError if there is no such
    callable, it fails, or it returns no nn.Module.
    """
    module_name, _, name = reference.partition(":")
    ours = is_ours(reference)
    if not ours and not context.allow_factories:
        from zoo.store.submissions import advice_on_code  # `convert()` needs no store

        raise SourceRefused(
            context.model,
            f"its builder {reference} is code from outside Menagerie",
            advice_on_code(context.folder),
        )
    try:
        with torchvision_operators(), nullcontext() if ours else _importable(context.folder):
            builder = getattr(importlib.import_module(module_name), name)
            # A module's imports are not offered: they could be any function of a library.
            offered = builder if not ours or builder.__module__ == module_name else None
            built = offered if isinstance(offered, nn.Module | None) else offered(**arguments)
    except Exception as error:  # a builder may raise anything
        fact = f"builder {reference} failed ({type(error).__name__}: {error})"
        raise SourceError(context.model, fact, context.advice) from error
    if arguments and built is offered is not None:
        fact = f"builder {reference} is a module already, and takes no arguments"
        raise SourceError(context.model, fact, context.advice)
    if not isinstance(built, nn.Module):
        fact = f"builder {reference} returned a {type(built).__name__}, not an nn.Module"
        raise SourceError(context.model, fact, context.advice)
    return built


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Allow imports of modules beside the manifest file, as the manifest's owner permitted."""
    sys.path.insert(0, place := str(folder.absolute()))
    try:
        yield
    finally:
        with suppress(ValueError):  # the code may have set another path
            sys.path.remove(place)
