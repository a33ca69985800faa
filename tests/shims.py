"""Writes what is made of shims.toml: ``python -m tests.shims header|table``.

``header`` prints common/shims.h, with the signatures of the installed torch's headers; ``table``
prints SHIMS.md. Both are checked in, so that building needs no torch; a test compares them.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from menagerie.shims import Shim, load

_HEADERS = "include/torch/csrc/inductor/aoti_torch"  # in torch's package
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"AOTI_TORCH_EXPORT\s+(\w+)\s+(\w+)\s*\(([^()]*)\)\s*;")


def header(shims: tuple[Shim, ...]) -> str:
    """The C++ header: all declarations, of functions with one body for a device once.

    Raises:
        ValueError: torch is not installed, or does not declare one of them.
    """
    known = _of_torch()
    own = {
        s.name: (s.returns, " ".join(s.parameters.split()))
        for s in shims
        if s.parameters is not None
    }
    if missing := [shim.name for shim in shims if shim.name not in own | known]:
        raise ValueError(f"torch declares no {missing[0]}: give its parameters in shims.toml")
    names: dict[str, tuple[str, str]] = {}
    for shim in shims:
        prefix, shared, rest = shim.entry.partition("{device}_")
        names[f"MENAGERIE_SHIM({rest})" if shared else prefix] = (own | known)[shim.name]
    lines = [
        "// Made by `python -m tests.shims header` from shims.toml and torch's headers.",
        "// clang-format off",
        "#pragma once",
        '#include "common/shim_types.h"',
        "// One body defines a function for each target; MENAGERIE_DEVICE is cpu or mps.",
        "#define MENAGERIE_JOINED(device, name) aoti_torch_##device##_##name",
        "#define MENAGERIE_SPELT(device, name) MENAGERIE_JOINED(device, name)",
        "#define MENAGERIE_SHIM(name) MENAGERIE_SPELT(MENAGERIE_DEVICE, name)",
        "#pragma GCC visibility push(default)",
        'extern "C" {',
        *(f"{returns} {name}({parameters});" for name, (returns, parameters) in names.items()),
        '}  // extern "C"',
        "#pragma GCC visibility pop",
    ]
    return "\n".join(lines) + "\n"


def _of_torch() -> dict[str, tuple[str, str]]:
    """What functions in torch's headers return and take, by name; empty without torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    texts = [path.read_text() for path in Path(spec.origin).parent.joinpath(_HEADERS).rglob("*.h")]
    found = _DECLARATION.findall(_COMMENT.sub("", "\n".join(texts)))
    return {name: (returns, " ".join(parameters.split())) for returns, name, parameters in found}


def table(shims: tuple[Shim, ...]) -> str:
    """The coverage table as Markdown: kernels first, then what handles tensors."""
    lines = [
        "# Shim functions",
        "",
        "Made from `shims.toml` by `python -m tests.shims table`; change that file instead.",
        "`{device}` is cpu or mps.",
    ]
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
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Prints what the arguments ask for; 2 if they ask for nothing known."""
    made = {"header": header, "table": table}
    if len(arguments) != 1 or arguments[0] not in made:
        sys.stderr.write("usage: python -m tests.shims header|table\n")
        return 2
    sys.stdout.write(made[arguments[0]](load()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
