"""Whether a module can be called with inputs of these names; in words if it cannot."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["misfit", "parameters"]


def parameters(forward: Callable[..., Any]) -> tuple[str, ...]:
    """The names that a call may use, in order; `*args` and `**kwargs` are none."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in inspect.signature(forward).parameters.values() if p.kind in kinds)


def misfit(forward: Callable[..., Any], names: Sequence[str]) -> str:
    """Why a call with arguments of these names fails, and what it takes; empty if it does not.

    Empty too of code that does not tell its parameters.
    """
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return ""
    try:
        for bind in (signature.bind_partial, signature.bind):  # first what is unknown, then missing
            bind(**dict.fromkeys(names))
    except TypeError as error:
        return f"{error}; forward takes {', '.join(parameters(forward)) or 'nothing'}"
    return ""
