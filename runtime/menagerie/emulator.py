"""The compiler of the emulated Metal device, which replaces the GPU where there is none.

Clang and lld of the `ziglang` wheel compile a shader's source and the device's prelude to a shared
library. It is cached in a folder under a hash of all its inputs.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from menagerie.compilers import package_version, zig_program
from menagerie.errors import MenagerieError
from menagerie.paths import PACKAGE, home
from menagerie.shader_source import translate

# Apple's language versions: Metal 3.1, which is C++14; sources that include tensor operations are
# Metal 4, whose class constants as template arguments need C++20 in clang.
_PREPROCESS = "clang -E -x c++ -std=c++20 -nostdinc -w -D__METAL__=1 -D__METAL_MACOS__=1"
_METAL_3 = ("-std=c++14", ("-D__METAL_VERSION__=310",))
_METAL_4 = ("-std=c++20", ("-D__METAL_VERSION__=400", "-DMENAGERIE_METAL4"))
_TENSORS = b"#include <MetalPerformancePrimitives/"
# - Half and bfloat round after every operation; floats become the nearest value of integer types.
# - Any function may contain a barrier or a SIMD-group operation, as on a GPU: otherwise clang
#   duplicates a call of one that does into both branches of the `if` before it.
# - Nothing is contracted: results are the same everywhere.
# - With checks nothing is vectorised: the instrumentation must see each memory access, and only
#   sees those of up to 16 bytes.
_COMPILE = (
    "clang -c -x c++ -std=c++20 -nostdinc -w -O2 -march=x86-64-v3 -fPIC -fvisibility=hidden "
    "-fno-exceptions -fno-rtti -fno-math-errno -Xclang -fconvergent-functions "
    "-fno-stack-protector -fno-strict-aliasing -fno-strict-float-cast-overflow "
    "-Xclang -ffloat16-excess-precision=none -Xclang -fbfloat16-excess-precision=none "
    "-fsanitize=integer-divide-by-zero -fno-sanitize-recover=all"
)


class Mode(IntEnum):
    """The ways to run shaders, as metal/emulated/shaders.h numbers them."""

    CHECKED = 0  # every memory access is checked
    PLAIN = 1  # the same arithmetic without the checks
    OTHER = 2  # like another device: subnormals, contraction, atomics, matrix units


_BY_MODE = {
    Mode.CHECKED: (
        "-ffp-contract=off -fno-vectorize -fno-slp-vectorize "
        "-fsanitize=thread -mllvm -tsan-instrument-func-entry-exit=0 "
        "-mllvm -tsan-instrument-read-before-write=1 -mllvm -tsan-instrument-atomics=0"
    ),
    Mode.PLAIN: "-ffp-contract=off -DMENAGERIE_PLAIN",
    Mode.OTHER: "-ffp-contract=on -DMENAGERIE_PLAIN -DMENAGERIE_OTHER",
}
# Compiles against the prelude's real address spaces: C++14, with newer features as errors.
_CHECK = (
    "clang -S -emit-llvm -Xclang -disable-llvm-passes -x c++ -nostdinc "
    "-Wno-everything -DMENAGERIE_LANGUAGE "
    "-ferror-limit=0 -fno-caret-diagnostics -ftemplate-backtrace-limit=1 -fno-exceptions -fno-rtti "
    "-Werror=vla-extension -Werror=c++17-extensions -Werror=c++20-extensions "
    "-Werror=c++23-extensions -Werror=c++26-extensions"
)
# Errors about what Metal's address spaces and vectors allow and clang's do not. If such code is
# wrong for another reason, compiling the text that is run refuses it.
_METALS_OWN = re.compile(
    # Structs are copied between address spaces, also as members, without a constructor.
    r"implicit copy (constructor|assignment operator)\) not viable: ('this' object is|cannot bind "
    r"reference) in address space|no viable conversion from '[^']*address_space|"
    r"c\+\+11-narrowing|no matching constructor for initialization of '(threadgroup|const __a)|"
    # A template's T(x, y) may be a vector; comparing vectors gives vectors of bool.
    r"'static_assert' with no message is|cannot (in|de)crement value of type '\w+\d'|"
    r"excess elements in (scalar|vector) initializer|illegal vector component name|"
    r"invalid operands to binary expression \('(metal::)?bool\d|"
    r"of type '(metal::)?(bool\d|vec<bool|bool __attr|Wide<bool)[^\n]* of type '[^\n]*vector of \d"
)
_UNOPTIMISED = ("-Xclang", "-disable-llvm-passes")
_NAME = r'@("[^"]+"|[\w.$]+)'
_DEFINITION = re.compile(rf"^define [^@\n]*{_NAME}\(.*?^}}", re.MULTILINE | re.DOTALL)
_CALL = re.compile(rf"\bcall\b[^@\n]*{_NAME}\(")
_RUN = re.compile(rf"\bcall\b[^@\n]*{_NAME}\([^\n]*{_NAME}\)")  # a call of Caller with a kernel
_VARIABLE = re.compile(rf"^{_NAME} = (?!external|private)[\w() ]*?\bglobal\b", re.MULTILINE)
_LINK = ["ld.lld", "-shared", "-z", "defs"]
_METAL_HEADER = re.compile(rb"^[ \t]*#include [^\n]*<[Mm]etal[_P][^\n]*", re.MULTILINE)
_SYSTEM_LIBRARY = re.compile(r"/lib[cm](-[\d.]+)?\.so(\.6)?$")  # libc-2.31.so before glibc 2.34
_FIRST_LINE = b'#line 1 "kernels.metal"\n'
_SYSTEM_LINE = b'# 1 "metal_stdlib" 3\n'  # a system header, which may have newer features
_SCRATCH = "making"
_ONE_COMPILES = threading.Lock()
_Answer = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
)
_LIBRARIES: list[ctypes.CDLL] = []  # runtimes that have a compiler
_KEPT: list[object] = []  # keeps callbacks alive, which a runtime does not reference
_COMPILATIONS: list[float] = []  # seconds of each compilation in this process


@dataclass(frozen=True)
class ShaderCompiler:
    """A Metal compiler: `command` is clang and lld, processes share the libraries in `folder`."""

    command: tuple[str, ...]
    folder: Path

    def compiled(self, source: bytes, prelude: bytes, mode: Mode = Mode.CHECKED) -> Path:
        """Return the compiled library, from the folder if it exists.

        Raise MenagerieError with the compiler's first error or the line that is not emulated, or if
        other users may write to the folder.
        """
        own = ((PACKAGE / name).read_bytes() for name in ("emulator.py", "shader_source.py"))
        parts = (*own, *map(str.encode, self.command), bytes([mode]), prelude, source)
        kept = self.folder / f"{hashlib.sha256(bytes(1).join(parts)).hexdigest()}.so"
        with _ONE_COMPILES:
            _make_private(self.folder)
            if not _is_own_file(kept):
                with _scratch(self.folder) as scratch:
                    self._make(source, prelude, mode, scratch).replace(kept)
        return kept

    def _make(self, source: bytes, prelude: bytes, mode: Mode, scratch: Path) -> Path:
        names = "source.metal expanded.ii check.cpp check.ll unit.cpp unit.ll unit.o it.so"
        metal, expanded, checked, spaces, unit, code, compiled, library = (
            scratch / each for each in names.split()
        )
        # The prelude replaces Metal's own headers; lines keep their numbers.
        metal.write_bytes(_FIRST_LINE + _METAL_HEADER.sub(b"", source))
        standard, defined = _METAL_4 if _TENSORS in source else _METAL_3
        self._call(*_PREPROCESS.split(), *defined, metal, "-o", expanded)
        text = translate(expanded.read_bytes().decode("latin-1"))
        command = [*_COMPILE.split(), *_BY_MODE[mode].split(), *defined]
        unit.write_bytes(prelude + _FIRST_LINE + text.run.encode("latin-1"))
        if mode is Mode.CHECKED:
            declared = _SYSTEM_LINE + prelude + _FIRST_LINE
            checked.write_bytes(declared + text.checked.encode("latin-1"))
            check = (*_CHECK.split(), standard, *defined, checked, "-o", spaces)
            self._call(*check, tolerated=_tolerated(text.versioned))
            if spaces.exists():
                _refuse_casts(spaces.read_text(encoding="latin-1"))
            self._call(*command, "-S", "-emit-llvm", *_UNOPTIMISED, unit, "-o", code)
            _refuse_calls(code.read_text(encoding="latin-1"))
            command[command.index("c++")], unit = "ir", code
        self._call(*command, unit, "-o", compiled)
        self._call(*_LINK, compiled, *_system_libraries(), "-o", library)
        return library

    def _call(self, *arguments: str | Path, tolerated: re.Pattern[str] | None = None) -> None:
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                check=False, text=True, errors="replace",
            )  # fmt: skip
        except OSError as error:
            place = f"the compiler {self.command[0]} cannot be started"
            raise MenagerieError(place, str(error.strerror)) from error
        if done.returncode != 0:
            said = done.stderr.splitlines()
            errors = _errors(done.stderr, tolerated)
            if tolerated is not None and not errors and "error: " in done.stderr:
                return
            fact = next(iter(errors or said), "the compiler failed without a message")
            raise MenagerieError("the Metal source does not compile", fact)


def _tolerated(versioned: Collection[str]) -> re.Pattern[str]:
    """Return a pattern of errors to ignore, including those about versions of member functions."""
    # Clang does not overload member functions by their object's address space.
    names = rf"([\w:]+::)?({'|'.join(versioned)})"
    own = rf"object parameter of type '(const )?{names}'|static_cast from '\w+ {names}'"
    return re.compile(_METALS_OWN.pattern + (f"|{own}" if versioned else ""))


def _errors(said: str, tolerated: re.Pattern[str] | None) -> list[str]:
    parts = re.split(r"^(?=[^\n]*?error: )", said, flags=re.MULTILINE)
    return [
        part.splitlines()[0]
        for part in parts
        if "error: " in part and not (tolerated and tolerated.search(part))
    ]


def _refuse_casts(code: str) -> None:
    """Refuse pointer casts to another address space, which clang accepts if they are explicit."""
    for found in _DEFINITION.finditer(code):
        if "addrspacecast" in found[0]:
            fact = "casts a pointer or reference to another address space"
            raise MenagerieError(_plain(found[1]), fact)


def _refuse_calls(code: str) -> None:
    """Refuse what is easiest to find in LLVM's code: variables, recursion, calls of kernels."""
    for name in _VARIABLE.findall(code):
        if not name.startswith("llvm."):
            raise MenagerieError(_plain(name), "is a variable outside of any function's memory")
    calls, kernels = {}, set()
    for found in _DEFINITION.finditer(code):
        calls[found[1]] = set(_CALL.findall(found[0]))
        if "menagerie_run_" in found[1]:
            kernels |= {kernel for _, kernel in _RUN.findall(found[0])}
    for caller, called in calls.items():
        # Indirect recursion is allowed: torch's own log_gamma and gamma use it.
        if caller in called:
            raise MenagerieError(_plain(caller), "calls itself: Metal has no recursion")
        for kernel in called & kernels:
            raise MenagerieError(_plain(caller), f"calls {_plain(kernel)}, which is a kernel")


