"""What a Mach-O library says beside what lowering asks of it: names, and who has its symbols."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from transforms.lowering.mach import MachReader

if TYPE_CHECKING:
    from pathlib import Path

_LOAD_DYLIB, _ID_DYLIB, _RPATH = 0xC, 0xD, 0x8000001C  # Apple's mach-o/loader.h


class LinkedLibrary(MachReader):
    """A library in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.read_bytes())
        (self.install_name,) = self._names(_ID_DYLIB)
        self.needed = self._names(_LOAD_DYLIB)
        self.search_paths = self._names(_RPATH)
        self.exports = {name for name, library in self.symbols() if library is None}

    def imports(self) -> dict[str, str]:
        """By each undefined symbol the library that is to have it; 254 and up: look anywhere."""
        return {
            name: self.needed[number - 1] if 0 < number <= len(self.needed) else ""
            for name, number in self.symbols()
            if number is not None
        }

    def _names(self, kind: int) -> list[str]:
        """The strings of commands whose third word is the string's offset in them."""
        return [
            self.text(at + struct.unpack_from("<I", self.data, at + 8)[0]) for at in self.all(kind)
        ]
