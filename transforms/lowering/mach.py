"""Links C++ to a signed Mach-O library for arm64 macOS, on any host.

That it is signed page by page, has a UUID and a two-level namespace, and loads on the oldest macOS
is up to the linker. Off a Mac that is zig's, whose version is pinned: tests read back what it
makes. On a Mac it is that of the host's clang, of any version, which no test has run.
"""

from __future__ import annotations

import functools
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.shims import supported_symbols
from transforms.lowering.toolchain import Compiler, find_compiler, zig_compiler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.lowering.toolchain import Source


# The oldest macOS that artifacts load on: the first whose MPSNDArray views a buffer at an offset.
DEPLOYMENT_TARGET = "15.0"
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


def link_mach_library(sources: Sequence[Source], output: Path, target: str) -> None:
    """Compile and link `sources`, and sign the library ad hoc.

    What it leaves undefined of our runtime is bound to the runtime by its install name (two-level
    namespace), so that it finds ours even where libtorch, with the same names, is loaded too.

    Args:
        sources: the C++.
        output: where the library goes.
        target: whose runtime it is linked against.

    Raises:
        LoweringError: if the compiler fails, or a symbol is nowhere to be had.
    """
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        stub = Path(folder) / "libmenagerie_metal.tbd"
        stub.write_text(_stub(sorted(supported_symbols(target))))
        name = f"-Wl,-install_name,@rpath/{output.name}"
        mach_compiler().link_library(sources, output, [str(stub), name, *_LINK_FLAGS])
    if platform.system() == "Darwin":  # stripping broke the linker's own signature
        subprocess.run(["/usr/bin/codesign", "--force", "--sign", "-", str(output)], check=True)


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
