"""Links C++ to a signed Mach-O library for arm64 macOS, on any host, and reads it back.

Linked by zig anywhere, on a Mac by its clang. Structures and constants are those of Apple's
`mach-o/loader.h`, `mach-o/nlist.h` and of `cs_blobs.h` in XNU's sources. Only thin, little-endian
64-bit files are read.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.shims import supported_symbols
from transforms.lowering.toolchain import Compiler, find_compiler, zig_compiler
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from transforms.lowering.toolchain import Source


# The oldest macOS that artifacts load on: the first whose MPSNDArray views a buffer at an offset.
DEPLOYMENT_TARGET = "15.0"

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


@dataclass(frozen=True)
class MachLibrary:
    """A dynamic library for arm64 macOS."""

    deployment_target: str  # "15.0"
    two_level: bool
    imports: tuple[str, ...]  # undefined symbols, without their leading underscore
    identified: bool  # has a UUID, without which macOS 26 loads no library
    signed: bool  # at least ad hoc, and every page has the hash that was signed


def read_library(path: Path) -> MachLibrary:
    """Read a library.

    Raises:
        LoweringError: if it is no arm64 library for macOS.
    """
    try:
        return MachReader(path.read_bytes()).library()
    except (struct.error, ValueError, IndexError) as error:
        raise LoweringError(str(path), f"is no Mach-O library for arm64 macOS: {error}") from error


class MachReader:
    """Reads `data`, the bytes of a library; any other file is a ValueError or struct.error."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        magic, cpu, _, kind, count, _, self._flags, _ = _HEADER.unpack_from(data)
        if (magic, cpu, kind) != (_MAGIC_64, _CPU_ARM64, _FILE_DYLIB):
            raise ValueError(f"magic {magic:#x}, processor {cpu:#x}, kind {kind}")
        self._commands = list(self._read_commands(count))

    def library(self) -> MachLibrary:
        """What is asked of a library before it is shipped."""
        return MachLibrary(
            deployment_target=self._deployment_target(),
            two_level=bool(self._flags & _FLAG_TWO_LEVEL),
            imports=tuple(name for name, library in self.symbols() if library is not None),
            identified=bool(self.all(_UUID)),
            signed=self._signed(),
        )

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

    def _signed(self) -> bool:
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


RUNTIME_INSTALL_NAME = "@rpath/libmenagerie_metal.dylib"

_LINK_FLAGS = ("-Wl,-dead_strip", "-Wl,-s")


@functools.cache
def mach_compiler() -> Compiler:
    """The compiler for arm64 macOS on this host.

    Raises:
        LoweringError: if a Mac has no command line tools.
        MenagerieError: if the `ziglang` wheel is missing elsewhere.
    """
    if platform.system() == "Darwin":
        host = find_compiler()
        flags = ("-arch", "arm64", f"-mmacosx-version-min={DEPLOYMENT_TARGET}")
        return Compiler(host.path, host.version, flags)
    return zig_compiler("c++", "-target", f"aarch64-macos.{DEPLOYMENT_TARGET}")


def link_mach_library(
    place: str, sources: Sequence[Source], output: Path, target: str
) -> MachLibrary:
    """Compile and link `sources`, sign the library ad hoc and read it back.

    What it leaves undefined of our runtime is bound to the runtime by its install name (two-level
    namespace), so that it finds ours even where libtorch, with the same names, is loaded too.

    Args:
        place: for errors.
        sources: the C++.
        output: where the library goes.
        target: whose runtime it is linked against.

    Raises:
        LoweringError: if the compiler fails or what it made would not load on a Mac.
    """
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        stub = Path(folder) / "libmenagerie_metal.tbd"
        stub.write_text(_stub(sorted(supported_symbols(target))))
        name = f"-Wl,-install_name,@rpath/{output.name}"
        mach_compiler().link_library(sources, output, [str(stub), name, *_LINK_FLAGS])
    if platform.system() == "Darwin":  # stripping broke the linker's own signature
        subprocess.run(["/usr/bin/codesign", "--force", "--sign", "-", str(output)], check=True)
    library = read_library(output)
    _check(place, library)
    return library


def _stub(symbols: Sequence[str]) -> str:
    """A text-based stub of the runtime: what `tapi` makes of a library, in its format 4."""
    names = ", ".join(f"_{symbol}" for symbol in symbols)
    return (
        "--- !tapi-tbd\n"
        "tbd-version: 4\n"
        "targets: [ arm64-macos ]\n"
        f"install-name: '{RUNTIME_INSTALL_NAME}'\n"
        "exports:\n"
        "  - targets: [ arm64-macos ]\n"
        f"    symbols: [ {names} ]\n"
        "...\n"
    )


def _check(place: str, library: MachLibrary) -> None:
    facts = {
        "is not signed": not library.signed,
        "has no UUID": not library.identified,
        "has a flat namespace": not library.two_level,
        f"runs on macOS {library.deployment_target} only": (
            library.deployment_target != DEPLOYMENT_TARGET
        ),
    }
    if wrong := [fact for fact, holds in facts.items() if holds]:
        raise LoweringError(place, f"the Mach-O library {wrong[0]}")
