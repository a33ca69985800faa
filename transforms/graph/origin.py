"""Where in a model's own code a node of its graph comes from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["module_path", "origin", "source_line"]

_SOURCE_LINE = re.compile(r'File "(.+?)", line (\d+)')


def origin(node: Node) -> str:
    """`layer1.0 (models/resnet.py:92, aten.add.Tensor)`: module, line and operator."""
    file, line = source_line(node)
    where = f"{'/'.join(Path(file).parts[-3:])}:{line}, " if file else ""
    return f"{module_path(node) or 'model'} ({where}{node.target})"


def module_path(node: Node) -> str:
    """The model's own path of the module that the node comes from; empty where it is not known."""
    stack = node.meta.get("nn_module_stack") or {}
    return next(reversed([str(entry[0]) for entry in stack.values()]), "")


def source_line(node: Node) -> tuple[str, str]:
    """File and line of the innermost call that is not torch.nn's own; empty where not known."""
    lines = [
        found
        for found in _SOURCE_LINE.findall(node.meta.get("stack_trace") or "")
        if "torch/nn/modules" not in found[0]
    ]
    return lines[-1] if lines else ("", "")
