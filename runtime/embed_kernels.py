"""Writes the texts of Metal files as C++: ``python embed_kernels.py FILE...``, run by the build.

A line ``#include "name"`` is replaced by that file of the same folder, since Metal compiled from
text sees no files.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_INCLUDE = re.compile(r'^#include "([^"/]+)"\n', re.MULTILINE)
# Metal's safe mathematics still contract within a statement (Metal Shading Language Specification,
# pages 16 and 17), which the emulated device does not.
_HEAD = "#pragma METAL fp contract(off)\n"
_LONGEST_PIECE = 8000  # compilers bound the length of a string literal, but join adjacent ones


def expanded(path: Path) -> str:
    """Return the file's text with its own folder's includes put in."""
    text = path.read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: expanded(path.parent / line[1]), text)


def literal(text: str) -> str:
    """Return adjacent raw string literals that make up the text."""
    pieces = [text[at : at + _LONGEST_PIECE] for at in range(0, len(text), _LONGEST_PIECE)]
    return "\n".join(f'R"metal({piece})metal"' for piece in pieces) or '""'


def main(files: list[str]) -> None:
    """Print a C++ file that defines `kOwnSources` of metal/dispatch.h."""
    sources = {Path(file).stem: _HEAD + expanded(Path(file)) for file in sorted(files)}
    entries = [f'    {{"{name}", {literal(text)}}},' for name, text in sources.items()]
    lines = [
        '#include "metal/dispatch.h"',
        "namespace menagerie::metal {",
        "const std::vector<std::pair<std::string_view, std::string_view>> kOwnSources = {",
        *entries,
        "};",
        "}  // namespace menagerie::metal",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
