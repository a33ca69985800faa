"""The one list of shims against the library, torch's headers, and what is made of it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from shim_device import declared_by_torch
from torch.utils import cpp_extension

import menagerie
from menagerie.host import RUNTIME_ABI
from menagerie.library import library, library_path
from menagerie.shims import SHIMS_FILE, load, supported_symbols
from transforms.export.trace import packed_linear
from transforms.pipeline import make_passes

ROOT = SHIMS_FILE.parents[1]
SHIMS = load()


def _exported(library: Path) -> set[str]:
    listing = subprocess.run(
        [shutil.which("nm") or "nm", "-D", "--defined-only", "--format=posix", str(library)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {line.split()[0] for line in listing.splitlines()}


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_library_exports_exactly_the_list(target: str) -> None:
    """Every shim listed for a target is in its library, and nothing else but the C API is."""
    public = set(re.findall(r"\bmenagerie_\w+(?=\()", (ROOT / "include/menagerie.h").read_text()))
    if target == "metal":  # the device that replaces the GPU here, and its compiler
        public |= {f"menagerie_emulator_{name}" for name in ("configure", "mode", "prepare")}
    assert _exported(library_path(target)) == supported_symbols(target) | public


def test_every_shim_is_in_the_file_it_names() -> None:
    """`source` leads a reader to the implementation: by name, or by the macro that makes it."""
    for shim in SHIMS:
        text = (ROOT / shim.source).read_text()
        stem = re.sub(
            r"^(Sleef_|aoti_torch_(item|scalar_to_tensor)_)|(f8|d4)(_u\d+)?$", "", shim.name
        )
        body = re.sub(r"aoti_torch_\{device\}_(.+)", r"MENAGERIE_OPERATOR\(\1\)", shim.entry)
        assert re.search(rf"\b({body}(?=\W)|{stem}\b)", text), shim


def test_what_targets_share_has_no_duplicates() -> None:
    """No two entries of the list are one operator for two devices, and none is defined twice."""
    operators = {
        shim.name: re.sub(r"^aoti_torch_(cpu|mps)_", "", shim.entry)
        for shim in SHIMS
        if "{device}" not in shim.entry and re.match(r"aoti_torch_(cpu|mps)_", shim.name)
    }
    assert sorted(set(operators.values())) == sorted(operators.values())
    shared = [shim for shim in SHIMS if "{device}" in shim.entry]
    assert {shim.targets for shim in shared} == {("cpu",), ("metal",)}
    for shim in shared:
        body = f"MENAGERIE_OPERATOR({shim.entry.removeprefix('aoti_torch_{device}_')})("
        homes = [f for f in ROOT.rglob("*.cpp") if body in f.read_text()]
        assert homes == [ROOT / shim.source]


@pytest.mark.parametrize(("target", "device"), [("cpu", "cpu"), ("metal", "mps")])
def test_definitions_agree_with_torch(target: str, device: str, tmp_path: Path) -> None:
    """All compile along with the pinned torch's own headers, or the list's declarations."""
    listed = [shim for shim in SHIMS if target in shim.targets]
    headers = (
        "c/shim.h", "c/shim_cpu.h", "c/shim_mps.h",
        "generated/c_shim_cpu.h", "generated/c_shim_mps.h", "generated/c_shim_aten.h",
    )  # fmt: skip
    includes = [f"torch/csrc/inductor/aoti_torch/{name}" for name in headers]
    own = [f'extern "C" {shim.declaration};' for shim in listed if shim.parameters is not None]
    source = tmp_path / "all.cpp"
    source.write_text(
        "\n".join(
            [
                *(f"#include <{name}>" for name in (*includes, "common/shim_types.h")),
                *own,
                *(f"#include <{name}>" for name in sorted({shim.source for shim in listed})),
                "",
            ]
        )
    )
    folders = [*cpp_extension.include_paths("cpu"), ROOT, ROOT / "include"]
    done = subprocess.run(
        [
            shutil.which("c++") or "g++",
            *("-std=c++20", "-mavx2", "-w", "-fsyntax-only", f"-DMENAGERIE_DEVICE={device}"),
            *(f"-I{path}" for path in folders),
            str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {shim.name for shim in listed if shim.parameters is None} <= set(declared_by_torch())


def test_every_function_that_torch_has_not_is_declared_by_lowering() -> None:
    """A shim that is not declared could never be called; a misspelt one is found here."""
    make_passes(["fuse_epilogues"])  # imports all passes, and they declare theirs
    assert packed_linear is not None  # export declares torchao's
    for shim in SHIMS:
        if shim.parameters is None or shim.name.startswith(("menagerie_", "Sleef_")):
            continue
        operator = re.sub("^aoti_torch_(cpu|mps)_", "", shim.name)
        assert hasattr(torch.ops.torchao, operator) or hasattr(torch.ops.menagerie, operator)


@pytest.mark.parametrize(
    "name",
    [
        s.name
        for s in SHIMS
        if re.match(r"aoti_torch_(device_type|dtype|layout|memory_format)_", s.name)
    ],
)
def test_numbers_are_torchs(name: str) -> None:
    """Device types, dtypes, layouts and memory formats have the numbers that torch gives them."""
    theirs = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    arguments = [6] if name == "aoti_torch_dtype_element_size" else []
    for target in ("cpu", "metal"):
        assert getattr(library(target), name)(*arguments) == getattr(theirs, name)(*arguments)


def test_the_header_states_the_abi_that_python_knows() -> None:
    """Python and C speak of one runtime ABI."""
    text = (ROOT / "include/menagerie.h").read_text()
    assert f"#define MENAGERIE_RUNTIME_ABI {RUNTIME_ABI}\n" in text
    assert menagerie.RUNTIME_ABI == RUNTIME_ABI


def test_table_is_current(tmp_path: Path) -> None:
    """SHIMS.md is what `list_shims.py` makes of the list."""
    made = (ROOT / "SHIMS.md").read_text()
    listing = tmp_path / "SHIMS.md"  # of an older list
    listing.write_text(re.sub(r"^.*convolution.*\n", "", made, flags=re.MULTILINE))
    script = shutil.copy(ROOT / "list_shims.py", tmp_path)
    subprocess.run([sys.executable, script], check=True)
    assert listing.read_text() == made


def test_allow_list_holds_kernels_and_handles() -> None:
    """Lowering may use what the list gives its target, and nothing for a target without runtime."""
    assert "aoti_torch_cpu_convolution" in supported_symbols("cpu", computing=True)
    assert "aoti_torch_mps_convolution" in supported_symbols("metal", computing=True)
    for target in ("cpu", "metal"):
        assert supported_symbols(target, computing=True) < supported_symbols(target)
    assert supported_symbols("abacus") == frozenset()


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("returns = 'int32_t'", "f: .*missing.*doc"),
        ("doc = ''\nodd = 1", "f: .*odd"),
        ("doc = ''\neach = ['a', 'a']", "listed twice: f"),
    ],
)
def test_faulty_list_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    """A missing, unknown or repeated entry names itself."""
    path = tmp_path / "shims.toml"
    path.write_text(f"[kernels.'cpu/f.cpp'.f]\n{text}\n")
    with pytest.raises(ValueError, match=fact):
        load(path)


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_runtime_needs_neither_torch_nor_its_libraries(target: str) -> None:
    """Importing the runtime loads no torch, and its libraries need none of torch's."""
    code = "import sys, menagerie; menagerie.version(sys.argv[1]); print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    needed = subprocess.run(
        [shutil.which("ldd") or "ldd", str(library_path(target))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "torch" not in needed
    assert "not found" not in needed
