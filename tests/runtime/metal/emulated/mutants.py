"""A plugin of pytest that takes one check out of the emulated device: MUTANT is its number."""

from __future__ import annotations

import os
import re
from functools import wraps
from typing import TYPE_CHECKING, Any

from menagerie.emulator import ShaderCompiler

if TYPE_CHECKING:
    from pathlib import Path

CHECK = re.compile(rb"\b(?:menagerie::emulated::)?fault\((?:menagerie::emulated::)?Fault::(k\w+)")


def without(prelude: bytes, number: int) -> bytes:
    """Return the prelude whose check of that number finds nothing."""
    place = [found.start() for found in CHECK.finditer(prelude)][number]
    return prelude[:place] + b"if (false) " + prelude[place:]


def pytest_configure() -> None:
    """Have all shaders of this process compiled without the check."""
    number, compiled = int(os.environ["MUTANT"]), ShaderCompiler.compiled

    @wraps(compiled)
    def mutated(self: ShaderCompiler, source: bytes, prelude: bytes, *mode: Any) -> Path:
        return compiled(self, source, without(prelude, number), *mode)

    ShaderCompiler.compiled = mutated  # type: ignore[method-assign]
