"""The native tool that proves a bundle where neither Python nor PyTorch is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from menagerie import version
from menagerie.format.bundle_manifest import parse_manifest
from menagerie.format.folder import open_bundle, seal
from menagerie.library import native_tool
from menagerie.session import Session
from menagerie.validation import validate

if TYPE_CHECKING:
    from collections.abc import Callable

    Bundles = Callable[[str], Path]
    Change = Callable[[Any], Any]

GOLDEN = "programs/main/golden.safetensors"
WEIGHTS = "w.safetensors"
LIBRARY = "programs/main/model.so"
UNSIGNED = {"MENAGERIE_ALLOW_UNSIGNED": "1"}


def tool() -> Path:
    """The built tool, next to the library it needs."""
    return native_tool()


def run(
    *arguments: object, stdout: int | IO[str] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """The tool in an empty environment, unsigned bundles allowed: no search path may help it."""
    command = [str(tool()), *map(str, arguments)]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, env=UNSIGNED
    )


def rows(output: str) -> list[list[str]]:
    """The table's lines in words: program, case, output, max abs, SNR, verdict."""
    return [line.split() for line in output.splitlines() if line.endswith(("ok", "DIFFERS"))]


def reseal(bundle: Path) -> None:
    """Seals the files that are in a bundle now."""
    document = (bundle / "manifest.json").read_bytes()
    seal(bundle, parse_manifest(document, "manifest.json"))


