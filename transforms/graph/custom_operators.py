"""Custom operators: declared so that a program can call what a runtime of ours alone computes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["declare"]


@functools.cache
def declare(
    schema: str, shape: Callable[..., torch.Tensor], compute: Callable[..., torch.Tensor]
) -> torch.library.Library:
    """Declare `menagerie::<schema>` for the process; once, however often it is called.

    The runtime reads operands by any strides.

    Args:
        schema: name, parameters and result, as torch writes them.
        shape: an uninitialised result for such arguments.
        compute: the result by torch's own operators; what a program is interpreted with.

    Returns:
        What holds the declaration, kept alive by this cache.
    """
    library = torch.library.Library("menagerie", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(schema, tags=(torch.Tag.flexible_layout,))  # type: ignore[no-untyped-call]
    name = schema.partition("(")[0]
    library.impl(name, shape, "Meta")  # type: ignore[no-untyped-call]
    library.impl(name, compute, "CPU")  # type: ignore[no-untyped-call]
    return library
