"""A folder of `pull --standalone`: proves itself with nothing but a C library, and builds programs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flows.cli import invoke
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle, seal
from menagerie.host import RUNTIME_ABI
from menagerie.standalone import make_standalone
from menagerie.trust.roots import TRUST
from menagerie.validation import sandbox
from zoo.errors import UsageError
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import open_store

sys.path.insert(0, str(Path(__file__).parent / "format"))

from bundle_maker import make_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conftest import Specimen

    Bundles = Callable[[str], Path]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "runtime" / "examples"
# All of the system that it may ask for: the C library, and the C++ library that oneDNN was made for.
SYSTEM = (
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
    "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2",
)  # fmt: skip


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel as `make wheel` builds it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = [shutil.which("make") or "make", "--silent", "wheel"]
    subprocess.run(command, cwd=ROOT, check=True, env=kept)
    [found] = (ROOT / "dist").glob("menagerie-*.whl")
    return found


@pytest.fixture(scope="module")
def alone(wheel: Path, bundles: Bundles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed release of `image`, pulled so by the command."""
    place = tmp_path_factory.mktemp("alone")
    folder = place / "made"
    shutil.copytree(bundles("image"), folder)
    seal(folder, replace(open_bundle(folder).manifest, state=ReleaseState.VALIDATED))
    store, keyring = open_store(str(place / "store")), Keyring.create(place / "keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TRUST, str(keyring.folder / "root.json"))
        patch.delenv("MENAGERIE_ALLOW_UNSIGNED")
        Promoter(store, keyring).promote(store.propose(folder))
        order = ["pull", "image", "--store", store.url, "--standalone", "--runtime", str(wheel)]
        assert invoke([*order, "-o", str(place / "out")]) == 0
    return place / "out"


@pytest.fixture
def copy(alone: Path, tmp_path: Path) -> Path:
    """The folder, as it was carried to another place."""
    return Path(shutil.copytree(alone, tmp_path / "carried away"))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program in it, with an empty environment, from another folder."""
    return subprocess.run(
        [folder / "menagerie-run", *arguments],
        capture_output=True, text=True, check=False, env={}, cwd="/",
    )  # fmt: skip


def in_a_bare_root(folder: Path) -> list[str]:
    """The same where the machine has nothing but `SYSTEM`; as it is, without namespaces."""
    bwrap = sandbox._bubblewrap()
    if bwrap is None:
        return [str(folder / "menagerie-run")]
    command = [bwrap, "--unshare-all", "--die-with-parent", "--clearenv", "--proc", "/proc"]
    for name in SYSTEM:
        places = (Path(f"/lib/x86_64-linux-gnu/{name}"), Path(f"/lib64/{name}"))
        path = next(place for place in places if place.exists())
        folder_there = "/lib64" if name.startswith("ld-") else "/lib/x86_64-linux-gnu"
        command += ["--ro-bind", str(path.resolve()), f"{folder_there}/{name}"]
    return [*command, "--ro-bind", str(folder), "/app", "/app/menagerie-run", "--bench", "3"]


def test_it_proves_itself_with_an_empty_environment(copy: Path) -> None:
    """Signature by the keys beside it, hashes, golden cases; it measures, too."""
    done = run(copy, "--bench", "3")
    assert done.returncode == 0, done.stderr
    assert "ok" in done.stdout
    assert "median" in done.stdout


def test_it_needs_the_c_library_and_no_more(copy: Path) -> None:
    """In a root that has the C and C++ libraries alone: no shell, no Python, no other file."""
    done = subprocess.run(in_a_bare_root(copy), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ok" in done.stdout


def test_its_binaries_ask_for_glibc_2_28_at_most(copy: Path) -> None:
    """Every one, the model's own too; of the C++ library, what GCC 8 had (manylinux_2_28)."""
    found = [copy / "menagerie-run", *copy.glob("*.so*"), *copy.rglob("model.so")]
    assert len(found) == 5
    for path in found:
        listing = subprocess.run(
            [shutil.which("objdump") or "objdump", "-T", path],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for kind, most in (("GLIBC", (2, 28)), ("GLIBCXX", (3, 4, 25)), ("CXXABI", (1, 3, 11))):
            asked = re.findall(rf"\b{kind}_([\d.]+)", listing)
            versions = {tuple(map(int, each.split("."))) for each in asked}
            assert max(versions, default=(0,)) <= most, (path.name, kind)


@pytest.mark.parametrize("changed", ["bundle/programs/main/model.so", "bundle/manifest.json"])
def test_what_was_changed_is_not_run(copy: Path, changed: str) -> None:
    """By hash, or by signature: one line, and exit code 1."""
    path = copy / changed
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = run(copy)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_users_own_keys_go_before_those_beside_it(copy: Path, tmp_path: Path) -> None:
    """A user who names others does not trust what came along."""
    other = Keyring.create(tmp_path / "other")
    done = run(copy, "--trust", str(other.folder / "root.json"))
    assert done.returncode == 1
    assert "no trusted key has signed this bundle" in done.stderr
    shutil.rmtree(copy / "roots")
    assert run(copy).returncode == 1


def test_without_roots_or_a_bundle_beside_it_nothing_changes(copy: Path) -> None:
    """The program alone says that a bundle is missing."""
    shutil.rmtree(copy / "bundle")
    done = run(copy)
    assert done.returncode == 2
    assert "a bundle is missing" in done.stderr


def test_the_example_builds_and_runs(copy: Path, specimens: Mapping[str, Specimen]) -> None:
    """By the line in its head, which README.txt has too; on zeros it gives what PyTorch gives."""
    line = "cc examples/run.c -Iinclude -L. -lmenagerie_cpu -Wl,-rpath,'$ORIGIN' -o run"
    assert line in (copy / "examples" / "run.c").read_text()
    assert line in (copy / "README.txt").read_text()
    built = subprocess.run(
        [*shlex.split(line), "-Wall", "-Wextra", "-Werror"],
        cwd=copy, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [copy / "run", copy / "bundle", copy / "roots"],
        capture_output=True, text=True, check=False, env={},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [values] = [line.replace("[1, 40]", "").split()[1:] for line in done.stdout.splitlines()]
    with torch.no_grad():
        expected = specimens["image"].module(torch.zeros(1, 3, 20, 20))[0, :4].numpy()
    np.testing.assert_allclose(np.array(values, np.float32), expected, rtol=1e-4, atol=1e-5)
    refused = subprocess.run(
        [copy / "run", copy / "bundle", copy / "elsewhere"],
        capture_output=True, text=True, check=False, env={},
    )  # fmt: skip
    assert refused.returncode == 1
    assert "no trusted key" in refused.stderr


@pytest.mark.parametrize("carried", [True, False])
def test_the_text_beside_it_names_what_is_there(tmp_path: Path, carried: bool) -> None:
    """An older wheel has no example, and so the folder's README.txt names none."""
    own = tmp_path / "menagerie-1-py3-none-manylinux_2_28_x86_64.whl"
    names = ["menagerie-run", "libmenagerie_cpu.so", "libgomp.so.1", "NOTICE"]
    names += ["include/menagerie.h", *(["examples/run.c"] if carried else [])]
    with zipfile.ZipFile(own, "w") as packed:
        for name in names:
            packed.writestr(f"menagerie/{name}", "")
    requires = {"system": "linux", "machine": "x86_64", "runtime_abi": RUNTIME_ABI}
    fetch = partial(make_bundle, requires=requires)
    made = make_standalone(tmp_path / "out", fetch, own)
    text = (made / "README.txt").read_text()
    assert text.startswith("tiny for cpu-linux-x86_64, by itself")
    assert (made / "examples" / "run.c").is_file() == ("run.c" in text) == carried
    assert "takes include/menagerie.h and the library" in text


def test_the_example_is_a_program_in_cpp_too(tmp_path: Path) -> None:
    """As pages say."""
    command = [shutil.which("c++") or "c++", "-x", "c++", "-std=c++11", "-Wall", "-Werror", "-c"]
    done = subprocess.run(
        [*command, "-I", ROOT / "runtime/include", EXAMPLES / "run.c", "-o", tmp_path / "run.o"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_swifts_calls_are_those_of_the_header() -> None:
    """Each function there is, with as many arguments; each constant and type is declared."""
    header = re.sub(
        r"/\*.*?\*/", "", (ROOT / "runtime/include/menagerie.h").read_text(), flags=re.DOTALL
    )
    functions = {
        name: 0 if given.strip() == "void" else given.count(",") + 1
        for name, given in re.findall(r"\b(menagerie_\w+)\(([^)]*)\);", header)
    }
    source = re.sub(r"//.*", "", (EXAMPLES / "run.swift").read_text())
    calls = re.findall(r"\b(menagerie_\w+)\(((?:[^()]|\([^()]*\))*)\)", source)
    for name, given in calls:
        if name in functions:
            arguments = re.sub(r"\([^()]*\)", "", given)
            count = arguments.count(",") + 1 if arguments.strip() else 0
            assert count == functions[name], name
        else:
            assert re.search(rf"\}} {name};", header), name
    assert {name for name, _ in calls} >= {"menagerie_bundle_open_signed", "menagerie_program_run"}
    for constant in re.findall(r"\bMENAGERIE_\w+", source):
        assert constant in header


def test_what_cannot_be_standalone_is_refused(
    wheel: Path, bundles: Bundles, tmp_path: Path
) -> None:
    """A runtime made for this machine alone, another machine's wheel, no wheel, a Mac's bundle."""

    def fetch(place: Path) -> None:
        if not place.exists():
            shutil.copytree(bundles("image"), place)

    with pytest.raises(UsageError, match="built for this machine alone"):
        make_standalone(tmp_path / "a", fetch)
    other = tmp_path / "menagerie-1-py3-none-manylinux_2_28_aarch64.whl"
    with pytest.raises(UsageError, match="there is no such file"):
        make_standalone(tmp_path / "b", fetch, other)
    other.write_bytes(b"")
    with pytest.raises(UsageError, match="is not a wheel for x86_64"):
        make_standalone(tmp_path / "b", fetch, other)
    broken = tmp_path / "menagerie-1-py3-none-manylinux_2_28_x86_64.whl"
    broken.write_bytes(b"no zip")
    with pytest.raises(UsageError, match="cannot be read"):
        make_standalone(tmp_path / "c", fetch, broken)

    def fetch_metal(place: Path) -> None:
        shutil.copytree(bundles("image"), place)
        manifest = open_bundle(place).manifest
        mac = replace(manifest.requires, system="darwin")
        seal(place, replace(manifest, platform="", requires=mac))

    with pytest.raises(UsageError, match="is for Linux"):
        make_standalone(tmp_path / "d", fetch_metal, wheel)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith((".", "menagerie"))]
    # The next call for the same place does not meet the bundle of a refused one.
    make_standalone(tmp_path / "d", lambda place: shutil.copytree(bundles("image"), place), wheel)
