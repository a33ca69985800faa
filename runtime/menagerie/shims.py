"""Writes from shims.toml what is made of it: ``python -m menagerie.shims header TARGET|table``.

``header`` prints a target's C++ declarations (the build keeps them in its own folder, so they
cannot go stale); ``table`` prints SHIMS.md, and a test holds the committed one against it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Shim", "header", "kernel_symbols", "load", "main", "supported_symbols", "table"]

SHIMS_FILE = Path(__file__).with_name("shims.toml")
# What the symbols of a target's operators say for it.
_DEVICES = {"cpu": "cpu", "metal": "mps"}


@dataclass(frozen=True, kw_only=True)
class Shim:
    """One function; `entry` is the name that stands in shims.toml for it and its likes."""

    name: str
    entry: str
    parameters: str
    targets: tuple[str, ...]
    source: str
    doc: str
    returns: str = "AOTITorchError"
    computes: bool = False

    @property
    def body(self) -> str:
        """What its definition calls it: the same for all targets that share the entry."""
        return self.entry.replace("{device}", "device")

    @property
    def declaration(self) -> str:
        """The function's C declaration, without the semicolon."""
        return f"{self.returns} {self.name}({' '.join(self.parameters.split())})"


def load(path: Path = SHIMS_FILE) -> tuple[Shim, ...]:
    """Reads the list, in its own order: an entry for each target, or of each word, becomes several.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or comes twice.
    """
    import tomllib  # type: ignore[import-not-found, unused-ignore] # since Python 3.11: what only runs artifacts goes without

    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["shim"]
    shims: list[Shim] = []
    for entry in entries:
        try:
            shims += _functions(entry)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path.name}: entry {entry.get('name', '?')}: {error}") from error
    names = [shim.name for shim in shims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path.name}: listed twice: {', '.join(twice)}")
    return tuple(shims)


def _functions(entry: dict[str, Any]) -> list[Shim]:
    targets, words = tuple(entry["targets"]), entry.pop("each", [""])
    if "{device}" in entry["name"]:
        spellings = [("{device}", _DEVICES[target], (target,)) for target in targets]
    else:
        spellings = [("{each}", word, targets) for word in words]
    shims: list[Shim] = []
    for sign, word, its_targets in spellings:
        spelt = {k: v.replace(sign, word) if isinstance(v, str) else v for k, v in entry.items()}
        name = entry["name"] if sign == "{device}" else spelt["name"]
        fields: dict[str, Any] = {**spelt, "entry": name, "targets": its_targets}
        shims.append(Shim(**fields))
    return shims


def header(shims: tuple[Shim, ...], target: str) -> str:
    """The C++ header with every declaration of a target."""
    chosen = [shim for shim in shims if target in shim.targets]
    lines = [
        "// Made from shims.toml by `python -m menagerie.shims header`; change that file instead.",
        "#pragma once",
        '#include "common/shim_types.h"',
        'extern "C" {',
        *(f"MENAGERIE_SHIM {shim.declaration};" for shim in chosen),
        '}  // extern "C"',
        "// What the one body of a function for each target calls it.",
        *(f"#define {s.body} {s.name}" for s in chosen if s.body != s.name),
    ]
    return "\n".join(lines) + "\n"


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
    match arguments:
        case ["header", target] if target in _DEVICES:
            sys.stdout.write(header(load(), target))
        case ["table"]:
            sys.stdout.write(table(load()))
        case _:
            sys.stderr.write("usage: python -m menagerie.shims header cpu|metal, or table\n")
            return 2
    return 0


@cache
def supported_symbols(target: str) -> frozenset[str]:
    """Names of the shim functions that the runtime of `target` has; empty for an unknown target."""
    return frozenset(shim.name for shim in load() if target in shim.targets)


@cache
def kernel_symbols(target: str) -> frozenset[str]:
    """Those of them that compute: convolutions, products, attention and the like."""
    return frozenset(shim.name for shim in load() if target in shim.targets and shim.computes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
