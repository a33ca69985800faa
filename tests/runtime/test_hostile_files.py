"""Bundles made to harm: the runtime refuses each by name and in one line, and never crashes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from menagerie.host import RUNTIME_ABI
from menagerie.library import library_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Edit = Callable[[dict[str, Any]], object]

ROOT = Path(__file__).parents[2]

# Opens each folder named on its standard input through the C API and through Session.
CHILD = """
import ctypes, json, sys
from menagerie.session import Session
from zoo.errors import SessionError
lib = ctypes.CDLL(sys.argv[1])
lib.menagerie_last_error.restype = ctypes.c_char_p
def through_c(folder):
    bundle, program = ctypes.c_void_p(), ctypes.c_void_p()
    if lib.menagerie_bundle_open(folder.encode(), ctypes.byref(bundle)):
        return lib.menagerie_last_error().decode()
    failed = lib.menagerie_program_open(bundle, b"main", 1, ctypes.byref(program))
    lib.menagerie_bundle_close(bundle)
    return lib.menagerie_last_error().decode() if failed else None
def through_python(folder):
    try:
        Session(folder).close()
    except SessionError as error:
        return str(error)
for folder in sys.stdin.read().splitlines():
    print(json.dumps([through_c(folder), through_python(folder)]), flush=True)
"""

# Flips, cuts and repeats pieces of one file of a bundle and opens it, so many times.
DAMAGE = """
import ctypes, json, pathlib, random, sys
lib = ctypes.CDLL(sys.argv[1])
folder, name, count = pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
whole, path = (folder / name).read_bytes(), folder / name
manifest = json.loads((folder / "manifest.json").read_bytes())
pieces = [b"{", b"[", b'"', b"-1", b"18446744073709551615", b"9223372036854775807", b"\\\\u",
          b"\\xff", b"\\0", b"1e9", b"null", b"[[[[", b",", b"0"]
for seed in range(count):
    print(seed, flush=True)
    draw, text = random.Random(seed), bytearray(whole)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text))
        kind = draw.randrange(4)
        if kind == 0: text[at] = draw.randrange(256)
        elif kind == 1: text[at:at] = draw.choice(pieces)
        elif kind == 2: del text[at : at + draw.randint(1, 8)]
        else: text[at:at] = text[draw.randrange(len(text)):][: draw.randint(1, 40)]
    path.write_bytes(text)
    if name != "manifest.json":
        [entry] = [e for e in manifest["files"].values() if e["path"] == name]
        entry["bytes"] = len(text)
        (folder / "manifest.json").write_text(json.dumps(manifest))
    bundle = ctypes.c_void_p()
    if lib.menagerie_bundle_open(str(folder).encode(), ctypes.byref(bundle)) == 0:
        lib.menagerie_bundle_close(bundle)
"""


def tensors(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file: a header (JSON, or its raw bytes) and the data behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    if isinstance(header, dict):  # padded as the format's own writer does, so that data is aligned
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(
    begin: object = 0, end: object = 16, shape: object = (2, 2), dtype: object = "F32"
) -> dict[str, Any]:
    """A tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def one(**changes: object) -> bytes:
    """A file of one tensor of 16 bytes, its entry changed."""
    return tensors({"w": entry() | changes}, bytes(16))


WEIGHTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too short for a header"),
    "header passes the end by one": (tensors(b"{}", length=3), "of 3 bytes passes the end"),
    "header of 2^63": (tensors(b"{}", length=2**63), "exceeds"),
    "header of 2^64-1": (tensors(b"{}", length=2**64 - 1), "exceeds"),
    "spaces first": (tensors(b" {}"), "does not begin with {"),
    "header cut short": (tensors(b'{"w":'), "unexpected end of input"),
    "text after header": (tensors(b"{}{}"), "expected end of input"),
    "tensor twice": (
        tensors(b'{"w":%s,"w":%s}' % ((json.dumps(entry()).encode(),) * 2), bytes(16)),
        "duplicate key",
    ),
    "same bytes twice": (tensors({"a": entry(), "b": entry()}, bytes(16)), "tensors overlap"),
    "hole": (tensors({"a": entry(), "b": entry(20, 36)}, bytes(36)), "tensors leave a hole"),
    "byte behind": (tensors({"a": entry()}, bytes(17)), "tensors end at byte 16 of 17"),
    "past the end by one": (tensors({"a": entry()}, bytes(15)), "pass the end"),
    "past the end by 2^62": (one(data_offsets=[2**62, 2**62 + 16]), "pass the end"),
    "negative offset": (one(data_offsets=[-16, 0]), "-16 is negative"),
    "offset of 2^64": (one(data_offsets=[0, 2**64]), "a number out of range"),
    "three offsets": (one(data_offsets=[0, 8, 16]), "data_offsets are not two"),
    "dtype of another width": (one(dtype="F64"), "shape needs 32 bytes"),
    "shape wraps to the right size": (one(shape=[2**62 + 1, 4]), "shape overflows"),
    "axis is text": (one(shape=["2", 2]), "is not an integer"),
    "shape is a number": (one(shape=4), "is not an array"),
    "entry is nothing": (tensors({"w": None}), "is not an object"),
    "dtype with a line break": (one(dtype="F\n\x1b[31m"), "is not supported"),
    "deep lists": (tensors(b'{"w":' + b"[" * 200_000), "nested too deeply"),
    "overlong UTF-8": (tensors(b'{"\xc0\xaf":1}'), "ill-formed UTF-8"),
}


def write_bundle(folder: Path, *, weights: bytes = tensors({}), edit: Edit = id) -> Path:
    """A bundle whose library is nonsense, all hashes right, its manifest edited at the end."""

    def written(name: str, data: bytes) -> dict[str, Any]:
        (folder / name).write_bytes(data)
        return {"path": name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}

    system, machine = platform.system().lower(), platform.machine()
    spec = {"name": "x", "dtype": "float32", "shape": [1, "n"]}
    manifest: dict[str, Any] = {
        "format": "menagerie-bundle", "version": 2, "model": "hostile", "target": "cpu",
        "build_key": "0" * 64, "state": "lowered", "runtime": "cpu",
        "platform": f"cpu-{system}-{machine}",
        "requires": {
            "system": system, "machine": machine, "instructions": [], "runtime_abi": RUNTIME_ABI,
        },
        "programs": [{
            "name": "main",
            "files": {
                "library": written("model.so", b"\x7fELF?"),
                "golden": written("golden.safetensors", b"?"),
            },
            "golden_cases": 1, "inputs": [spec], "outputs": [spec],
            "dimensions": {"n": [1, 9, 1]}, "constants": {}, "symbols": [],
        }],
        "accuracy": None, "tolerances": {}, "random_weights": 0, "source": "", "licence": "",
        "versions": {}, "created": "2030-01-31T12:00:00+00:00",
        "files": {"weights": written("weights.safetensors", weights)},
    }  # fmt: skip
    edited = edit(manifest)
    document = edited if isinstance(edited, bytes) else json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(document)
    return folder


def put(*path: str | int, value: object) -> Edit:
    """An edit that sets one member of the manifest."""

    def edit(manifest: dict[str, Any]) -> None:
        inner: Any = manifest
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return edit


def without(*path: str | int) -> Edit:
    """An edit that removes one member of the manifest."""

    def edit(manifest: dict[str, Any]) -> None:
        inner: Any = manifest
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]

    return edit


def text(change: Callable[[bytes], bytes]) -> Edit:
    """An edit of the manifest's bytes."""
    return lambda manifest: change(json.dumps(manifest).encode())


def in_program(name: str, value: object) -> Edit:
    """An edit of a member of the program."""
    return put("programs", 0, name, value=value)


