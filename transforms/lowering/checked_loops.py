"""Lets a wrong index in a generated loop fail the run, where it would have ended the process."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["contain_faults"]

_CHECK = "AOTI_TORCH_CHECK("
_INCLUDE = "#include <torch/csrc/inductor/cpp_prefix.h>\n"
_FUNCTION = re.compile(r'^extern "C"[^{]*\{$', re.MULTILINE)
# A shared-out loop: its pragma, one head of a line for each loop that is collapsed, its body.
_LOOP = re.compile(r"^[ ]*#pragma omp for[^\n]*\n(?:[ ]*for\([^\n]*\)\n)+[ ]*\{\n", re.MULTILINE)


def contain_faults(kernels: str) -> str:
    """Keep what the bodies of parallel loops throw, and throw it at the end of their function.

    Inductor checks indices that come from data, an embedding's ids say, where it uses them. OpenMP
    allows no exception to leave a loop's body.

    Args:
        kernels: the C++ that Inductor wrote; see checked_loops.h for what is put in.
    """
    made = _FUNCTION.sub(lambda head: f"{head[0]}\0", kernels)
    head, *functions = made.split("\0")
    contained = [_contained(each) for each in functions]
    if contained == functions:
        return kernels
    header = Path(__file__).with_suffix(".h").read_text().replace("#pragma once\n", "")
    return "".join([head.replace(_INCLUDE, _INCLUDE + header, 1), *contained])


def _contained(function: str) -> str:
    """A function's body, and what follows it up to the next function's."""
    end = _closing(function, 0)
    body, rest = function[:end], function[end:]
    guarded, done = "", 0
    for loop in _LOOP.finditer(body):
        if loop.start() < done:
            continue
        close = _closing(body, loop.end())
        if _CHECK in body[loop.end() : close]:
            guarded += f"{body[done : loop.end()]}try {{\n{body[loop.end() : close]}"
            guarded += "} catch (...) { loop_fault.keep(); }\n"
            done = close
    if not done:
        return function
    return f"\n    LoopFault loop_fault;{guarded}{body[done:]}    loop_fault.rethrow();\n{rest}"


def _closing(text: str, start: int) -> int:
    """Where the brace stands that closes the block which `start` lies in; no text holds braces."""
    depth = 1
    for brace in re.finditer(r"[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start + brace.start()
    return len(text)
