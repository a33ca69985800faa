"""The C library of a target, and declarations of its C API as in include/menagerie.h."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from menagerie.errors import SessionError
from menagerie.host import INSTRUCTIONS
from menagerie.paths import built, package_folders

MAX_DIMENSIONS = 16
_BUILD_AGAIN = "Build and install the package again: make setup"
_SPIN_COUNT = "GOMP_SPINCOUNT"
_ONE_LOADS = threading.Lock()  # loading changes the environment temporarily


class TensorView(ctypes.Structure):
    """``menagerie_tensor``: data, dtype number, number of axes, sizes and strides in elements."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MAX_DIMENSIONS),
        ("strides", ctypes.c_int64 * MAX_DIMENSIONS),
    )


class KernelTimeView(ctypes.Structure):
    """``menagerie_kernel_time``: one kernel of a profile."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("calls", ctypes.c_uint64),
        ("milliseconds", ctypes.c_double),
        ("flops", ctypes.c_double),
        ("bytes", ctypes.c_double),
    )


def library_path(target: str = "cpu") -> Path:
    """Return a target's library in the installed package; SessionError if it is not built."""
    return built(_file_name(target))


def native_tool() -> Path:
    """Return `menagerie-run`, which can be copied with its libraries; SessionError if missing."""
    return built("menagerie-run")


def run_native_tool() -> None:
    """Replace this process by the program `menagerie-run`, which runs without Python."""
    try:
        path = str(native_tool())
    except SessionError as error:
        sys.exit(str(error))
    os.execv(path, [path, *sys.argv[1:]])  # noqa: S606 - no shell is needed


def available_targets() -> tuple[str, ...]:
    """Return the sorted targets whose runtime this installation has."""
    before, after = _file_name("*").split("*")
    found = {path.name for each in package_folders() for path in each.glob(_file_name("*"))}
    return tuple(sorted(name.removeprefix(before).removesuffix(after) for name in found))


def _file_name(target: str) -> str:
    return f"libmenagerie_{target}.{'dylib' if sys.platform == 'darwin' else 'so'}"


def library(target: str = "cpu") -> ctypes.CDLL:
    """Load a target's C library once; its symbols are only visible to lowered models.

    Raise SessionError if it is not built, cannot be loaded, or is older than this Python.
    """
    with _ONE_LOADS:
        return _loaded(target)


@cache
def _loaded(target: str) -> ctypes.CDLL:
    path = library_path(target)
    _check_processor(path)
    try:
        with _short_spinning():
            # Local, not global: the shim functions share their names with libtorch's.
            loaded = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        _declare(loaded)
    except OSError as error:
        again = _BUILD_AGAIN if "undefined symbol" in str(error) else ""
        raise SessionError(str(path), f"cannot be loaded: {error}", again) from error
    except AttributeError as error:  # ctypes says "...: undefined symbol: menagerie_x"
        name = str(error).rpartition(" ")[2]
        fact = f"lacks {name}: it was built from older sources than the Python beside it"
        raise SessionError(str(path), fact, _BUILD_AGAIN) from error
    if hasattr(loaded, "menagerie_emulator_configure"):
        from menagerie.emulator import configure

        configure(loaded)  # the emulated device, which replaces the GPU here
    return loaded


def _check_processor(path: Path, cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Raise SessionError if the processor lacks instructions that the library needs."""
    if not cpuinfo.is_file():
        return
    words = set(cpuinfo.read_text(encoding="utf-8", errors="replace").split())
    missing = [name for name in INSTRUCTIONS.get(platform.machine(), ()) if name not in words]
    if missing:
        raise SessionError(str(path), f"needs processor instructions {', '.join(missing)}")


@contextmanager
def _short_spinning() -> Iterator[None]:
    """Limit the spinning of libgomp's threads at a barrier to 60 us; it reads this when loaded.

    Its default is a hundred times longer: on a busy machine, waiting threads then use up the time
    that the awaited thread needs. A value that the user has set is kept.
    """
    if _SPIN_COUNT in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ[_SPIN_COUNT] = "3000"
    try:
        yield
    finally:
        os.environ.pop(_SPIN_COUNT, None)


def _declare(loaded: ctypes.CDLL) -> None:
    pointer, text, status = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    handle = ctypes.POINTER(pointer)
    number = ctypes.POINTER(ctypes.c_double)
    tensors, sizes = ctypes.POINTER(TensorView), ctypes.POINTER(ctypes.c_size_t)
    signatures: dict[str, tuple[object, list[object]]] = {
        "menagerie_version": (text, []),
        "menagerie_last_error": (text, []),
        "menagerie_bundle_open": (status, [text, handle]),
        "menagerie_bundle_open_signed": (status, [text, text, handle]),
        "menagerie_bundle_close": (None, [pointer]),
        "menagerie_bundle_verify": (status, [pointer]),
        "menagerie_program_open": (status, [pointer, text, ctypes.c_int32, handle]),
        "menagerie_program_close": (None, [pointer]),
        "menagerie_program_set_threads": (status, [pointer, ctypes.c_int32]),
        "menagerie_program_run": (
            status,
            [pointer, tensors, ctypes.c_size_t, tensors, ctypes.c_size_t],
        ),
        "menagerie_program_reset": (status, [pointer]),
        "menagerie_program_kernel_calls": (ctypes.c_uint64, [pointer]),
        "menagerie_machine_peaks": (status, [ctypes.c_int32, number, number]),
        "menagerie_program_set_profiling": (status, [pointer, ctypes.c_int]),
        "menagerie_program_kernel_times": (
            status,
            [pointer, ctypes.POINTER(KernelTimeView), ctypes.c_size_t, sizes],
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments


def last_error(target: str = "cpu") -> str:
    """Return the message of the library's last failed call in this thread."""
    message: bytes = library(target).menagerie_last_error()
    return message.decode(errors="replace")


def version(target: str = "cpu") -> str:
    """Return the version of the runtime and of its kernels, in one line."""
    text: bytes = library(target).menagerie_version()
    return text.decode()
