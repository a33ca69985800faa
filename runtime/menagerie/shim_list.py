"""What a target's runtime can do: the symbols that a library lowered for it may import."""

from __future__ import annotations

from functools import cache

from menagerie.abi import RUNTIME_ABI
from menagerie.shims import load

__all__ = ["RUNTIME_ABI", "kernel_symbols", "supported_symbols"]


@cache
def supported_symbols(target: str) -> frozenset[str]:
    """Names of the shim functions that the runtime of `target` has; empty for an unknown target."""
    return frozenset(shim.name for shim in load() if target in shim.targets)


@cache
def kernel_symbols(target: str) -> frozenset[str]:
    """Those of them that compute: convolutions, products, attention and the like."""
    return frozenset(shim.name for shim in load() if target in shim.targets and shim.computes)
