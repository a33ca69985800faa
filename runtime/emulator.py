"""The compiler of the emulated Metal device: clang of the ``ziglang`` wheel."""

from __future__ import annotations

import ctypes
import importlib.util
from importlib.metadata import version
from pathlib import Path

from zoo.errors import SessionError
from zoo.home import home

__all__ = ["compiler", "configure"]


def compiler() -> Path:
    """The wheel's program, which is clang and lld by its first argument.

    Called directly, not through ``python -m ziglang``: that would start an interpreter more.

    Raises:
        SessionError: the wheel is not installed.
    """
    found = importlib.util.find_spec("ziglang")
    for folder in (found.submodule_search_locations or []) if found else []:
        program = Path(folder) / "zig"
        if program.is_file():
            return program
    raise SessionError(
        "ziglang",
        "is not installed; the emulated Metal device compiles shaders with it",
        "Install it: pip install ziglang",
    )


def configure(library: ctypes.CDLL) -> None:
    """Tells a loaded Metal runtime where its compiler is and where to keep compiled shaders.

    What is compiled lies in ``emulator/`` of Menagerie's home, in a folder for each version of the
    compiler.

    Raises:
        SessionError: the wheel is not installed, or the runtime refuses.
    """
    program = str(compiler()).encode()
    folder = home() / "emulator" / f"ziglang-{version('ziglang')}"
    library.menagerie_last_error.restype = ctypes.c_char_p
    words = (ctypes.c_char_p * 1)(program)
    if library.menagerie_emulator_configure(words, ctypes.c_size_t(1), str(folder).encode()) != 0:
        said: bytes = library.menagerie_last_error()
        raise SessionError("the emulated Metal device", said.decode(errors="replace"))
