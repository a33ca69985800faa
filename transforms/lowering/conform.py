"""Makes a wrapper independent of the layout in which a fallback kernel returns its result."""

from __future__ import annotations

import re
from pathlib import Path

from zoo.errors import LoweringError

__all__ = ["conform_results"]

# What Inductor writes behind each call of a kernel that allocates its own result; inputs of the
# program have such a line too, but their names begin with `arg`.
_ASSERTION = re.compile(
    r"if \(_check_aoti_runtime_check_inputs_env\(\)\) "
    r"\{ assert_size_stride\((buf\w+), (\{[^}]*\}), (\{[^}]*\}), (\"[^\"]*\")\); \}"
)
_KERNEL_CALL = re.compile(r"\baoti_torch_(?:cpu|mps)_\w+\(.*\)")
_RESULT = re.compile(r"&(buf\d+)_handle\b")
_INCLUDE = "#include <torch/csrc/inductor/aoti_runtime/interface.h>\n"


def conform_results(wrapper: str) -> str:
    """Turn the checks behind fallback kernels, off by default, into conversions that always run.

    Args:
        wrapper: the C++ that Inductor wrote; see conform.h for what is put in.

    Raises:
        LoweringError: if a kernel's result has no such check, since then nobody knows its layout.
    """
    checked = {match[0] for match in _ASSERTION.findall(wrapper)}
    for call in _KERNEL_CALL.findall(wrapper):
        for name in _RESULT.findall(call):
            if name not in checked and _is_read(name, wrapper):
                raise LoweringError("conform", f"Inductor does not say which layout {name} has")
    converted = _ASSERTION.sub(r"conform(\1, \2, \3, \4);", wrapper)
    if checked and _INCLUDE not in converted:
        raise LoweringError("conform", "the wrapper no longer includes AOTInductor's interface")
    header = Path(__file__).with_suffix(".h").read_text()
    return converted.replace(_INCLUDE, _INCLUDE + header.replace("#pragma once\n", ""), 1)


def _is_read(name: str, wrapper: str) -> bool:
    """Whether anything but its own declaration and release mentions a buffer."""
    mentions = len(re.findall(rf"\b{name}\b", wrapper))
    idle = len(re.findall(rf"RAIIAtenTensorHandle {name}\(|\b{name}\.reset\(\)", wrapper))
    return mentions > idle
