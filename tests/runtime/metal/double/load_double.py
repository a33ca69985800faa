"""Building the double, and loading it as if it were the Metal runtime."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import menagerie.library
from menagerie.emulator import configure

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[3]
_APPLE = _ROOT / "runtime" / "metal" / "apple"
FOLDER = _ROOT / "build" / "double"
NAME = "libmenagerie_metal.so"
COUNTS = ("dispatches", "encoders", "commits", "bytes", "operations")


def build_double() -> Path:
    """The library, built anew where its sources are newer; one process at a time.

    Raises:
        RuntimeError: it does not compile; the message is the compiler's.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    [built] = (path.parent for path in _ROOT.glob("build/py3-none-*/build.ninja"))
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / "build.ninja").is_file():
            _run("cmake", "-S", str(_HERE), "-B", str(FOLDER), "-G", "Ninja",
                 f"-DPython_EXECUTABLE={sys.executable}", f"-DMENAGERIE_BUILT={built}")  # fmt: skip
        _run("ninja", "-C", str(built), "menagerie_metal")
        _run("ninja", "-C", str(FOLDER), NAME)
    return FOLDER / NAME


def build_mistake(
    folder: Path, source: str, changes: Mapping[str, str], *, without: str = ""
) -> Path:
    """The double over an Apple device with a mistake in one of its sources.

    Args:
        folder: an empty one, for what is compiled.
        source: the file of metal/apple, without `.mm`.
        changes: texts of the file or of support.h, each with its replacement.
        without: a flag of the compiler to leave out.

    Raises:
        RuntimeError: it does not compile; the message is the compiler's.
    """
    changed = folder / "metal" / "apple"
    shutil.copytree(_APPLE, changed)
    for name in (f"{source}.mm", "support.h"):
        text = (changed / name).read_text()
        for before, after in changes.items():
            text = text.replace(before, after)
        (changed / name).write_text(text)
    before = "".join((_APPLE / f"{source}.mm").read_text() + (_APPLE / "support.h").read_text())
    if missing := [text for text in changes if text not in before]:
        raise ValueError(f"{source}.mm has no {missing}")
    compiled, linked = folder / f"{source}.o", folder / NAME
    command = _commands(f"apple_{source}.o").replace(
        str(FOLDER / f"apple_{source}.o"), str(compiled)
    )
    command = command.replace(str(_APPLE / f"{source}.mm"), str(changed / f"{source}.mm"))
    if without:
        command = command.replace(f" {without} ", " ")
    _run("sh", "-c", command.replace(" -I ", f" -I {folder} -I ", 1))
    link = _commands(NAME).replace(f"apple_{source}.o", str(compiled))
    _run("sh", "-c", link.replace(f"-o {NAME}", f"-o {linked}"), cwd=FOLDER)
    return linked


def _commands(target: str) -> str:
    """What ninja runs for one target alone."""
    return _run("ninja", "-C", str(FOLDER), "-t", "commands", "-s", target).splitlines()[-1]


def _run(*command: str, cwd: Path | None = None) -> str:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = [shutil.which(command[0], path=programs) or command[0], *command[1:]]
    done = subprocess.run(
        words, env={**os.environ, "PATH": programs}, capture_output=True, text=True, check=False,
        cwd=cwd,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


@cache
def load_double(path: Path) -> ctypes.CDLL:
    """The library, with the declarations of the C API and its compiler of shaders."""
    loaded = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    menagerie.library._declare(loaded)
    configure(loaded)
    loaded.menagerie_double_set.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    loaded.menagerie_double_count.argtypes = [ctypes.c_char_p]
    loaded.menagerie_double_count.restype = ctypes.c_int64
    return loaded


if __name__ == "__main__":
    print(build_double())
