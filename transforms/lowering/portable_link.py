"""Links what this host's GCC has compiled so that it loads on any Linux of 2018 or later.

GCC's own link binds each symbol to the newest version that this host's libraries have: a model made
on Debian 12 would want glibc 2.34 and the C++ library of GCC 12. So the `ziglang` wheel's linker
does it, against the names that glibc 2.28 has, and the C++ library goes into the model's own. Left
to the machine are glibc, libgcc_s and libgomp, as manylinux_2_28 leaves them to it (PEP 600).
"""

from __future__ import annotations

import functools
import platform
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.compilers import zig_environment, zig_program, zig_version
from transforms.lowering.toolchain import Compiler, Source
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GLIBC = "2.28"
_MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
# GCC's headers ask it whether one thread is alone; an older glibc has none. "No" is always right.
_SINGLE_THREADED = Source(
    "glibc",
    'extern "C" { __attribute__((visibility("hidden"))) char __libc_single_threaded; }\n',
    ("-fPIC",),
)
_EXPORTS = "{ global: AOTInductor*; local: *; };\n"


def link_model_library(
    compiler: Compiler,
    sources: Sequence[Source],
    output: Path,
    needed: Path,
    libraries: Sequence[str] = (),
) -> None:
    """Compile a model's sources and link its library; by the host's own linker where it is clang's.

    Args:
        compiler: the host's.
        sources: the C++.
        output: where the library goes.
        needed: the runtime's library, which the model's will name as needed, without its path.
        libraries: further ones of GCC, by file name: `libgomp.so.1`.

    Raises:
        LoweringError: with the first error of compiler or linker.
    """
    if not _by_zig(compiler):
        flags = ["-fopenmp"] if libraries else []
        runtime = [f"-L{needed.parent}", "-Wl,--no-as-needed", f"-l:{needed.name}", "-Wl,-s"]
        compiler.link_library(
            sources, output, [*flags, *(runtime if needed.suffix == ".so" else ["-Wl,-s"])]
        )
        return
    # In this order: each asks those behind it.
    found = [_of_gcc(compiler.path, n) for n in ("libstdc++.a", "libgcc.a", "libgcc_s.so.1")]
    found += [_of_gcc(compiler.path, name) for name in libraries]
    with _export_list() as exports:
        # The runtime is named though nothing of it be asked for: it may be a stub here.
        runtime = ["-Wl,--no-as-needed", str(needed), "-Wl,--as-needed"]
        flags = [*runtime, *found, "-lm", "-Wl,-s", "-Wl,--gc-sections", exports]
        compiler.link_library([*sources, _SINGLE_THREADED], output, flags, linker=_linker())


def _by_zig(compiler: Compiler) -> bool:
    return platform.system() == "Linux" and "clang" not in compiler.version


@functools.cache
def _linker() -> Compiler:
    machine = _MACHINES[platform.machine()]
    return Compiler(
        str(zig_program()),
        f"zig {zig_version()}",
        ("cc", "-target", f"{machine}-linux-gnu.{GLIBC}"),
        tuple(zig_environment().items()),
    )


@functools.cache
def _of_gcc(compiler: str, name: str) -> str:
    """Where the compiler keeps one of its libraries.

    Raises:
        LoweringError: it has none of that name.
    """
    asked = [compiler, f"-print-file-name={name}"]
    path = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        raise LoweringError(compiler, f"has no {name}", "Install it whole: apt install g++")
    return path


@contextmanager
def _export_list() -> Iterator[str]:
    """The flag that leaves nothing visible but AOTInductor's interface."""
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        path = Path(folder) / "exports.map"
        path.write_text(_EXPORTS)
        yield f"-Wl,--version-script={path}"
