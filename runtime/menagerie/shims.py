"""Writes from shims.toml what is made of it: ``python -m menagerie.shims header|table``.

``header`` prints the C++ declarations (the build keeps them in its own folder, so they cannot go
stale); ``table`` prints SHIMS.md, and a test holds the committed one against it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Shim", "header", "load", "main", "table"]

SHIMS_FILE = Path(__file__).with_name("shims.toml")


@dataclass(frozen=True, kw_only=True)
class Shim:
    """One entry of shims.toml."""

    name: str
    parameters: str
    targets: tuple[str, ...]
    source: str
    doc: str
    returns: str = "AOTITorchError"
    computes: bool = False

    @property
    def declaration(self) -> str:
        """The function's C declaration, without the semicolon."""
        return f"{self.returns} {self.name}({' '.join(self.parameters.split())})"


def load(path: Path = SHIMS_FILE) -> tuple[Shim, ...]:
    """Reads the list, in its own order.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or comes twice.
    """
    import tomllib  # type: ignore[import-not-found, unused-ignore] # since Python 3.11: what only runs artifacts goes without

    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["shim"]
    shims = []
    for entry in entries:
        try:
            shims.append(Shim(**{**entry, "targets": tuple(entry["targets"])}))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path.name}: entry {entry.get('name', '?')}: {error}") from error
    names = [shim.name for shim in shims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path.name}: listed twice: {', '.join(twice)}")
    return tuple(shims)


def header(shims: tuple[Shim, ...]) -> str:
    """The C++ header with every declaration."""
    lines = [
        "// Made from shims.toml by `python -m menagerie.shims header`; change that file instead.",
        "#pragma once",
        '#include "common/shim_types.h"',
        'extern "C" {',
        *(f"MENAGERIE_SHIM {shim.declaration};" for shim in shims),
        '}  // extern "C"',
    ]
    return "\n".join(lines) + "\n"


def table(shims: tuple[Shim, ...]) -> str:
    """The coverage table as Markdown: kernels first, then what handles tensors."""
    lines = [
        "# Shim functions",
        "",
        "Made from `shims.toml` by `python -m menagerie.shims table`; change that file instead.",
    ]
    for title, computes in (("Kernels", True), ("Handles, constants, scalars", False)):
        chosen = [shim for shim in shims if shim.computes is computes]
        lines += ["", f"## {title} ({len(chosen)})", "", "| function | targets | what it does |"]
        lines += ["|---|---|---|"]
        lines += [f"| `{s.name}` | {', '.join(s.targets)} | {s.doc} |" for s in chosen]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Prints what the one argument asks for; 2 if it asks for nothing known."""
    makers = {"header": header, "table": table}
    if len(arguments) != 1 or arguments[0] not in makers:
        sys.stderr.write("usage: python -m menagerie.shims header|table\n")
        return 2
    sys.stdout.write(makers[arguments[0]](load()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
