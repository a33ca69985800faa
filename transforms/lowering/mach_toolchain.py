"""Links C++ to a signed Mach-O library for arm64 macOS: by zig anywhere, on a Mac by its clang."""

from __future__ import annotations

import functools
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.compilers import zig_environment, zig_program, zig_version
from menagerie.shims import supported_symbols
from transforms.lowering.mach_o import DEPLOYMENT_TARGET, read_library
from transforms.lowering.toolchain import Compiler, find_compiler
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.lowering.mach_o import MachLibrary
    from transforms.lowering.toolchain import Source

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
    return Compiler(
        str(zig_program()),
        f"zig {zig_version()}",
        ("c++", "-target", f"aarch64-macos.{DEPLOYMENT_TARGET}"),
        tuple(zig_environment().items()),
    )


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
