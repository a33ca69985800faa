"""AOTInductor's C interface, which is the same for every model, compiled apart from them.

Inductor writes it into each wrapper, where it and the classes behind it took three fifths of the
compiler's time. A wrapper here only declares that they are elsewhere.
"""

from __future__ import annotations

from pathlib import Path

from torch._inductor import codegen

HEADER = "torch/csrc/inductor/aoti_include/cpu.h"

_BASE = (
    "template class torch::aot_inductor::AOTInductorModelBase"
    "<torch::aot_inductor::AOTInductorModel>;\n"
)
DECLARED_ELSEWHERE = f"#include <torch/csrc/inductor/aoti_runtime/model.h>\nextern {_BASE}"


def interface() -> str:
    """The C++ of torch's own file, with the base class of all models behind it."""
    [folder] = codegen.__path__
    text = Path(folder, "aoti_runtime", "interface.cpp").read_text()
    return f"#include <{HEADER}>\n{text}\n{_BASE}"
