"""Imports point one way, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT = Path(__file__).parent.parent
FLOORS = ("menagerie", "zoo", "transforms", "tasks", "flows")  # lowest first
FOLDERS = {"menagerie": ROOT / "runtime"}  # where a floor's package is, unless at the top

# Library -> where it may be imported at all, as beginnings of paths.
HOMES = {
    "prefect": ("flows/", "tasks/"),
    "torch": ("transforms/", "zoo/sources/", "zoo/models/"),
    "torchvision": ("transforms/", "zoo/sources/", "zoo/models/"),
    "transformers": ("transforms/", "zoo/sources/", "zoo/models/"),
    "boto3": ("menagerie/store/s3.py", "zoo/store/s3.py"),
    "botocore": ("menagerie/store/s3.py", "zoo/store/s3.py"),
    "pydantic": ("zoo/", "transforms/", "tasks/", "flows/"),
    "typer": ("flows/cli/",),
    "infra": ("nowhere",),  # it uses the floors, and `zoo cluster up` runs it as a program
}
HEAVY = ("torch", "prefect", "boto3", "transformers", "torchvision")


def place_of(file: Path) -> str:
    """A file's path below the folder that Python finds its package in."""
    packages = ROOT / "runtime"
    return file.relative_to(packages if packages in file.parents else ROOT).as_posix()


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    """Line and module of every import in a file, lazy ones and those for types included."""
    package = place_of(file).split("/")[:-1]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            yield node.lineno, ".".join([*above, *([node.module] if node.module else [])])


def all_imports() -> Iterator[tuple[str, int, str]]:
    """Path, line and module of every import in the five floors."""
    for floor in FLOORS:
        for file in sorted((FOLDERS.get(floor, ROOT) / floor).rglob("*.py")):
            for line, module in imports_of(file):
                yield place_of(file), line, module


def test_no_floor_imports_a_higher_one() -> None:
    """Flows -> tasks -> transforms -> zoo -> menagerie: never the other way, not even lazily."""
    breaches = [
        f"{path}:{line} imports {module}"
        for path, line, module in all_imports()
        if (top := module.split(".")[0]) in FLOORS
        and FLOORS.index(top) > FLOORS.index(path.split("/")[0])
    ]
    assert breaches == []


# Folder of C++ -> the folders that its files may include.
NATIVE = {
    "include": {"include"},
    "common": {"common", "include", "third_party"},
    "kernels": {"kernels", "common", "include"},
    "cpu": {"cpu", "kernels", "common", "include"},
    "metal": {"metal", "kernels", "common", "include"},
    "lowering": set(),  # it is compiled where there is no source of the runtime
}


def native_includes() -> Iterator[tuple[Path, str]]:
    """Each C++ file of the runtime below its folder, and the paths that it includes by name."""
    runtime = ROOT / "runtime"
    for folder in NATIVE:
        for file in sorted((runtime / folder).rglob("*")):
            if file.suffix in {".cpp", ".h", ".mm"}:
                for included in re.findall(
                    r'^#include "([^"]+/[^"]+)"', file.read_text(), re.MULTILINE
                ):
                    yield file.relative_to(runtime), included


def test_native_folders_include_one_way() -> None:
    """{cpu, metal} -> kernels -> common -> include; cpu and metal never meet."""
    breaches = [
        f"{file} includes {included}"
        for file, included in native_includes()
        if included.split("/")[0] not in NATIVE[file.parts[0]]
    ]
    assert breaches == []


def test_each_folder_of_kernels_is_read_alone() -> None:
    """No folder of kernels includes another one: what chooses among them is above them."""
    breaches = [
        f"{file} includes {included}"
        for file, included in native_includes()
        if file.parts[0] == "kernels"
        and included.startswith("kernels/")
        and len(parts := included.split("/")) > 2
        and parts[1] != file.parts[1]
        and file.name != "dispatch.cpp"
    ]
    assert breaches == []


