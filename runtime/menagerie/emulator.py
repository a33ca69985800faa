"""The compiler of the emulated Metal device: clang of the ``ziglang`` wheel."""

from __future__ import annotations

import ctypes

from menagerie.errors import SessionError
from menagerie.home import home
from menagerie.zig import zig_program, zig_version

__all__ = ["configure"]


def configure(library: ctypes.CDLL) -> None:
    """Tells a loaded Metal runtime where its compiler is and where to keep compiled shaders.

    What is compiled lies in ``emulator/`` of Menagerie's home, in a folder for each version of the
    compiler.

    Raises:
        MenagerieError: the wheel is not installed.
        SessionError: the runtime refuses.
    """
    program = str(zig_program()).encode()
    folder = home() / "emulator" / f"ziglang-{zig_version()}"
    library.menagerie_last_error.restype = ctypes.c_char_p
    words = (ctypes.c_char_p * 1)(program)
    if library.menagerie_emulator_configure(words, ctypes.c_size_t(1), str(folder).encode()) != 0:
        said: bytes = library.menagerie_last_error()
        raise SessionError("the emulated Metal device", said.decode(errors="replace"))
