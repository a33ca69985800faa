"""Headers and objects: reused while all they read is the same, made anew when it is not."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from transforms.lowering.toolchain import Compiler, compiled_once, find_compiler, mach_compiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOUR = 3600


@pytest.fixture(params=[find_compiler, mach_compiler], ids=["host", "mach"])
def compiler(request: pytest.FixtureRequest) -> Compiler:
    """GCC as a rule, which does not look whether headers changed, and a clang, which refuses."""
    found: Compiler = request.param()
    return found


def answer_of(compiler: Compiler, place: Path, include: Path) -> bytes:
    """What the preprocessed and compiled use of the header `answer.h` is: an assembly text."""

    def run(arguments: list[str]) -> None:
        call = [compiler.path, *compiler.arguments, "-isystem", str(include), *arguments]
        subprocess.run(call, check=True, env=os.environ | dict(compiler.environment))

    header = compiled_once(place / "kept", "#include <answer.h>\n", run, is_header=True)
    source, assembly = place / "use.cpp", place / "use.s"
    source.write_text('extern "C" int answer() { return ANSWER; }')
    run(["-include", str(header), "-S", str(source), "-o", str(assembly)])
    return assembly.read_bytes()


def compiled_headers(place: Path) -> list[tuple[int, int]]:
    """Inode and time of each compiled header below `place`."""
    found = [path.stat() for path in place.rglob("*.gch")]
    return [(stat.st_ino, stat.st_mtime_ns) for stat in found]


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """A folder, with a space in its name, with answer.h, which includes number.h: 4321."""
    folder = tmp_path / "the $include"
    folder.mkdir()
    (folder / "answer.h").write_text('#pragma once\n#include "number.h"\n')
    (folder / "number.h").write_text("#define ANSWER 4321\n")
    return folder


def test_unchanged_header_is_compiled_once(
    compiler: Compiler, tmp_path: Path, include: Path
) -> None:
    """A second use finds the compiled header of the first."""
    first = answer_of(compiler, tmp_path, include)
    made = compiled_headers(tmp_path)
    assert answer_of(compiler, tmp_path, include) == first
    assert b"4321" in first
    assert compiled_headers(tmp_path) == made
    assert len(made) == 1


def test_changed_header_is_seen(compiler: Compiler, tmp_path: Path, include: Path) -> None:
    """Content that changed below an unchanged path, two includes deep, reaches what is compiled."""
    answer_of(compiler, tmp_path, include)
    (include / "number.h").write_text("#define ANSWER 56789\n")
    assert b"56789" in answer_of(compiler, tmp_path, include)


def test_reinstalled_header_is_no_error(compiler: Compiler, tmp_path: Path, include: Path) -> None:
    """The same content with another time, as a reinstalled wheel has it, compiles."""
    answer_of(compiler, tmp_path, include)
    os.utime(include / "number.h", (HOUR, HOUR))
    assert b"4321" in answer_of(compiler, tmp_path, include)


def test_an_object_is_made_anew_when_a_header_changes(tmp_path: Path, include: Path) -> None:
    """It is kept as long as all that it read is the same."""
    compiler = find_compiler()
    calls: list[list[str]] = []

    def run(arguments: list[str]) -> None:
        calls.append(arguments)
        subprocess.run([compiler.path, "-isystem", str(include), *arguments], check=True)

    def contents() -> bytes:
        text = '#include <answer.h>\nextern "C" { const int answer[] = {ANSWER}; }\n'
        return compiled_once(tmp_path / "kept", text, run).read_bytes()

    first = contents()
    assert (4321).to_bytes(4, "little") in first
    assert contents() == first
    assert len(calls) == 1
    (include / "number.h").write_text("#define ANSWER 56789\n")
    assert (56789).to_bytes(4, "little") in contents()


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda folder: (folder / "prelude.h.gch").unlink(),
        lambda folder: (folder / "stamps.json").unlink(),
        lambda folder: (folder / "stamps.json").write_text("{"),
    ],
    ids=["no header", "no stamps", "half the stamps"],
)
def test_corrupted_folder_is_made_anew(
    corrupt: Callable[[Path], object], tmp_path: Path, include: Path
) -> None:
    """A folder that an interrupted process or another version left is built again."""
    answer_of(find_compiler(), tmp_path, include)
    made = compiled_headers(tmp_path)
    corrupt(tmp_path / "kept")
    assert b"4321" in answer_of(find_compiler(), tmp_path, include)
    assert compiled_headers(tmp_path) != made
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {"prelude.h", "prelude.h.gch", "stamps.json"}
