"""C++ compilers: they turn sources into a shared library without traces of this machine.

Code that this host's GCC compiled is linked so that it loads on any Linux of 2018 or later. GCC's
own link would bind each symbol to the newest version in this host's libraries. So the `ziglang`
wheel's linker links it, against the names of glibc 2.28, and the C++ library is linked into the
model's own. The machine provides glibc, libgcc_s and libgomp (PEP 600).

The linker signs a library for macOS page by page and makes it load on the oldest supported macOS:
off a Mac it is zig's, whose output tests read back; on a Mac the host's, which no test has run.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from menagerie.compilers import (
    find_host_compiler,
    package_version,
    zig_cache,
    zig_environment,
    zig_program,
)
from menagerie.paths import home
from menagerie.shims import supported_symbols
from zoo.errors import LoweringError
from zoo.progress import report_step


@dataclass(frozen=True)
class Source:
    """One C++ file to compile: its text, its own flags, and its prelude, which is precompiled.

    A `kept` source is the same for every model, and is compiled once.
    """

    name: str
    text: str
    flags: tuple[str, ...]
    prelude: str | None = None
    kept: bool = False


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler driver.

    `version` is the first line of its own `--version`, part of every build key; `arguments` come
    first in every call, and `environment` is added to this process's.
    """

    path: str
    version: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def link_library(
        self,
        sources: Sequence[Source],
        output: Path,
        link_flags: Sequence[str],
        *,
        linker: Compiler | None = None,
    ) -> None:
        """Compile `sources` in parallel, and link them; LoweringError has the first error."""
        shared = (s for s in sources if s.kept or s.prelude is not None)
        if not all(self._flags_and_place(s)[1].exists() for s in shared):
            text = "compiling torch's headers, once on this machine: a minute or more"
            report_step(text, 0.3, begins=True)
        with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
            with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
                objects = list(pool.map(lambda s: self._compile(s, Path(folder)), sources))
            linked = Path(folder) / output.name  # its name may be part of a signature
            # Run in the folder: zig accepts no `%` in the path of its output.
            words = [*map(str, objects), "-shared", *link_flags, "-o", linked.name]
            (linker or self)._run(words, cwd=linked.parent)
            partial = output.with_suffix(f".{os.getpid()}.partial")
            shutil.copyfile(linked, partial)
            partial.replace(output)

    def _compile(self, source: Source, folder: Path) -> Path:
        if source.kept:
            return self._kept(source)
        text, target = folder / f"{source.name}.cpp", folder / f"{source.name}.o"
        text.write_text(source.text)
        header = []
        if source.prelude is not None:
            header = ["-include", str(self._kept(source))]
        flags = [*source.flags, *_include_flags(), f"-ffile-prefix-map={folder}=."]
        # Run in the folder: debug information names the directory of the call.
        self._run([*flags, *header, "-c", str(text), "-o", str(target)], cwd=folder)
        return target

    def _kept(self, source: Source) -> Path:
        """Return the file compiled once per compiler, flags and torch; see `compiled_once`."""
        flags, place = self._flags_and_place(source)
        if source.kept:
            flags.append(f"-ffile-prefix-map={place}=.")
        text = source.text if source.kept else source.prelude or ""
        return compiled_once(
            place, text, lambda a: self._run([*flags, *a]), is_header=not source.kept
        )

    def _flags_and_place(self, source: Source) -> tuple[list[str], Path]:
        """Return the flags and the folder of the part compiled once: the source or its prelude."""
        flags = [*source.flags, *_include_flags()]
        if not source.kept and ("clang" in self.version or "zig" in self.version):
            flags.append("-fpch-instantiate-templates")  # once, not in each file after it
        text = source.text if source.kept else source.prelude or ""
        facts = [self.version, *self.arguments, *flags, text]
        digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
        return flags, home() / "headers" / digest[:32]

    def _run(self, arguments: Sequence[str], cwd: Path | None = None) -> None:
        result = subprocess.run(
            [self.path, *self.arguments, *arguments], capture_output=True, text=True, check=False,
            cwd=cwd, env=os.environ | dict(self.environment),
        )  # fmt: skip
        if result.returncode != 0:
            errors = [line for line in result.stderr.splitlines() if "error" in line]
            fact = f"failed: {errors[0] if errors else result.stderr.strip()[-300:]}"
            if named := re.search(r"In function .\w+ (\w+)\(", result.stderr):
                fact += f", in {named[1]}"
            step = "Run `zoo doctor` to see whether the compiler and torch's headers fit"
            raise LoweringError(self.path, fact, step)


