"""The list of shim functions, shims.toml, for lowering and tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SHIMS_FILE = Path(__file__).with_name("shims.toml")
# The parts of symbols that name a target's operators.
_DEVICES = {"cpu": "cpu", "metal": "mps"}


@dataclass(frozen=True, kw_only=True)
class Shim:
    """One function; `entry` is its key in shims.toml, `parameters` None if torch has them."""

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
    """Read the list in order: an entry for several targets or words becomes several functions.

    Raise ValueError if an entry lacks a field, has an unknown one, or is a duplicate.
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
def supported_symbols(target: str, *, computing: bool = False) -> frozenset[str]:
    """Return a target's shim functions, or only those that compute."""
    own = [shim for shim in load() if target in shim.targets]
    return frozenset(shim.name for shim in own if shim.computes or not computing)