def _plain(mangled: str) -> str:
    """Return a function's or variable's name without the types of its scope."""
    names, at = [], 0
    while found := re.compile(r"[^\d]*?(\d+)").match(mangled, at):
        at = found.end() + int(found[1])
        names.append(mangled[found.end() : at])
    return "::".join(filter(None, names)) or mangled


def configure(library: ctypes.CDLL, compiler: ShaderCompiler | None = None) -> None:
    """Give a loaded Metal runtime its shader compiler, by default the wheel's.

    The default one caches libraries in ``emulator/`` of Menagerie's home, in a folder for each
    version of the wheel. Raise MenagerieError if the wheel is not installed.
    """
    made = compiler or ShaderCompiler(
        (str(zig_program()),), home() / "emulator" / f"ziglang-{package_version('ziglang')}"
    )

    def answer(source: bytes, prelude: bytes, mode: int, said: int, capacity: int) -> int:
        """Write the library's path or the error to `said`; return 0 for a path, 1 for an error."""
        status, began = 0, time.perf_counter()
        try:
            text = str(made.compiled(source, prelude, Mode(mode)))
        except MenagerieError as error:
            status, text = 1, str(error)
        except OSError as error:
            status, text = 1, f"the emulator's cache: {error}"
        except Exception as error:  # noqa: BLE001 - ctypes would only print it
            status, text = 1, f"{type(error).__name__}: {error}"
        _COMPILATIONS.append(time.perf_counter() - began)
        content = text.encode(errors="surrogateescape")[: capacity - 1] + b"\0"
        ctypes.memmove(said, content, len(content))
        return status

    _KEPT.append(_Answer(answer))
    library.menagerie_emulator_configure(_KEPT[-1])
    _LIBRARIES.append(library)