@functools.cache
def find_compiler() -> Compiler:
    """Return this machine's C++ compiler by `menagerie.compilers`; LoweringError if none."""
    found = find_host_compiler()
    if found is None:
        fact = "there is no C++ compiler on the PATH"
        raise LoweringError("compiler", fact, "Install g++ 11 or clang 15, or newer")
    return Compiler(found.path, found.version)


@functools.cache
def _include_flags() -> tuple[str, ...]:
    from torch.utils import cpp_extension

    # -isystem: warnings in torch's headers are not ours to fix
    flags: list[str] = []
    for path in cpp_extension.include_paths("cpu"):
        flags += ["-isystem", path, f"-ffile-prefix-map={path}=torch"]
    return tuple(flags)


_STAMPS = "stamps.json"
_SPACE = re.compile(r"(?<!\\)\s+")


def compiled_once(
    folder: Path, text: str, compile_it: Callable[[list[str]], None], *, is_header: bool = False
) -> Path:
    """Return the object file of a C++ source in `folder`; for a header, return the header itself.

    A header is compiled beside itself. A reinstalled torch or compiler changes files under the same
    paths: clang then refuses what it compiled from the old ones, and GCC silently uses it. So the
    size and time of every file that was read are recorded, and compared before each use. Each text,
    compiler and set of flags has a folder of its own.
    """
    names, how = ("kept.cpp", "kept.o"), ["-c"]
    if is_header:
        names, how = ("prelude.h", "prelude.h.gch"), ["-x", "c++-header"]
    source, compiled = (folder / name for name in names)
    if not _is_current(folder, compiled):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as place:
            written, made, read = (Path(place, n) for n in ("written", "made", "read.d"))
            written.write_text(text)
            os.utime(written, (0, 0))  # the same for all builders: clang compares its time too
            written.replace(source)
            compile_it([*how, str(source), "-MD", "-MF", str(read), "-o", str(made)])
            stamps = Path(place, _STAMPS)
            stamps.write_text(json.dumps({name: _stamp(name) for name in _prerequisites(read)}))
            made.replace(compiled)
            stamps.replace(folder / _STAMPS)
    os.utime(folder)  # marks the folder as used; unused ones are collected
    return source if is_header else compiled


def _is_current(folder: Path, compiled: Path) -> bool:
    try:
        stamps = json.loads((folder / _STAMPS).read_text())
    except (OSError, ValueError):
        return False
    return compiled.exists() and all(_stamp(name) == stamp for name, stamp in stamps.items())


def _stamp(name: str) -> list[int] | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _prerequisites(rule: Path) -> list[str]:
    """Return the files after the colon of the single rule that `-MD` writes, in make's syntax."""
    _, _, files = rule.read_text().replace("\\\n", " ").partition(": ")
    return [
        re.sub(r"\\(.)", r"\1", name).replace("$$", "$") for name in _SPACE.split(files.strip())
    ]


GLIBC = "2.28"
_MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
# GCC's headers read this flag for a lone thread; older glibcs lack it. False is always correct.
_SINGLE_THREADED = Source(
    "glibc",
    'extern "C" { __attribute__((visibility("hidden"))) char __libc_single_threaded; }\n',
    ("-fPIC",),
    kept=True,
)
# Only AOTInductor's interface is visible.
_EXPORTS = "{ global: AOTInductor*; local: *; };\n"


