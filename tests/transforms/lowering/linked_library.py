"""Reads Mach-O libraries: the systems they are for, what they name, and where symbols come from.

Structures and constants are those of Apple's `mach-o/loader.h`, `mach-o/nlist.h` and of
`cs_blobs.h` in XNU's sources. Only thin, little-endian 64-bit files for arm64 are read.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC_64 = 0xFEEDFACF
_CPU_ARM64 = 0x0100000C
_FILE_DYLIB = 6
_FLAG_TWO_LEVEL = 0x80
_HEADER = struct.Struct("<IiiIIIII")
_COMMAND = struct.Struct("<II")
_SYMBOL = struct.Struct("<IBBHQ")

_SYMTAB, _CODE_SIGNATURE, _BUILD_VERSION, _UUID = 0x2, 0x1D, 0x32, 0x1B
_PLATFORM_MACOS = 1

_SYMBOL_KIND, _SYMBOL_EXTERNAL, _SYMBOL_DEBUG = 0x0E, 0x01, 0xE0
_UNDEFINED = 0

_SIGNATURE, _CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
_AD_HOC, _SHA256 = 0x2, 2
_LOAD_DYLIB, _ID_DYLIB, _RPATH = 0xC, 0xD, 0x8000001C


class LinkedLibrary:
    """A library in a file; any other file is a ValueError or struct.error."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        magic, cpu, _, kind, count, _, flags, _ = _HEADER.unpack_from(self.data)
        if (magic, cpu, kind) != (_MAGIC_64, _CPU_ARM64, _FILE_DYLIB):
            raise ValueError(f"magic {magic:#x}, processor {cpu:#x}, kind {kind}")
        self._commands = list(self._read_commands(count))
        self.two_level = bool(flags & _FLAG_TWO_LEVEL)
        self.identified = bool(self.all(_UUID))  # macOS 26 loads no library without a UUID
        self.deployment_target = self._deployment_target()
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

    def _read_commands(self, count: int) -> Iterator[tuple[int, int]]:
        at = _HEADER.size
        for _ in range(count):
            kind, size = _COMMAND.unpack_from(self.data, at)
            if size < _COMMAND.size:
                raise ValueError(f"a load command of {size} bytes")
            yield kind, at
            at += size

    def all(self, kind: int) -> list[int]:
        """Where the load commands of a kind begin."""
        return [at for found, at in self._commands if found == kind]

    def text(self, at: int) -> str:
        """The string that begins there."""
        return self.data[at : self.data.index(b"\0", at)].decode()

    def _deployment_target(self) -> str:
        platform, oldest = struct.unpack_from("<II", self.data, self.all(_BUILD_VERSION)[0] + 8)
        if platform != _PLATFORM_MACOS:
            raise ValueError(f"platform {platform}")
        return f"{oldest >> 16}.{oldest >> 8 & 0xFF}"

    def symbols(self) -> Iterator[tuple[str, int | None]]:
        """Undefined symbols, each with the number of its library, and exported ones with None."""
        offset, count, strings, _ = struct.unpack_from("<IIII", self.data, self.all(_SYMTAB)[0] + 8)
        for number in range(count):
            name_at, kind, _, info, _ = _SYMBOL.unpack_from(
                self.data, offset + number * _SYMBOL.size
            )
            if kind & _SYMBOL_EXTERNAL and not kind & _SYMBOL_DEBUG:
                undefined = kind & _SYMBOL_KIND == _UNDEFINED
                name = self.text(strings + name_at).removeprefix("_")
                yield name, info >> 8 if undefined else None

    @property
    def signed(self) -> bool:
        """Whether it is so at least ad hoc, each page with the hash that was signed."""
        for at in self.all(_CODE_SIGNATURE):
            start, _ = struct.unpack_from("<II", self.data, at + 8)
            magic, _, count = struct.unpack_from(">III", self.data, start)
            if magic != _SIGNATURE:
                return False
            for number in range(count):
                _, offset = struct.unpack_from(">II", self.data, start + 12 + 8 * number)
                if struct.unpack_from(">I", self.data, start + offset) == (_CODE_DIRECTORY,):
                    return self._pages_signed(start + offset)
        return False

    def _pages_signed(self, directory: int) -> bool:
        """Whether each page of the file has the SHA-256 that the code directory holds."""
        _, _, _, flags, hashes, _, _, pages, limit = struct.unpack_from(
            ">IIIIIIIII", self.data, directory
        )
        size, kind, _, page_bits = struct.unpack_from(">BBBB", self.data, directory + 36)
        if not flags & _AD_HOC or kind != _SHA256:
            return False
        step = 1 << page_bits
        return pages == -(-limit // step) and all(
            hashlib.sha256(self.data[n * step : min((n + 1) * step, limit)]).digest()
            == self.data[directory + hashes + n * size :][:size]
            for n in range(pages)
        )