def in_library(name: str, value: object) -> Edit:
    """An edit of the program's library in the list of files."""
    return put("programs", 0, "files", "library", name, value=value)


def in_axis(value: object) -> Edit:
    """An edit of the input's second axis."""
    return put("programs", 0, "inputs", 0, "shape", 1, value=value)


MANIFESTS: dict[str, tuple[Edit, str]] = {
    "empty": (text(lambda _: b""), "an empty input"),
    "a list": (text(lambda _: b"[]"), "is not an object"),
    "cut in half": (text(lambda t: t[: len(t) // 2]), "not JSON at byte"),
    "byte order mark": (text(lambda t: b"\xef\xbb\xbf" + t), "not JSON at byte 0"),
    "not UTF-8": (text(lambda t: t.replace(b"hostile", b"host\xff")), "ill-formed UTF-8"),
    "deep lists": (text(lambda _: b"[" * 1_000_000), "nested too deeply"),
    "deep objects": (text(lambda _: b'{"a":' * 1_000_000), "nested too deeply"),
    "key twice": (text(lambda t: t[:-1] + b', "version": 2}'), "duplicate key"),
    "inner key twice": (
        text(lambda t: t.replace(b'"requires": {', b'"requires": {"system": "linux", ')),
        "duplicate key",
    ),
    "too large": (text(lambda t: t + b" " * (8 << 20)), "more than 8388608"),
    "huge whole number": (text(lambda t: t.replace(b": 1,", b": 1" + b"0" * 400 + b",")), "range"),
    "huge number": (text(lambda t: t.replace(b": 1,", b": 1e999,")), "a number out of range"),
    "another format": (put("format", value="zip"), "format is not menagerie-bundle"),
    "a later version": (put("version", value=3), "version is 3"),
    "version as text": (put("version", value="1"), "version is not an integer"),
    "no programs": (without("programs"), 'lacks "programs"'),
    "programs no list": (put("programs", value={}), "programs is not an array"),
    "program no object": (put("programs", 0, value=3), "programs is not an object"),
    "another runtime": (put("runtime", value="tpu"), "is for target tpu"),
    "another program": (in_program("name", "side"), "has no program"),
    "path upwards": (in_library("path", "a/../../m"), "is not a path inside"),
    "absolute path": (in_library("path", "/etc/passwd"), "is not a path inside the bundle"),
    "path with NUL": (
        put("files", "weights", "path", value="weights\0"),
        "is not a path inside the bundle",
    ),
    "manifest in capitals": (in_library("path", "Manifest.JSON"), "is not a path inside"),
    "signature for others": (in_library("path", "model.sig"), "is not a path inside"),
    "folder named as the manifest": (in_library("path", "manifest.json/m"), "is not a path inside"),
    "folder named as a signature": (in_library("path", "Signature.json/m"), "is not a path inside"),
    "folder named as another": (in_library("path", "model.sig/m"), "is not a path inside"),
    "no library": (without("programs", 0, "files", "library"), 'lacks "library"'),
    "files a list": (put("files", value=[]), "files is not an object"),
    "negative size": (in_library("bytes", -1), "size -1 is negative"),
    "other digest": (in_library("sha256", "0" * 64), "has sha256"),
    "other size": (in_library("bytes", 7), "the manifest says 7"),
    "dtype a number": (put("programs", 0, "inputs", 0, "dtype", value=6), "is not a string"),
    "shape no list": (put("programs", 0, "inputs", 0, "shape", value="n"), "is not an array"),
    "fractional axis": (in_axis(1.5), "is not an integer"),
    "axis a boolean": (in_axis(value=True), "is not an integer"),
    "axis without range": (in_axis("m"), "dimension m has no range"),
    "many axes": (put("programs", 0, "inputs", 0, "shape", value=[1] * 17), "too many axes"),
    "range of step 0": (in_program("dimensions", {"n": [1, 9, 0]}), "is not a range"),
    "another ABI": (put("requires", "runtime_abi", value=2**62), "needs runtime ABI"),
    "line break in a name": (in_program("name", "a\nb\x1b[2J"), "is not a name"),
    "unknown member": (put("later", value=1), "has an unknown member"),
    "unlisted file": (
        put("programs", 0, "files", "golden", "path", value="model.so"),
        "model.so is listed twice",
    ),
    "library is no library": (id, "cannot be loaded"),
}

LINKS: dict[str, tuple[str, str]] = {
    "weights a link": ("weights.safetensors", "is a symbolic link"),
    "library a link": ("model.so", "is a symbolic link"),
}


def run_child(script: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A script in a fresh process that sees the project and nothing of the tests."""
    return subprocess.run(
        [sys.executable, "-c", script, str(library_path()), *arguments],
        input=given, capture_output=True, text=True, check=False,
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every hostile bundle by its case's name."""
    made = {}
    for kind, cases in (("weights", WEIGHTS), ("manifest", MANIFESTS), ("link", LINKS)):
        for name, (harm, _) in cases.items():
            folder = tmp_path_factory.mktemp("hostile")
            made[f"{kind}: {name}"] = folder
            if isinstance(harm, bytes):
                write_bundle(folder, weights=harm)
            elif isinstance(harm, str):
                write_bundle(folder)
                kept = (folder / harm).rename(folder.with_name(f"{folder.name}.kept"))
                (folder / harm).symlink_to(kept)
            else:
                write_bundle(folder, edit=harm)
    return made


@pytest.fixture(scope="module")
def answers(folders: Mapping[str, Path]) -> dict[str, list[str | None]]:
    """What the C API and Session say of each bundle; what a crash has prevented is absent."""
    said: dict[str, list[str | None]] = {}
    left = list(folders)
    while left:
        done = run_child(CHILD, given="\n".join(str(folders[name]) for name in left))
        lines = done.stdout.splitlines()
        said |= {name: json.loads(line) for name, line in zip(left, lines, strict=False)}
        left = left[len(lines) + 1 :]  # the next one is what it died of
    return said


CASES = [
    (f"{kind}: {name}", fact)
    for kind, cases in (("weights", WEIGHTS), ("manifest", MANIFESTS), ("link", LINKS))
    for name, (_, fact) in cases.items()
]


@pytest.mark.parametrize(("name", "fact"), CASES, ids=[name for name, _ in CASES])
def test_hostile_bundle_is_refused_in_one_line(
    name: str, fact: str, answers: Mapping[str, list[str | None]], folders: Mapping[str, Path]
) -> None:
    """C and Python both refuse, say why, and print nothing that could play with a terminal."""
    assert name in answers, "the process died of it"
    through_c, through_python = answers[name]
    assert through_c is not None
    assert fact in through_c
    assert through_python is not None
    assert str(folders[name]) in through_python
    assert through_c.isprintable()
    assert through_python.isprintable()


@pytest.mark.parametrize("file", ["manifest.json", "weights.safetensors"])
def test_random_damage_never_crashes(file: str, tmp_path: Path) -> None:
    """A file with bytes changed, cut out and put in is opened or refused, nothing else."""
    names = ("a", "b")
    weights = tensors({n: entry(16 * i, 16 * i + 16) for i, n in enumerate(names)}, bytes(32))
    folder = write_bundle(tmp_path, weights=weights)
    done = run_child(DAMAGE, str(folder), file, "1000")
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, f"seed {last}: {done.stderr}"
    assert last == "999"


def test_sound_bundle_opens(tmp_path: Path) -> None:
    """What the cases start from breaks no rule: only its nonsense library is refused, at last."""
    weights = tensors({"a": entry(), "b": entry(16, 16, [0, 3])}, bytes(16))
    done = run_child(CHILD, given=str(write_bundle(tmp_path, weights=weights)))
    through_c, _ = json.loads(done.stdout)
    assert "the model library cannot be loaded" in through_c
