"""Lets torchvision be imported where its compiled part does not fit the installed torch."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import torch

__all__ = ["define_missing_operators"]

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")  # those torchvision's Python code registers things for at import


@functools.cache
def define_missing_operators() -> torch.library.Library | None:
    """Declare torchvision's box suppression if its binary does not load; call before importing it.

    A CUDA build of torchvision beside a CPU build of torch has such a binary, and fails at import.
    transformers imports torchvision where it is present, so this comes before it as well. The
    declared operators have no implementation: calling one raises.

    Returns:
        What holds the declarations, kept alive by this function's cache; None if none were needed.
    """
    if _binary_loads():
        return None
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in _OPERATORS:
        library.define(name + _SIGNATURE)  # type: ignore[no-untyped-call]
    return library


def _binary_loads() -> bool:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return True  # nothing to mend: importing it will say what is wrong
    for binary in Path(found.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(binary)  # type: ignore[no-untyped-call]
        except OSError:
            return False
    return hasattr(torch.ops.torchvision, "nms")