def link_model_library(
    compiler: Compiler,
    sources: Sequence[Source],
    output: Path,
    needed: Path,
    libraries: Sequence[str] = (),
) -> None:
    """Compile a model's sources and link its library; with clang, by the host's own linker.

    It depends on the runtime's library `needed`, by name without path, and on further libraries of
    GCC by file name (`libgomp.so.1`). Raise LoweringError with the first compiler or linker error.
    """
    if platform.system() != "Linux" or "clang" in compiler.version:
        flags = ["-fopenmp"] if libraries else []
        runtime = [f"-L{needed.parent}", "-Wl,--no-as-needed", f"-l:{needed.name}", "-Wl,-s"]
        compiler.link_library(
            sources, output, [*flags, *(runtime if needed.suffix == ".so" else ["-Wl,-s"])]
        )
        return
    # The order matters: each depends on those after it.
    found = [_of_gcc(compiler.path, n) for n in ("libstdc++.a", "libgcc.a", "libgcc_s.so.1")]
    found += [_of_gcc(compiler.path, name) for name in libraries]
    zig = zig_compiler("cc", "-target", f"{_MACHINES[platform.machine()]}-linux-gnu.{GLIBC}")
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        exports = Path(folder) / "exports.map"
        exports.write_text(_EXPORTS)
        # Link the runtime even if no symbol of it is used: it may be a stub here.
        flags = ["-Wl,--no-as-needed", str(needed), "-Wl,--as-needed", *found, "-lm", "-Wl,-s"]
        flags += ["-Wl,--gc-sections", f"-Wl,--version-script={exports}"]
        compiler.link_library([*sources, _SINGLE_THREADED], output, flags, linker=zig)


def zig_compiler(*arguments: str) -> Compiler:
    """Return the `ziglang` wheel's compiler driver, with the first arguments of every call."""
    environment = tuple(zig_environment().items())
    return Compiler(str(zig_program()), f"zig {package_version('ziglang')}", arguments, environment)


@functools.cache
def _of_gcc(compiler: str, name: str) -> str:
    """Return the path of one of the compiler's libraries; LoweringError if it has none."""
    asked = [compiler, f"-print-file-name={name}"]
    path = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        raise LoweringError(compiler, f"has no {name}", "Install it whole: apt install g++")
    return path


# The oldest macOS that artifacts load on: the first whose MPSNDArray views a buffer at an offset.
DEPLOYMENT_TARGET = "15.0"
RUNTIME_INSTALL_NAME = "@rpath/libmenagerie_metal.dylib"

_MACH_FLAGS = ("-Wl,-dead_strip", "-Wl,-s")


@functools.cache
def mach_compiler() -> Compiler:
    """Return this host's compiler for arm64 macOS.

    Raise LoweringError if a Mac has no command line tools, or MenagerieError if another host lacks
    the `ziglang` wheel.
    """
    if platform.system() == "Darwin":
        host = find_compiler()
        flags = ("-arch", "arm64", f"-mmacosx-version-min={DEPLOYMENT_TARGET}")
        return Compiler(host.path, host.version, flags)
    return zig_compiler("c++", "-target", f"aarch64-macos.{DEPLOYMENT_TARGET}")


def linked_for_macos() -> Path:
    """Return a file that exists once zig has compiled libc++ for macOS here."""
    return zig_cache() / "linked-for-macos"


def link_mach_library(sources: Sequence[Source], output: Path, target: str) -> None:
    """Compile and link `sources` against the target's runtime, and sign the library ad hoc.

    Undefined symbols of our runtime are bound to it by its install name (two-level namespace), so
    that the library finds ours even if libtorch, with the same names, is loaded too. Raise
    LoweringError if the compiler fails, or a symbol is not found.
    """
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        stub = Path(folder) / "libmenagerie_metal.tbd"
        stub.write_text(_stub(sorted(supported_symbols(target))))
        name = f"-Wl,-install_name,@rpath/{output.name}"
        mach_compiler().link_library(sources, output, [str(stub), name, *_MACH_FLAGS])
    if platform.system() == "Darwin":  # stripping broke the linker's own signature
        subprocess.run(["/usr/bin/codesign", "--force", "--sign", "-", str(output)], check=True)


def _stub(symbols: Sequence[str]) -> str:
    """Return a text-based stub of the runtime, as `tapi` makes one of a library, in format 4."""
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
