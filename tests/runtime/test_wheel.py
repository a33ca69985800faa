"""The wheel that people install: small, for any Linux of the last years, and sufficient by itself."""

from __future__ import annotations

import ast
import functools
import html
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

from flows.cli import invoke
from flows.reports import how_to_get
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle, seal
from tasks.publish import publish_bundle
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    Bundles = Callable[[str], Path]

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))

import swift_server
from toy_zoo import toy_job
from web_server import serving

ROOT = Path(__file__).parents[2]
MOST_BYTES = 30_000_000
CARRIED = (
    "NOTICE", "include/menagerie.h", "examples/run.c", "lowering/cpp_wrapper.h", "shims.toml",
)  # fmt: skip
HEAVY = {"torch", "pydantic", "safetensors", "prefect", "boto3", "typer", "zoo", "flows"}


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel as `make wheel` builds it."""
    subprocess.run(
        [shutil.which("make") or "make", "--silent", "wheel"],
        cwd=ROOT,
        check=True,
        env=_without_make(),
    )
    [found] = (ROOT / "dist").glob("menagerie-*.whl")
    return found


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has numpy and the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    installed = Path(sysconfig.get_path("purelib"))
    for name in ("numpy", "numpy.libs"):  # nothing is fetched in a test
        (packages / name).symlink_to(installed / name)
    command = [sys.executable, "-m", "pip", f"--python={folder}/bin/python", "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", wheel], check=True)
    return folder / "bin"


def _empty_environment(folder: Path) -> Path:
    """The programs of an environment with pip and numpy, which nothing need fetch."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    for path in Path(sysconfig.get_path("purelib")).glob("numpy*"):
        (packages / path.name).symlink_to(path)
    return folder / "bin"


def _without_make() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}


def test_it_is_small_and_says_where_it_runs(wheel: Path) -> None:
    """Under 30 MB, any Python 3, glibc 2.28; with its header and the licences of what it carries."""
    assert re.fullmatch(r"menagerie-[\d.]+-py3-none-manylinux_2_28_x86_64\.whl", wheel.name)
    assert wheel.stat().st_size < MOST_BYTES
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"menagerie/{name}" for name in CARRIED} <= names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"menagerie"}


