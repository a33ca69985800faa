"""Writes what is made of shims.toml: ``python runtime/list_shims.py``, after a change of it.

That is common/shims.h, with the signatures of the installed torch's headers, and SHIMS.md. Both are
checked in, so that building needs no torch; a test compares them.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from menagerie.shims import Shim, load

_FOLDER = Path(__file__).parent
_HEADERS = "include/torch/csrc/inductor/aoti_torch"  # in torch's package
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"AOTI_TORCH_EXPORT\s+(\w+)\s+(\w+)\s*\(([^()]*)\)\s*;")
_HEAD = """\
// Made by `python runtime/list_shims.py` from shims.toml and torch's headers.
// clang-format off
#pragma once
#include "common/shim_types.h"
// One body defines a function for each target; MENAGERIE_DEVICE is cpu or mps.
#define MENAGERIE_JOINED(device, name) aoti_torch_##device##_##name
#define MENAGERIE_SPELT(device, name) MENAGERIE_JOINED(device, name)
#define MENAGERIE_SHIM(name) MENAGERIE_SPELT(MENAGERIE_DEVICE, name)
#pragma GCC visibility push(default)
extern "C" {
"""
_TAIL = '}  // extern "C"\n#pragma GCC visibility pop\n'
_TITLE = """\
# Shim functions

Made from `shims.toml` by `python runtime/list_shims.py`; change that file instead.
`{device}` is cpu or mps.
"""


def header(shims: tuple[Shim, ...]) -> str:
    """Return the C++ header: all declarations, of functions with one body for a device once.

    Raise ValueError if torch is not installed, or does not declare one of them.
    """
    known = _declared_by_torch()
    known |= {s.name: (s.returns, s.parameters) for s in shims if s.parameters is not None}
    names: dict[str, tuple[str, str]] = {}
    for shim in shims:
        if shim.name not in known:
            raise ValueError(f"torch declares no {shim.name}: give its parameters in shims.toml")
        prefix, shared, rest = shim.entry.partition("{device}_")
        names[f"MENAGERIE_SHIM({rest})" if shared else prefix] = known[shim.name]
    lines = (f"{kind} {n}({' '.join(given.split())});\n" for n, (kind, given) in names.items())
    return f"{_HEAD}{''.join(lines)}{_TAIL}"


def _declared_by_torch() -> dict[str, tuple[str, str]]:
    """Return result and parameters of functions in torch's headers; empty without torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    texts = [path.read_text() for path in Path(spec.origin).parent.joinpath(_HEADERS).rglob("*.h")]
    declared = _DECLARATION.findall(_COMMENT.sub("", "\n".join(texts)))
    return {name: (returns, parameters) for returns, name, parameters in declared}


def table(shims: tuple[Shim, ...]) -> str:
    """Return the coverage table as Markdown: kernels first, then what handles tensors."""
    lines = []
    for title, computes in (("Kernels", True), ("Handles, constants, scalars", False)):
        entries: dict[str, list[Shim]] = {}
        for shim in shims:
            if shim.computes is computes:
                entries.setdefault(shim.entry, []).append(shim)
        lines += ["", f"## {title} ({len(entries)})", "", "| function | targets | what it does |"]
        lines += ["|---|---|---|"]
        for entry, functions in entries.items():
            targets = ", ".join(target for shim in functions for target in shim.targets)
            lines.append(f"| `{entry}` | {targets} | {functions[0].doc} |")
    return _TITLE + "\n".join(lines) + "\n"


if __name__ == "__main__":
    (_FOLDER / "common" / "shims.h").write_text(header(load()))
    (_FOLDER / "SHIMS.md").write_text(table(load()))
