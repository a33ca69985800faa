"""Operators that a runtime of ours alone computes, declared so that a program can call them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["declare"]


@functools.cache
def declare(schema: str, shape: Callable[..., torch.Tensor]) -> torch.library.Library:
    """Declare `menagerie::<schema>` for the process; once, however often it is called.

    The runtime reads operands by any strides.

    Args:
        schema: name, parameters and result, as torch writes them.
        shape: an uninitialised result for such arguments; nothing else computes it here.

    Returns:
        What holds the declaration, kept alive by this cache.
    """
    library = torch.library.Library("menagerie", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(schema, tags=(torch.Tag.flexible_layout,))  # type: ignore[no-untyped-call]
    library.impl(schema.partition("(")[0], shape, "Meta")  # type: ignore[no-untyped-call]
    return library
