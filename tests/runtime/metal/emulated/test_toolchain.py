"""Compiling shaders: errors name the place, what was made is kept, and never seen half made."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from emulated_device import EmulatedDevice, finding

from menagerie import compilers, emulator, shader_source
from menagerie.compilers import zig_program
from menagerie.library import library
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

F32 = np.float32


def kernel(number: int, body: str = "out[i] = {};") -> str:
    """A small kernel that no other test compiles."""
    return (
        "#include <metal_stdlib>\n\n"
        "kernel void store(device float* out, uint i [[thread_position_in_grid]]) {\n  "
        + body.format(number)
        + "\n}\n"
    )


@pytest.fixture
def device(emulated: EmulatedDevice, tmp_path: Path) -> Iterator[EmulatedDevice]:
    """The device with an empty cache of its own."""
    fresh = EmulatedDevice(tmp_path / "cache")
    yield fresh
    emulated.configure([str(zig_program())], emulated.cache)


def stored(device: EmulatedDevice, source: str) -> float:
    """What the kernel `store` stores."""
    out = device.buffer(np.zeros(1, F32))
    device.compile(source).run("store", [out], [1], [1])
    return float(out.read(F32)[0])


def test_environments_keep_what_zig_compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shared cache each would compile libc++ again. A Mac without the wheel has one too."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    here = compilers.zig_environment()
    monkeypatch.setattr("sys.prefix", "/elsewhere")
    assert here.keys() == compilers.zig_environment().keys()
    assert not {*here.values()} & {*compilers.zig_environment().values()}


def test_compiler_error_names_the_line(device: EmulatedDevice) -> None:
    """A wrong shader is refused with the compiler's first error at its own line, and leaves nothing."""
    said = finding(lambda: device.compile(kernel(1, "out[i] = no_such_name;")))
    assert "the Metal source does not compile: kernels.metal:4:" in said
    assert "no_such_name" in said
    assert [path.name for path in device.cache.iterdir()] == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "kernel void f(device float* a, uint i [[amplification_id]]) {}",
            "line 1: kernel f, parameter i: the attribute amplification_id is not emulated",
        ),
        (
            "\nkernel void f(device float* a [[buffer(31)]]) {}",
            "line 2: kernel f, parameter a: buffer(31) is not one of 0 to 30",
        ),
        (
            "kernel void f(threadgroup float* a [[texture(0)]]) {}",
            "the attribute texture is not emulated",
        ),
        ('#include "mine.h"\n', "kernels.metal:1:10: fatal error: 'mine.h' file not found"),
        ("kernel void f(device float* a {", "line 1: ( is never closed"),
        (
            f"kernel void f({', '.join(f'device int* a{i}' for i in range(32))}) {{}}",
            "kernel f: has more than 31 buffers",
        ),
        (
            'template [[host_name("g")]] kernel void f<float>(device float* a);',
            "line 1: no kernel template f comes before its instantiation",
        ),
        (
            'template [[host_name("g")]] [[kernel]] decltype(f<float>) f<float>;',
            "line 1: no kernel template f comes before its instantiation",
        ),
        (
            f"kernel void f(device float* a [[buffer({'1' * 5000})]]) {{}}",
            "is not one of 0 to 30",
        ),
        ("namespace a { " * 65 + "}" * 65, "namespaces are nested too deeply"),
        (f"namespace {'a' * 999} {{ }}", "or have too long names"),
        (f"void f() {{ threadgroup {'a ' * 501}; }}", "a threadgroup variable's type is too long"),
    ],
)
def test_what_is_not_known_is_refused(device: EmulatedDevice, source: str, words: str) -> None:
    """Constructs that the emulator does not know are named with their line."""
    assert words in finding(lambda: device.compile(source))


def steps(source: str) -> int:
    """How many lines of the translator run for a text, refused or not."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == shader_source.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(MenagerieError):
            shader_source.translate(source)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        ("void f() {", "threadgroup a < "),
        ("void f() {", "threadgroup a "),
        ("template<T> kernel void a() {} ", 'template [[host_name("a")]] kernel void a<b>() '),
        (
            "template<T> kernel void a() {} ",
            'template [[host_name("a")]] [[kernel]] decltype(a<b>) ',
        ),
    ],
)
def test_a_text_is_translated_in_linear_time(start: str, repeated: str) -> None:
    """Twice the text takes twice the work, where it is hostile too."""
    assert steps(start + repeated * 800) < 2.5 * steps(start + repeated * 400)


def test_a_text_too_long_is_not_translated() -> None:
    """Macros of macros make any length of a few lines."""
    with pytest.raises(MenagerieError, match="more than 33554432 characters"):
        shader_source.translate(" " * (2**25 + 1))


def test_buffers_without_an_index_take_the_lowest_that_is_free(device: EmulatedDevice) -> None:
    """As Metal's compiler gives them out: `value` is argument 0 here."""
    shaders = device.compile("""
        kernel void fill(device float* out [[buffer(1)]], constant float& value,
                         uint i [[thread_position_in_grid]]) { out[i] = value + .5e-1; }
    """)
    out = device.buffer(np.zeros(2, F32))
    shaders.run("fill", [device.buffer(np.array([1.5], F32)), out], [2], [1])
    assert out.read(F32).tolist() == np.full(2, 1.5 + F32(0.05), F32).tolist()


