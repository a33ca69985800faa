"""Runs the suites with their memory watched: by AddressSanitizer, or filled with one byte.

AddressSanitizer sees what generated code reads and writes, in the proof's worker too, so every
process has its library. A runtime is opened with `RTLD_DEEPBIND` and in bounded memory, which the
sanitizer refuses and cannot live in: a library before it takes both away.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

_KEPT = ("LD_PRELOAD", "ASAN_OPTIONS", "MALLOC_PERTURB_")
_BYTE = "165"  # of which malloc'd memory is made: no small number in any dtype
_OPTIONS = "detect_leaks=0:verify_asan_link_order=0:exitcode=97:allocator_may_return_null=1"
_RELAXED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/resource.h>

void* dlopen(const char* path, int flags) {
  void* (*next)(const char*, int) = dlsym(RTLD_NEXT, "dlopen");
  return next(path, flags & ~RTLD_DEEPBIND);
}

int setrlimit64(__rlimit_resource_t which, const struct rlimit64* limit) {
  int (*next)(__rlimit_resource_t, const struct rlimit64*) = dlsym(RTLD_NEXT, "setrlimit64");
  return which == RLIMIT_DATA ? 0 : next(which, limit);
}
"""


class Memory(StrEnum):
    """How memory is watched."""

    ADDRESS = "address"  # by AddressSanitizer: generated code alone is instrumented
    FILLED = "filled"  # malloc gives memory of one byte, and free leaves its complement


# ruff: noqa: S606, S607 - a developer's own compiler, and this program again


def watch(memory: Memory, folder: Path) -> None:
    """Start this program again in an environment that watches memory; return once it is there."""
    if any(name in os.environ for name in _KEPT):
        return
    words = [sys.executable, "-m", "tests.suites", *sys.argv[1:]]
    os.execve(sys.executable, words, os.environ | environment(memory, folder))


def environment(memory: Memory, folder: Path) -> dict[str, str]:
    """Return variables of an environment that watches memory.

    Args:
        memory: how.
        folder: for the compiler and the library that AddressSanitizer needs, below `sys.prefix`,
            which the proof's sandbox can read.
    """
    return {"MALLOC_PERTURB_": _BYTE} if memory is Memory.FILLED else _address(folder)


def _address(folder: Path) -> dict[str, str]:
    """Make a compiler that instruments code, and return the environment that goes with it."""
    found = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    source, relaxed, compiler = (folder / name for name in ("relaxed.c", "relaxed.so", "compiler"))
    source.write_text(_RELAXED)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", relaxed, "-ldl"], check=True)
    flags = "-fsanitize=address -fno-omit-frame-pointer"
    # Without its library in the compiler; the version is a part of what compiled headers are for.
    compiler.write_text(
        "#!/bin/sh\nunset LD_PRELOAD\n"
        f'test "$1" = --version && {{ g++ --version | sed "1s/$/ address/"; exit; }}\n'
        f'exec g++ {flags} "$@"\n'
    )
    compiler.chmod(0o755)
    preload = f"{relaxed}:{Path(found).resolve()}"
    return {"CXX": str(compiler), "LD_PRELOAD": preload, "ASAN_OPTIONS": _OPTIONS}


def keep() -> None:
    """Let the proof's worker have the environment that watches memory."""
    validate = importlib.import_module("menagerie.validation.validate")
    validate._KEPT_VARIABLES = (*validate._KEPT_VARIABLES, *_KEPT)
