"""Writes again what is made of shims.toml: ``python runtime/list_shims.py``, after a change of it.

These are the declarations in common/shims.h, with the signatures of the installed torch's headers,
and the tables of SHIMS.md. Both are checked in: building needs no torch; a test compares them.
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
_BEGIN, _END = 'extern "C" {\n', '}  // extern "C"\n'


def declarations(shims: tuple[Shim, ...]) -> str:
    """Return the declarations of C++, of functions with one body for a device once.

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
    return "".join(lines)


def _declared_by_torch() -> dict[str, tuple[str, str]]:
    """Return result and parameters of functions in torch's headers; empty without torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    texts = [path.read_text() for path in Path(spec.origin).parent.joinpath(_HEADERS).rglob("*.h")]
    declared = _DECLARATION.findall(_COMMENT.sub("", "\n".join(texts)))
    return {name: (returns, parameters) for returns, name, parameters in declared}


def table(shims: tuple[Shim, ...], title: str, *, computes: bool) -> str:
    """Return the functions that compute, or all others, as a section of Markdown."""
    entries: dict[str, list[Shim]] = {}
    for shim in shims:
        if shim.computes is computes:
            entries.setdefault(shim.entry, []).append(shim)
    lines = [f"## {title} ({len(entries)})", "", "| function | targets | what it does |"]
    lines += ["|---|---|---|"]
    for entry, functions in entries.items():
        targets = ", ".join(target for shim in functions for target in shim.targets)
        lines.append(f"| `{entry}` | {targets} | {functions[0].doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    shims, header, listing = load(), _FOLDER / "common" / "shims.h", _FOLDER / "SHIMS.md"
    head, _, rest = header.read_text().partition(_BEGIN)
    header.write_text(head + _BEGIN + declarations(shims) + _END + rest.partition(_END)[2])
    sections = (
        table(shims, "Kernels", computes=True),
        table(shims, "Handles, constants, scalars", computes=False),
    )
    listing.write_text("\n".join((listing.read_text().partition("\n## ")[0], *sections)))