def test_its_libraries_ask_for_no_newer_glibc(wheel: Path, tmp_path: Path) -> None:
    """No symbol of a version above 2.28, and none of a C++ library that the machine must have."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    ours = list(tmp_path.rglob("libmenagerie_*.so"))
    for path in [*ours, *tmp_path.rglob("lib*.so.*"), *tmp_path.rglob("menagerie-run")]:
        listing = subprocess.run(
            [shutil.which("objdump") or "objdump", "-T", path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", listing)}
        assert max(versions) <= (2, 28), path.name
        if path in ours:
            assert "GLIBCXX" not in listing, path.name
    assert len(ours) == 2


def _menagerie(bare: Path, folder: Path, *arguments: str, **variables: str) -> str:
    """Run the wheel's command in a folder, which is its home too, and return what it prints."""
    done = subprocess.run(
        [bare / "menagerie", *arguments], capture_output=True, text=True, check=False, cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **variables},
    )  # fmt: skip
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def test_a_bare_environment_pulls_verifies_and_runs(
    bare: Path, bundles: Bundles, tmp_path: Path
) -> None:
    """Over HTTP, with nothing installed but numpy; the numbers are eager's."""
    folder = tmp_path / "made"
    shutil.copytree(bundles("image"), folder)
    seal(folder, replace(open_bundle(folder).manifest, state=ReleaseState.VALIDATED))
    store, keyring = open_store(str(tmp_path / "store")), Keyring.create(tmp_path / "keys")
    Promoter(store, keyring).promote(store.propose(folder))
    golden = load_file(folder / "programs/main/golden.safetensors")
    np.save(tmp_path / "x.npy", golden["0/input/image"])

    menagerie = functools.partial(_menagerie, bare, tmp_path)
    menagerie("trust", str(keyring.folder / "root.json"))
    with serving(tmp_path / "store") as server:
        menagerie("pull", "image", "--store", server.address, "-o", "out")
    assert "verified" in menagerie("verify", "out")
    menagerie("run", "out", "--input", "x.npy", "--output", "y.npy")
    np.testing.assert_allclose(
        np.load(tmp_path / "y.npy"), golden["0/output/out0"], rtol=1e-4, atol=1e-5
    )
    proof = subprocess.run(
        [bare / "menagerie-run", "out"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert proof.returncode == 0, proof.stdout + proof.stderr


def test_the_links_of_a_run_make_a_bundle(
    bare: Path, bundles: Bundles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its page prints works from outside: the zip file and the command.

    The link needs no key; the command names one, as the page says. The
    stage that publishes makes what is linked; a whole conversion would only take longer.
    """
    job = toy_job(tmp_path, model="image", store="s3://models/zoo")
    shutil.copytree(bundles("image"), job.bundle)
    draft = open_bundle(job.bundle).manifest
    seal(job.bundle, replace(draft, state=ReleaseState.VALIDATED, licence="Apache-2.0"))
    keyring = Keyring.create(tmp_path / "keys")
    trust = {"MENAGERIE_TRUST": str(keyring.folder / "root.json")}
    monkeypatch.setenv("MENAGERIE_KEYS", str(keyring.folder))
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "publisher"))
    for server in swift_server.running(tmp_path / "swift"):
        keys = {
            "AWS_ACCESS_KEY_ID": swift_server.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": swift_server.SECRET_KEY,
        }
        for name, value in {"AWS_ENDPOINT_URL_S3": server.http, **keys}.items():
            monkeypatch.setenv(name, value)
        store = open_store("s3://models/zoo")
        store.objects.ensure_bucket()  # type: ignore[attr-defined]
        publish_bundle(job)
        release = store.find("image", "cpu")
        page = how_to_get(store, release)

        [archive] = re.findall(r"\[as one zip file\]\((\S+)\)", page)
        urllib.request.urlretrieve(archive, tmp_path / "got.zip")  # noqa: S310
        zipfile.ZipFile(tmp_path / "got.zip").extractall(tmp_path / "by-zip")
        [command] = re.findall(r"^    (AWS_ENDPOINT_URL_S3=.*)$", page, re.MULTILINE)
        assert all(f"`{name}`" in page for name in keys)
        subprocess.run(
            ["/bin/sh", "-c", f"{command} -o by-command"],
            check=True,
            cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                **trust,
                "MENAGERIE_HOME": str(tmp_path / "home"),
                **keys,
            },
        )
    golden = load_file(bundles("image") / "programs/main/golden.safetensors")
    np.save(tmp_path / "x.npy", golden["0/input/image"])
    for name in ("by-zip", "by-command"):
        for arguments in (["verify", name], ["run", name, "--input", "x.npy"]):
            _menagerie(bare, tmp_path, *arguments, **trust)


def test_a_stranger_follows_the_first_lines_of_every_page(
    wheel: Path, bundles: Bundles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read over HTTP and run as printed in an empty environment; the model then proves itself."""
    folder = tmp_path / "made"
    shutil.copytree(bundles("image"), folder)
    seal(folder, replace(open_bundle(folder).manifest, state=ReleaseState.VALIDATED))
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "publisher"))
    monkeypatch.setenv("MENAGERIE_KEYS", str(tmp_path / "keys"))
    store = open_store(str(tmp_path / "store"))
    Promoter(store, Keyring.create(tmp_path / "keys")).promote(store.propose(folder))
    with serving(tmp_path / "store") as server:
        site = ("--address", server.address, "--wheel", str(wheel))
        assert invoke(["catalog", "--store", store.url, *site]) == 0
        for number, page in enumerate(("index.html", "models/image.html")):
            address = f"{server.address}/catalogue/{page}"
            with urllib.request.urlopen(address) as answer:  # noqa: S310 - our own server
                [lines] = re.findall(
                    r'id="first-lines"><code>(.*?)</code>', answer.read().decode(), re.DOTALL
                )
            stranger = tmp_path / f"stranger-{number}"
            stranger.mkdir()
            programs = _empty_environment(stranger / "venv")
            assert len(lines.splitlines()) == 3
            script = f"set -e\n{html.unescape(lines)}\nmenagerie verify image"
            done = subprocess.run(
                ["/bin/sh", "-c", script],
                capture_output=True,
                text=True,
                check=False,
                cwd=stranger,
                env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(stranger)},
            )
            assert done.returncode == 0, done.stderr
            assert "verified" in done.stdout


def test_help_imports_next_to_nothing(bare: Path) -> None:
    """Not even numpy is loaded before a command needs it."""
    code = (
        "import sys, menagerie, menagerie.cli\n"
        "try: menagerie.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print(sorted(({HEAVY!r} | {{'numpy', 'ctypes'}}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [bare / "python", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_python_3_10_can_read_every_module() -> None:
    """No newer syntax in what devices run; the type checker looks at the libraries' names."""
    for path in (ROOT / "runtime" / "menagerie").rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 10))