def flip_last_byte(path: Path) -> None:
    """Changes a file without changing its length."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def element(value: float, index: int = 0) -> Change:
    """A change of one element of a tensor."""

    def change(tensor: Any) -> Any:
        copy = tensor.copy()
        copy.flat[index] = value
        return copy

    return change


@pytest.fixture
def bundle(bundles: Bundles, tmp_path: Path) -> Path:
    """A bundle to corrupt; it has a floating output, out0, and one of integers, out1."""
    return Path(shutil.copytree(bundles("sequence"), tmp_path / "bundle"))


@pytest.mark.parametrize("name", ["image", "sequence"])
def test_sound_bundle_ends_with_a_table_and_0(bundles: Bundles, name: str) -> None:
    """Each output of each case has a line that says how near it came, and all are ok."""
    manifest = open_bundle(bundles(name)).manifest
    done = run("--threads", 1, bundles(name))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith(f"{manifest.model}, {version()}\n")
    program = manifest.programs[0]
    expected = [
        ["main", str(case), output.name]
        for case in range(program.golden_cases)
        for output in program.outputs
    ]
    table = rows(done.stdout)
    assert expected == [row[:3] for row in table]
    for row in table:
        assert float(row[3]) <= 1e-4
        assert float(row[4]) >= 80
        assert row[5] == "ok"


@pytest.mark.parametrize("threads", [0, 2])
def test_threads_make_no_difference(bundles: Bundles, threads: int) -> None:
    """With several threads, or as many as there are, the outputs are ok as well."""
    assert run("--threads", threads, bundles("image")).returncode == 0


def test_bench_prints_its_times(bundles: Bundles) -> None:
    """--bench adds a line of times in order and of as many runs as were given, and one of memory."""
    done = run("--bench", 5, "--program", "main", bundles("image"))
    assert done.returncode == 0, done.stderr
    line, memory = done.stdout.splitlines()[-2:]
    assert line.endswith("over 5 runs")
    assert memory.startswith("most memory ")
    minimum, median, p90 = (
        float(word) for word in line.split() if word[0].isdigit() and "." in word
    )
    assert 0 < minimum <= median <= p90


@pytest.mark.parametrize(
    ("tensor", "change", "differing"),
    [
        ("0/output/out0", element(1e6), "out0"),
        ("0/output/out0", element(np.nan, 7), "out0"),
        ("0/output/out0", element(np.inf, 7), "out0"),
        ("0/output/out0", lambda t: t[:, :-1], "out0"),
        ("0/output/out0", lambda t: t.astype(np.float64), "out0"),
        ("0/output/out1", lambda t: t + 1, "out1"),
        ("0/input/frames", lambda t: t * 2, "out0"),
    ],
    ids=["far", "NaN", "infinity", "shape", "dtype", "integer", "input"],
)
def test_differing_golden_ends_with_1(
    bundle: Path, tensor: str, change: Change, differing: str
) -> None:
    """A value, a NaN, a shape or a dtype that is not the golden one is reported; the rest is ok."""
    tensors = load_file(bundle / GOLDEN)
    save_file(tensors | {tensor: np.ascontiguousarray(change(tensors[tensor]))}, bundle / GOLDEN)
    reseal(bundle)
    done = run(bundle)
    assert done.returncode == 1
    verdicts = {row[2]: row[-1] for row in rows(done.stdout)}
    assert verdicts.pop(differing) == "DIFFERS"
    assert set(verdicts.values()) == {"ok"}


@pytest.mark.parametrize("file", [GOLDEN, LIBRARY, WEIGHTS])
def test_flipped_byte_is_found_before_anything_runs(bundle: Path, file: str) -> None:
    """A file that is not the sealed one is named; no table is begun."""
    flip_last_byte(bundle / file)
    done = run(bundle)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"menagerie-run: {bundle}/{file}: has sha256 ")
    assert len(done.stderr.splitlines()) == 1


def test_hashes_can_be_left_out_but_not_the_librarys(bundle: Path) -> None:
    """--no-hashes trusts the data; code is loaded only as sealed."""
    (bundle / "note.txt").write_text("one")
    reseal(bundle)
    (bundle / "note.txt").write_text("two")
    assert run(bundle).returncode == 1
    assert run("--no-hashes", bundle).returncode == 0
    flip_last_byte(bundle / LIBRARY)
    assert f"{LIBRARY}: has sha256" in run("--no-hashes", bundle).stderr


def test_golden_without_a_case_ends_with_1(bundle: Path) -> None:
    """A tensor that the manifest promises and the file lacks is named."""
    tensors = load_file(bundle / GOLDEN)
    del tensors["0/input/keep"]
    save_file(tensors, bundle / GOLDEN)
    reseal(bundle)
    done = run(bundle)
    assert done.returncode == 1
    assert 'has no tensor "0/input/keep"' in done.stderr


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ([], "a bundle is missing"),
        (["one", "two"], "only one bundle can be given"),
        (["--speed", "bundle"], "there is no option --speed"),
        (["bundle", "--threads"], "--threads needs a value"),
        (["--threads", "many", "bundle"], "--threads: many is not a number"),
        (["--threads", "-1", "bundle"], "--threads: -1 is not a number"),
        (["--threads", "1x", "bundle"], "--threads: 1x is not a number"),
        (["--bench", "99999999999", "bundle"], "--bench: 99999999999 is not a number"),
        ([""], "a bundle is missing"),
    ],
)
def test_misuse_ends_with_2(arguments: list[str], fact: str) -> None:
    """Wrong words say what is wrong and how the tool is called."""
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"menagerie-run: {fact}\nusage: menagerie-run ")
    assert done.stdout == ""


def test_help_goes_to_standard_output() -> None:
    """--help is no error."""
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: menagerie-run ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("arguments", [["--help"], ["{bundle}"], ["{bundle}", "--bench", "1"]])
def test_a_full_standard_output_ends_with_1(bundle: Path, arguments: list[str]) -> None:
    """A log of a proof that could not be written is none."""
    with Path("/dev/full").open("w") as full:
        done = run(*(each.format(bundle=bundle) for each in arguments), stdout=full)
    said = "menagerie-run: standard output takes no more. Send it to where there is room\n"
    assert (done.stderr, done.returncode) == (said, 1)


def test_what_is_no_bundle_ends_with_1(bundle: Path, tmp_path: Path) -> None:
    """A folder that is not there and a program that is not in it are facts, not misuse."""
    done = run(tmp_path / "nowhere")
    assert done.returncode == 1
    assert "nowhere/manifest.json: cannot be opened: No such file or directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = run("--program", "decoder", bundle)
    assert done.returncode == 1
    assert 'has no program "decoder"; it has: main' in done.stderr


def test_bundle_for_another_device_is_refused(bundle: Path) -> None:
    """A Metal bundle says where it can be proven instead, before anything of it is used."""
    path = bundle / "manifest.json"
    text = path.read_text().replace('"target": "cpu"', '"target": "metal"')
    text = text.replace('"platform": "cpu-', '"platform": "metal-')
    path.write_text(text.replace('"runtime": "cpu"', '"runtime": "metal"'))
    done = run(bundle)
    assert done.returncode == 1
    assert "is for target metal, this tool runs cpu. Use menagerie-run on" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_tool_needs_neither_python_nor_torch() -> None:
    """Everything it links is found, and is neither Python's nor PyTorch's."""
    command = [shutil.which("ldd") or "ldd", str(tool())]
    needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in needed.splitlines()]
    assert "libmenagerie_cpu.so" in names
    assert "not found" not in needed
    assert not [name for name in names if "python" in name or "torch" in name or "c10" in name]


def test_signatures_for_others_are_passed_by(bundles: Bundles, tmp_path: Path) -> None:
    """As every pulled release has one; whatever else is there is refused as before."""
    copy = tmp_path / "copy"
    shutil.copytree(bundles("image"), copy)
    (copy / "model.sig").write_text("{}")
    done = run(copy)
    assert done.returncode == 0, done.stderr
    with Session(copy, allow_unsigned=True) as session:
        assert session.inputs
    assert validate(copy).passed
    (copy / "other.sig").write_text("{}")
    assert "other.sig: the manifest does not list this file" in run(copy).stderr