def files_used(file: Path, known: Collection[str]) -> Iterator[str]:
    """The modules among `known` that a file imports: when it runs, lazily, or for its types."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from [name for name in (inner, node.module or "") if name in known][:1]


def test_no_files_form_a_circle() -> None:
    """No file imports one that leads back to it."""
    known = {
        place_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", "."): file
        for floor in (*FLOORS, "infra", "benchmarks")
        for file in (FOLDERS.get(floor, ROOT) / floor).rglob("*.py")
    }
    used = {name: set(files_used(file, known)) for name, file in known.items()}
    assert "menagerie.host" in used["menagerie.library"]  # the walk sees them
    TopologicalSorter(used).prepare()  # raises CycleError


@pytest.mark.parametrize(
    ("floor", "above", "below"),
    [("transforms", "passes", "graph"), ("zoo", "signing", "catalogue")],
)
def test_no_folders_of_a_floor_form_a_circle(floor: str, above: str, below: str) -> None:
    """A folder's files import none that lead back to the folder: one order serves all of them."""

    def home(path: str) -> str:  # a folder, or a file beside the folders
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")[:2]
        return "/".join(parts)

    used: dict[str, set[str]] = {}
    for path, _, module in all_imports():
        if path.startswith(f"{floor}/") and module.startswith(f"{floor}."):
            used.setdefault(home(path), set()).add(home(module.replace(".", "/")))
    assert f"{floor}/{below}" in used[f"{floor}/{above}"]  # the walk sees them
    TopologicalSorter({name: others - {name} for name, others in used.items()}).prepare()


def test_heavy_libraries_are_imported_only_at_home() -> None:
    """Prefect in flows and tasks, torch in transforms and sources, boto3 in the S3 store."""
    breaches = [
        f"{path}:{line} imports {module}"
        for path, line, module in all_imports()
        if (homes := HOMES.get(module.split(".")[0])) and not path.startswith(homes)
    ]
    assert breaches == []


def test_the_walk_sees_lazy_imports() -> None:
    """The two tests above are not empty: they see an import inside a function."""
    seen = {(path, module) for path, _, module in all_imports()}
    assert ("flows/cli/convert.py", "flows.convert") in seen


def loaded_after(code: str, home: Path, modules: Collection[str] = HEAVY) -> set[str]:
    """Which of `modules` a fresh interpreter has loaded after `code`."""
    probe = f"""
import json, sys
{code}
sys.stderr.write(json.dumps([m for m in {list(modules)!r} if m in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "MENAGERIE_HOME": str(home)},
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["list", "--json"],
        ["convert", "--help"],
        ["pull", "resnet18", "-o", "out"],  # an empty store: it looks, and finds nothing
        ["run", "no_such_folder", "--input", "x.npy"],
        ["verify", "no_such_folder"],
        ["report", "resnet18"],
        ["releases", "resnet18"],
        ["schema"],
        ["status"],
        ["down"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_need_no_torch_load_none(arguments: list[str], tmp_path: Path) -> None:
    """Help, list, pull, releases and their like start without torch, Prefect or boto3."""
    code = f"import flows.cli; flows.cli.invoke({arguments!r})"
    assert loaded_after(code, tmp_path) == set()


def test_help_builds_no_pydantic_models(tmp_path: Path) -> None:
    """The manifest's models take longer to build than the whole of `zoo --help`."""
    code = "import flows.cli; flows.cli.invoke(['--help'])"
    assert loaded_after(code, tmp_path, ["pydantic"]) == set()


@pytest.mark.parametrize("arguments", [["report", "resnet18"], ["releases", "resnet18"]])
def test_records_are_read_without_numpy(arguments: list[str], tmp_path: Path) -> None:
    """It takes a third of what such a command may: only what computes with it imports it."""
    code = f"import flows.cli; flows.cli.invoke({arguments!r})"
    assert loaded_after(code, tmp_path, ["numpy"]) == set()


@pytest.mark.parametrize(
    "module",
    [
        "flows.plan",
        "flows.prefect_api",
        "flows.cli.doctor",
        "menagerie.session",
        "menagerie.validation",
    ],
)
def test_modules_on_the_quick_path_load_nothing_heavy(module: str, tmp_path: Path) -> None:
    """What `zoo convert` does before it knows there is work, and all of the runtime."""
    assert loaded_after(f"import {module}", tmp_path) == set()