@pytest.mark.parametrize(
    ("declared", "floats"),
    [
        ("a[1 << 3]", 8),
        ("a[1 << 3], b", 9),
        ("b, a[2][16 >> 2]", 9),
        ("a[(4 >= 2) ? 8 : 4]", 8),
        ("a[sizeof(float) == 4 ? 8 : 4]", 8),
    ],
)
def test_extents_of_threadgroup_arrays_are_expressions(
    device: EmulatedDevice, declared: str, floats: int
) -> None:
    """Operators of two characters stay whole, and every variable is declared."""
    sizes = " + ".join(f"sizeof({name})" for name in ("ab" if "b" in declared else "a"))
    body = f"threadgroup float {declared}; out[i] = ({sizes}) / sizeof(float);"
    assert stored(device, kernel(0, body)) == floats


def test_a_fault_of_the_translation_is_reported(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Python raises while a shader is compiled is said, not called an interruption."""

    def broken(_: str) -> str:
        raise IndexError("pop from an empty list")

    monkeypatch.setattr(emulator, "translate", broken)
    said = finding(lambda: device.compile(kernel(9)))
    assert "IndexError: pop from an empty list" in said


def test_unknown_kernel(device: EmulatedDevice) -> None:
    """A name that the library lacks is refused, and the names it has are listed."""
    shaders = device.compile(kernel(2))
    said = finding(lambda: shaders.run("stor", [], [1], [1]))
    assert "the shader library has no kernel stor; it has store" in said


def test_what_was_compiled_is_kept(device: EmulatedDevice) -> None:
    """The same text is compiled once; another text, or another compiler, is not mistaken for it."""
    assert stored(device, kernel(3)) == 3
    (made,) = device.cache.iterdir()
    before = made.stat().st_mtime_ns
    assert stored(device, kernel(3)) == 3
    assert stored(device, kernel(4)) == 4
    assert made.stat().st_mtime_ns == before
    assert len(list(device.cache.iterdir())) == 2
    device.configure(["/nowhere/clang"], device.cache)
    assert "the compiler /nowhere/clang cannot be started" in finding(
        lambda: device.compile(kernel(3))
    )


def test_damaged_cache(device: EmulatedDevice) -> None:
    """A compiled shader that cannot be loaded is made anew."""
    shaders = device.compile(kernel(5))
    (made,) = device.cache.iterdir()
    del shaders
    made.unlink()
    made.write_bytes(b"\x7fELF, but not quite")
    assert stored(device, kernel(5)) == 5


def test_nothing_is_taken_from_a_cache_that_others_write(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library there runs as this user: whose folder it is, is checked before it is looked for."""
    assert stored(device, kernel(9)) == 9
    assert device.cache.stat().st_mode & 0o777 == 0o700
    device.cache.chmod(0o770)
    assert "others may write into it" in finding(lambda: device.compile(kernel(9)))
    device.cache.chmod(0o700)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert "others may write into it" in finding(lambda: device.compile(kernel(9)))


def test_a_link_is_no_kept_library(device: EmulatedDevice, tmp_path: Path) -> None:
    """It may lead to a file that another user changes: it is made anew, and the file left alone."""
    assert stored(device, kernel(10)) == 10
    (made,) = device.cache.iterdir()
    elsewhere = made.replace(tmp_path / "elsewhere.so")
    made.symlink_to(elsewhere)
    before = elsewhere.stat()
    assert stored(device, kernel(10)) == 10
    assert not made.is_symlink()
    assert elsewhere.stat() == before


_COMPILE = """
import sys
from pathlib import Path
folders, cache, source, *compiler = sys.argv[1:]
sys.path[:0] = folders.split(":")
from emulated_device import EmulatedDevice
device = EmulatedDevice(Path(cache))
device.configure(compiler, Path(cache))
device.compile(Path(source).read_text())
"""


def compiling_process(cache: Path, source: Path, *compiler: str) -> subprocess.Popen[bytes]:
    """A process that compiles and ends."""
    folders = f"{Path(__file__).parent}:{Path(__file__).parents[4]}"
    command = [sys.executable, "-c", _COMPILE, folders, str(cache), str(source), *compiler]
    return subprocess.Popen(command)


def test_processes_side_by_side(device: EmulatedDevice, tmp_path: Path) -> None:
    """Processes may compile the same text at once; one of them makes it, all can use it."""
    source = tmp_path / "store.metal"
    source.write_text(kernel(6))
    processes = [compiling_process(device.cache, source, str(zig_program())) for _ in range(2)]
    assert stored(device, kernel(6)) == 6
    assert [process.wait() for process in processes] == [0, 0]
    assert [path.suffix for path in device.cache.iterdir()] == [".so"]


def test_killed_while_compiling(device: EmulatedDevice, tmp_path: Path) -> None:
    """A process killed in the middle leaves nothing for long, and nothing that looks compiled."""
    source, started, held = (tmp_path / name for name in ("store.metal", "started", "held"))
    source.write_text(kernel(8))
    os.mkfifo(started)
    os.mkfifo(held)
    script = f"echo > '{started}'; read line < '{held}'"
    process = compiling_process(device.cache, source, "/bin/sh", "-c", script)
    started.read_bytes()  # the compiler runs, and waits
    process.kill()
    process.wait()
    held.write_bytes(b"\n")  # lets the orphan end
    assert list(device.cache.glob("*.so")) == []
    assert stored(device, kernel(8)) == 8
    assert [path.suffix for path in device.cache.iterdir()] == [".so"]


def test_configured_from_python(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compiled shaders are in Menagerie's home; without the wheel an error says what to install."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path))
    emulator.configure(library("metal"))
    assert stored(device, kernel(7)) == 7
    assert len(list(tmp_path.glob("emulator/ziglang-*/*.so"))) == 1
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MenagerieError, match="pip install ziglang"):
        emulator.configure(library("metal"))
