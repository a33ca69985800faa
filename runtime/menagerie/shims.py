"""Writes what is made of shims.toml: ``python -m menagerie.shims header|table``.

``header`` prints common/shims.h, with the signatures of the installed torch's headers; ``table``
prints SHIMS.md. Both are checked in, so that building needs no torch; a test compares them.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

SHIMS_FILE = Path(__file__).with_name("shims.toml")
# What the symbols of a target's operators say for it.
_DEVICES = {"cpu": "cpu", "metal": "mps"}
_HEADERS = "include/torch/csrc/inductor/aoti_torch"  # in torch's package
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"AOTI_TORCH_EXPORT\s+(\w+)\s+(\w+)\s*\(([^()]*)\)\s*;")


@dataclass(frozen=True, kw_only=True)
class Shim:
    """One function; `entry` is its key in shims.toml, `parameters` None where torch has them."""

    name: str
    entry: str
    targets: tuple[str, ...]
    source: str
    doc: str
    computes: bool
    parameters: str | None = None
    returns: str = "AOTITorchError"

    @property
    def declaration(self) -> str:
        """The C declaration of a function that torch does not declare, without the semicolon."""
        return f"{self.returns} {self.name}({self.parameters or ''})"


def load(path: Path = SHIMS_FILE) -> tuple[Shim, ...]:
    """Reads the list, in its own order: an entry for each target, or of each word, becomes several.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or is a duplicate.
    """
    import tomllib  # type: ignore[import-not-found, unused-ignore] # since Python 3.11: what only runs artifacts goes without

    shims: list[Shim] = []
    for kind, sources in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for source, entries in sources.items():
            for entry, value in entries.items():
                fields = {"doc": value} if isinstance(value, str) else value
                try:
                    shims += _functions(entry, source, fields | {"computes": kind == "kernels"})
                except TypeError as error:
                    raise ValueError(f"{path.name}: {entry}: {error}") from error
    names = [shim.name for shim in shims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path.name}: listed twice: {', '.join(twice)}")
    return tuple(shims)


def _functions(entry: str, source: str, fields: dict[str, Any]) -> list[Shim]:
    home = source.partition("/")[0]
    targets = (home,) if home in _DEVICES else tuple(_DEVICES)
    words: list[str] = fields.pop("each", [""])
    spellings: list[tuple[str, tuple[str, ...]]] = [(word, targets) for word in words]
    if "{device}" in entry:
        spellings = [(_DEVICES[target], (target,)) for target in targets]
    shims = []
    for word, its_targets in spellings:
        name = _spelt(entry, word)
        spelt: dict[str, Any] = {
            k: _spelt(v, word) if isinstance(v, str) else v for k, v in fields.items()
        }
        shared = entry if "{device}" in entry else name
        shims.append(Shim(name=name, entry=shared, targets=its_targets, source=source, **spelt))
    return shims


def _spelt(text: str, word: str) -> str:
    return re.sub(r"\{\w+\}", word, text)


@cache
def supported_symbols(target: str) -> frozenset[str]:
    """Names of the shim functions that the runtime of `target` has; empty for an unknown target."""
    return frozenset(shim.name for shim in load() if target in shim.targets)


@cache
def kernel_symbols(target: str) -> frozenset[str]:
    """Those of them that compute: convolutions, products, attention and the like."""
    return frozenset(shim.name for shim in load() if target in shim.targets and shim.computes)


def header(shims: tuple[Shim, ...]) -> str:
    """The C++ header: all declarations, those that follow each other and are alike in one line.

    Raises:
        ValueError: torch is not installed, or does not declare one of them.
    """
    known = _of_torch()
    own = {s.name: (s.returns, s.parameters) for s in shims if s.parameters is not None}
    if missing := [shim.name for shim in shims if shim.name not in own | known]:
        raise ValueError(f"torch declares no {missing[0]}: give its parameters in shims.toml")
    names: dict[str, tuple[str, str]] = {}
    for shim in shims:
        prefix, shared, rest = shim.entry.partition("{device}_")
        names[f"MENAGERIE_SHIM({rest})" if shared else prefix] = (own | known)[shim.name]
    lines = [
        "// Made by `python -m menagerie.shims header` from shims.toml and torch's headers.",
        "// clang-format off",
        "#pragma once",
        '#include "common/shim_types.h"',
        "// One body defines a function for each target; MENAGERIE_DEVICE is cpu or mps.",
        "#define MENAGERIE_JOINED(device, name) aoti_torch_##device##_##name",
        "#define MENAGERIE_SPELT(device, name) MENAGERIE_JOINED(device, name)",
        "#define MENAGERIE_SHIM(name) MENAGERIE_SPELT(MENAGERIE_DEVICE, name)",
        "#pragma GCC visibility push(default)",
        'extern "C" {',
        *(
            f"{returns} {', '.join(f'{name}({parameters})' for name in alike)};"
            for (returns, parameters), alike in groupby(names, key=names.__getitem__)
        ),
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
        "Made from `shims.toml` by `python -m menagerie.shims table`; change that file instead.",
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
        sys.stderr.write("usage: python -m menagerie.shims header|table\n")
        return 2
    sys.stdout.write(made[arguments[0]](load()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