def compiling_seconds() -> float:
    """Return the seconds that this process has spent compiling shaders for the emulated device."""
    return sum(_COMPILATIONS)


def prepare(library: ctypes.CDLL) -> None:
    """Compile a Metal runtime's own kernels for all modes, so that no proof has to do it."""
    if library.menagerie_emulator_prepare() != 0:
        raise MenagerieError("the runtime's own kernels", "do not compile for the emulated device")


@contextmanager
def running(mode: Mode) -> Iterator[None]:
    """Run this process's shaders in the given mode; without an emulated device, do nothing."""
    for library in _LIBRARIES:
        library.menagerie_emulator_mode(int(mode))
    try:
        yield
    finally:
        for library in _LIBRARIES:
            library.menagerie_emulator_mode(int(Mode.CHECKED))


def _make_private(folder: Path) -> None:
    """Create a folder for its owner only; refuse one that other users own or may write to."""
    for each in (*reversed(folder.parents), folder):
        each.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise MenagerieError(str(folder), "others may write into it", f"Remove it: rm -r {folder}")


def _is_own_file(path: Path) -> bool:
    """Return whether the path is a regular file of this user, not a link."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """Yield a folder for this process only, and remove those of killed processes."""
    for left in parent.glob(f"{_SCRATCH}-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{_SCRATCH}-{os.getpid()}-", dir=parent) as folder:
        yield Path(folder)


def _system_libraries() -> set[str]:
    """Return the paths of the C library and its mathematics that this process has loaded."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines()}
    return {path for path in paths if _SYSTEM_LIBRARY.search(path)}
