"""The compiler driver: clean libraries, cached headers, errors that say what the compiler said."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from transforms.lowering.toolchain import Compiler, Source, find_compiler
from zoo.errors import LoweringError
from zoo.progress import progress_to

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))


def test_sources_become_one_library(tmp_path: Path) -> None:
    """Two sources are compiled and linked; functions of both can be called."""
    library = tmp_path / "both.so"
    sources = [
        Source("one", 'extern "C" int one() { return 1; }', ("-fPIC",)),
        Source("two", 'extern "C" int one(), two(); int two() { return 1 + one(); }', ("-fPIC",)),
    ]
    find_compiler().link_library(sources, library, [])
    assert ctypes.CDLL(str(library)).two() == 2


def test_library_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    """`__FILE__` and debug information hold no absolute path of the build."""
    library = tmp_path / "file.so"
    text = 'extern "C" const char* file() { return __FILE__; }'
    find_compiler().link_library([Source("file", text, ("-fPIC", "-g"))], library, [])
    assert b"/tmp" not in library.read_bytes()
    assert str(tmp_path).encode() not in library.read_bytes()


def test_compiler_error_is_one_line_with_the_first_error(tmp_path: Path) -> None:
    """A fault in the source comes out as LoweringError; no half-made library stays behind."""
    library = tmp_path / "bad.so"
    with pytest.raises(LoweringError, match="no_such_name"):
        find_compiler().link_library(
            [Source("bad", "int f() { return no_such_name; }", ())], library, []
        )
    assert not library.exists()


def test_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the error names the packages."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    find_compiler.cache_clear()
    try:
        with pytest.raises(LoweringError, match=r"Install g\+\+"):
            find_compiler()
    finally:
        find_compiler.cache_clear()


def test_precompiled_header_is_made_once(tmp_path: Path) -> None:
    """The second reuses the first one's header; the first says so, also with others' headers."""
    (tmp_path / "home" / "headers" / "another").mkdir(parents=True)
    (tmp_path / "home" / "headers" / "another" / "prelude.h.gch").touch()
    steps: list[str] = []
    compiler: Compiler = find_compiler()
    source = Source("a", "std::string s;", ("-fPIC", "-std=c++20"), prelude="#include <string>\n")
    with progress_to(lambda step: steps.append(step.text if step.begins else "done")):
        compiler.link_library([source], tmp_path / "a.so", [])
    headers = list((tmp_path / "home" / "headers").rglob("*.gch"))
    stamp = [h.stat().st_mtime_ns for h in headers]
    with progress_to(lambda step: steps.append(step.text)):
        compiler.link_library([source], tmp_path / "b.so", [])
    assert steps == ["compiling torch's headers, once on this machine: a minute or more"]
    assert [h.stat().st_mtime_ns for h in headers] == stamp
    assert len(headers) == 2


def test_what_is_kept_is_compiled_once(tmp_path: Path) -> None:
    """The second library has the first one's object; other text or flags are other objects."""
    text = 'extern "C" int two() { return NUMBER; } const char* file() { return __FILE__; }'
    kept = Source("kept", text, ("-fPIC", "-DNUMBER=2"), kept=True)
    find_compiler().link_library([kept], tmp_path / "a.so", [])
    [found] = (tmp_path / "home" / "headers").rglob("*.o")
    made = found.stat().st_mtime_ns
    find_compiler().link_library([kept], tmp_path / "b.so", [])
    assert found.stat().st_mtime_ns == made
    assert ctypes.CDLL(str(tmp_path / "b.so")).two() == 2
    assert str(tmp_path).encode() not in (tmp_path / "b.so").read_bytes()
    other = Source("kept", text, ("-fPIC", "-DNUMBER=3"), kept=True)
    find_compiler().link_library([other], tmp_path / "c.so", [])
    assert ctypes.CDLL(str(tmp_path / "c.so")).two() == 3
