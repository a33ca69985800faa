"""Bundles from outside: what the native reader refuses before it uses anything."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import platform
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import parse_manifest
from menagerie.host import RUNTIME_ABI
from menagerie.library import last_error, library

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = b"\0" * 16
HEADER = {
    "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "b": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]},
}


def safetensors(header: Any, data: bytes = WEIGHTS) -> bytes:
    """A safetensors file with the given header, padded so that the tensors are aligned."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def entry(path: str, data: bytes = b"", **more: Any) -> dict[str, Any]:
    """A manifest's entry of a file."""
    digest = hashlib.sha256(data).hexdigest()
    return {"path": path, "sha256": digest, "bytes": len(data), **more}


def manifest(**changes: Any) -> dict[str, Any]:
    """The manifest of a bundle of one program."""
    system, machine = platform.system().lower(), platform.machine()
    fields: dict[str, Any] = {
        "format": "menagerie-bundle",
        "version": 2,
        "model": "toy",
        "target": "cpu",
        "platform": f"cpu-{system}-{machine}",
        "runtime": "cpu",
        "requires": {
            "system": system,
            "machine": machine,
            "instructions": [],
            "runtime_abi": RUNTIME_ABI,
        },
        "programs": [
            {
                "name": "main",
                "files": {
                    "library": entry("programs/main/model.so", b"?"),
                    "golden": entry("programs/main/golden.safetensors", b"?"),
                },
                "golden_cases": 1,
                "inputs": [{"name": "x", "dtype": "float32", "shape": [1, "t"]}],
                "outputs": [{"name": "y", "dtype": "float32", "shape": [1, "?"]}],
                "dimensions": {"t": [2, 8, 2]},
                "constants": {"a": "a"},
                "symbols": [],
            }
        ],
        "tolerances": {"float32": {"absolute": 1e-4, "snr_db": 80.0}},
        "build_key": "0" * 64,
        "state": "lowered",
        "random_weights": None,
        "source": "a test",
        "licence": "none",
        "versions": {"torch": "2"},
        "created": "2030-01-31T12:00:00+00:00",
        "files": {"weights": entry("w.safetensors", safetensors(HEADER))},
    }
    return fields | changes


def write(folder: Path, fields: dict[str, Any] | bytes, weights: bytes | None = None) -> None:
    """Writes a bundle; other weights than the usual ones are listed."""
    files = {
        "w.safetensors": safetensors(HEADER) if weights is None else weights,
        "programs/main/model.so": b"?",
        "programs/main/golden.safetensors": b"?",
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    if isinstance(fields, dict) and weights is not None:
        fields = fields | {"files": {"weights": entry("w.safetensors", weights)}}
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    (folder / "manifest.json").write_bytes(text)


def fault_of(folder: Path, *, verify: bool = False) -> str:
    """What opening (and verifying) the bundle complains of; empty if nothing."""
    lib = library()
    bundle = ctypes.c_void_p()
    if lib.menagerie_bundle_open(str(folder).encode(), ctypes.byref(bundle)) != 0:
        return last_error()
    try:
        return last_error() if verify and lib.menagerie_bundle_verify(bundle) != 0 else ""
    finally:
        lib.menagerie_bundle_close(bundle)


def test_sound_bundle_opens(tmp_path: Path) -> None:
    """The case that all the broken ones are made of is itself in order."""
    write(tmp_path, manifest())
    assert fault_of(tmp_path, verify=True) == ""


SAFETENSORS_FAULTS: list[tuple[str, bytes, str]] = [
    ("short", b"\1\2", "is too short for a header"),
    ("long header", struct.pack("<Q", 1 << 40) + b"{}", "exceeds 100000000"),
    ("header past end", struct.pack("<Q", 99) + b"{}", "passes the end"),
    ("not an object", safetensors(b"[1]"), "does not begin with {"),
    ("not JSON", safetensors(b'{"a":'), "not JSON at byte"),
    ("twice", safetensors(b'{"__metadata__":{},"__metadata__":{}}', b""), "duplicate key"),
    ("metadata", safetensors({"__metadata__": {"k": 1}}, b""), "k is not a string"),
    ("dtype", safetensors({"a": HEADER["a"] | {"dtype": "F8_E4M3"}}), "dtype F8_E4M3 is not supported"),
    ("spare member", safetensors({"a": HEADER["a"] | {"x": 1}}), "members beside"),
    ("negative size", safetensors({"a": HEADER["a"] | {"shape": [-2]}}), "-2 is negative"),
    ("overflow", safetensors({"a": HEADER["a"] | {"shape": [2**62, 2**62]}}), "shape overflows"),
    ("fraction", safetensors({"a": HEADER["a"] | {"shape": [2.0]}}), "is not an integer"),
    ("mismatch", safetensors({"a": HEADER["a"] | {"shape": [3]}}), "shape needs 12 bytes"),
    ("backwards", safetensors({"a": HEADER["a"] | {"data_offsets": [8, 0]}}), "pass the end"),
    ("past end", safetensors({"a": HEADER["a"] | {"data_offsets": [16, 24]}}), "pass the end"),
    ("hole", safetensors({"b": HEADER["b"]}), "leave a hole at byte 0"),
    ("overlap", safetensors({"a": HEADER["a"], "b": HEADER["b"] | {"data_offsets": [0, 8]}}), "overlap"),
    ("tail", safetensors({"a": HEADER["a"]}), "tensors end at byte 8 of 16"),
    ("misaligned", safetensors({"c": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                                "a": HEADER["a"] | {"data_offsets": [1, 9]}}, b"\0" * 9), "not aligned"),
]  # fmt: skip


@pytest.mark.parametrize(("weights", "fact"), [f[1:] for f in SAFETENSORS_FAULTS])
def test_faulty_weights_are_refused(tmp_path: Path, weights: bytes, fact: str) -> None:
    """Each rule of safetensors, when broken, names the file and the rule."""
    write(tmp_path, manifest(), weights)
    fault = fault_of(tmp_path)
    assert fault.startswith(f"{tmp_path}/w.safetensors: ")
    assert fact in fault


def change(path: str, value: Any) -> dict[str, Any]:
    """The sound manifest with one member changed; a dotted path leads to it.

    The platform is what the manifest then requires, unless it is what is changed.
    """
    fields = copy.deepcopy(manifest())
    *parents, last = path.split(".")
    place: Any = fields
    for step in parents:
        place = place[int(step)] if step.isdigit() else place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    if parents == ["requires"] and last in {"system", "machine"}:
        fields["platform"] = "cpu-{system}-{machine}".format_map(fields["requires"])
    return fields


MANIFEST_FAULTS: list[tuple[str, Any, str]] = [
    ("format", "zip", "format is not menagerie-bundle"),
    ("version", 3, "version is 3; this runtime reads 2"),
    ("version", 1, "version is 1; this runtime reads 2"),
    ("model", None, 'manifest lacks "model"'),
    ("model", 3, "model is not a string"),
    ("runtime", "metal", "the bundle is for target metal"),
    ("requires.runtime_abi", 99, f"needs runtime ABI 99, this runtime has {RUNTIME_ABI}"),
    ("requires.system", "plan9", "the bundle is for plan9"),
    ("requires.machine", "pdp11", "on pdp11, this is"),
    ("requires.instructions", ["avx9000"], "needs processor instructions avx9000"),
    ("files.weights.path", "../w.safetensors", "is not a path inside the bundle"),
    ("files.weights.path", "/etc/passwd", "is not a path inside the bundle"),
    ("files.weights.path", "a//b", "is not a path inside the bundle"),
    ("files.weights.path", ".hidden", "is not a path inside the bundle"),
    ("files.weights.path", "a\\b", "is not a path inside the bundle"),
    ("files.weights.path", "a" * 201, "is not a path inside the bundle"),
    ("programs.0.files.library.path", "a/../../b", "is not a path inside the bundle"),
    ("programs.0.inputs", 7, "programs.inputs is not an array"),
    ("programs.0.inputs", [{"name": "x", "dtype": "float32", "shape": [-1]}], "size -1 is negative"),
    ("programs.0.inputs", [{"name": "x", "dtype": "float32", "shape": ["z"]}], "dimension z has no range"),
    ("programs.0.inputs", [{"name": "x", "dtype": "complex64", "shape": []}], "complex64 is not supported"),
    ("programs.0.inputs", [{"name": "x", "dtype": "bool", "shape": [1] * 17}], "too many axes"),
    ("programs.0.dimensions", {"t": [8, 2, 1]}, "is not a range"),
    ("programs.0.dimensions", {"t": [2, 8]}, "is not lowest, highest and step"),
    ("programs.0.constants", {"a": 1}, "programs.constants is not a string"),
    ("model", "Toy", 'model: "Toy" is not a name'),
    ("programs.0.name", "a-b", 'programs.name: "a-b" is not a name'),
    ("programs.0.golden_cases", 0, "golden_cases is less than 1"),
    ("programs.0.outputs", [{"name": "y", "dtype": "bool", "shape": []}] * 2, "duplicate name y"),
    ("programs.0.outputs", [], "programs.outputs is empty"),
    ("programs.0.inputs", [{"name": "x", "dtype": "bool", "shape": ["?"]}], "dimension ? has no range"),
    ("programs.0.symbols", [1], "programs.symbols is not a string"),
    ("programs.0.later", 1, 'programs has an unknown member "later"'),
    ("programs", [], "programs is empty"),
    ("requires.colour", "blue", 'requires has an unknown member "colour"'),
    ("tolerances", {"float32": {"absolute": 0}}, "tolerances.float32 is not positive"),
    ("build_key", "F" * 64, "is not a sha256"),
    ("state", "finished", 'state is "finished"'),
    ("versions", {"torch": 2}, "versions is not a string"),
    ("accuracy", {"output": "y"}, 'accuracy lacks "program"'),
    ("platform", None, 'manifest lacks "platform"'),
    ("runtime", "CPU", 'runtime: "CPU" is not a name'),
    ("later", 1, 'manifest has an unknown member "later"'),
    ("files", {"other": entry("w.safetensors")}, 'files lacks "weights"'),
    ("platform", "cpu-linux-pdp11", "platform is cpu-linux-pdp11, but it requires cpu-"),
    ("files.weights.path", "../w", "is not a path inside the bundle"),
    ("files.weights.path", None, 'files.weights lacks "path"'),
    ("files.weights.sha256", "0", 'files.weights.sha256: "0" is not a sha256'),
    ("files.weights.bytes", 5, "the manifest says 5"),
    ("files.weights.bytes", -1, "files.weights.bytes: size -1 is negative"),
    ("files.weights.mode", 7, 'files.weights has an unknown member "mode"'),
    ("files.weights.requires", {}, 'files.weights.requires lacks "system"'),
    ("files.weights.source_sha256", "0", "is not a sha256"),
    ("files.Weights", entry("w"), 'files: "Weights" is not a name'),
    ("files.other", entry("w.safetensors"), "w.safetensors is listed twice"),
    ("files.other", entry("W.safetensors"), "differs from another only in case"),
    ("files.other", entry("manifest.json"), "is not a path inside the bundle"),
    ("files.other", entry("gone"), "gone: No such file"),
    ("files", {f"f{i}": entry(f"f{i}") for i in range(10_001)}, "lists more than 10000"),
    ("files.accuracy", entry("a"), "of accuracy and files.accuracy only one is given"),
    ("programs.0.files.golden", None, 'programs.files lacks "golden"'),
    ("programs.0.files", [], "programs.files is not an object"),
    ("programs.0.files.other", entry("w.safetensors"), "w.safetensors is listed twice"),
    ("programs.0.files.shaders", entry("s"), "there are shaders, but no shader_header"),
    ("programs.0.files.emulation", entry("e"), "lacks requires or source_sha256"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "fact"), MANIFEST_FAULTS)
def test_faulty_manifest_is_refused(tmp_path: Path, path: str, value: Any, fact: str) -> None:
    """Each member that is missing, malformed or does not fit this machine is named."""
    write(tmp_path, change(path, value))
    fault = fault_of(tmp_path)
    assert fault.startswith(str(tmp_path))
    assert fact in fault
    assert "\n" not in fault


def test_a_role_that_only_another_runtime_knows_is_taken(tmp_path: Path) -> None:
    """A bundle lists what it likes."""
    fields = manifest()
    fields["files"]["other"] = entry("other")
    (tmp_path / "other").touch()
    write(tmp_path, fields)
    assert fault_of(tmp_path, verify=True) == ""


def _mutated(draw: random.Random, value: Any) -> Any:
    """The value with one thing changed somewhere inside: lost, doubled, or of another kind."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(sorted(value))
        kind = draw.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.15:
            return value | {"more": value[key]}
        return value | {key: _mutated(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], _mutated(draw, value[at]), *value[at + 1 :]]
    return draw.choice(
        [None, True, 0, -1, 2**63, 1.5, "", "x", "a/b", "A", "0" * 64, [], {}, [1], value]
    )


def test_both_readers_take_the_same_manifests(tmp_path: Path) -> None:
    """What Python refuses C++ does, and the other way round, but for dates: C++ reads none."""
    sound = manifest()
    write(tmp_path, sound)
    accepted = 0
    for seed in range(1500):
        document = json.dumps(_mutated(random.Random(seed), sound)).encode()  # noqa: S311 - a test that must repeat
        (tmp_path / "manifest.json").write_bytes(document)
        through_c = fault_of(tmp_path)
        refused_by_c = through_c.startswith(f"{tmp_path}/manifest.json: ")
        try:
            parse_manifest(document, "manifest.json")
            fault = ""
        except ArtifactError as error:
            fault = str(error)
        if "created: " in fault and "missing" not in fault and "not a text" not in fault:
            continue
        assert refused_by_c == (fault != ""), (seed, through_c, fault, document)
        accepted += fault == ""
    assert 50 < accepted < 1200


JSON_FAULTS: list[tuple[bytes, str]] = [
    (b"", "at byte 0: attempting to parse an empty input"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":' * 100_000, "nested too deeply"),
    (b'{"a":1,}', "at byte 7: syntax error while parsing object key"),
    (b'{"a" 1}', "at byte 5: syntax error while parsing object separator"),
    (b'{"a":1', "at byte 6: syntax error while parsing object - unexpected end of input"),
    (b'{"a":[1 2]}', "at byte 8: syntax error while parsing array"),
    (b'{"a":01}', "at byte 6: syntax error"),
    (b'{"a":+1}', "invalid literal"),
    (b'{"a":NaN}', "invalid literal"),
    (b'{"a":1.}', "expected digit after '.'"),
    (b'{"a":1e}', "expected '+', '-', or digit after exponent"),
    (b'{"a":99999999999999999999}', "a number out of range"),
    (b'{"a":"\\x"}', "forbidden character after backslash"),
    (b'{"a":"\\u12"}', "'\\u' must be followed by 4 hex digits"),
    (b'{"a":"\\ud800"}', "must be followed by U+DC00..U+DFFF"),
    (b'{"a":"\\udc00"}', "must follow U+D800..U+DBFF"),
    (b'{"a":"\n"}', "control character U+000A (LF) must be escaped"),
    (b'{"a":"b', "missing closing quote"),
    (b'{"a":"\xff"}', "ill-formed UTF-8 byte"),
    (b'{"a":"\xc0\x80"}', "ill-formed UTF-8 byte"),
    (b'{"a":"\xed\xa0\x80"}', "ill-formed UTF-8 byte"),
    (b'{"a":1} x', "at byte 8"),
    (b'{"a":1}\0', "at byte 7: a NUL"),
    (b'\xef\xbb\xbf{"a":1}', "at byte 0: a byte order mark"),
    (b'{"a":/**/1}', "invalid literal"),
]


@pytest.mark.parametrize(("text", "fact"), JSON_FAULTS)
def test_text_that_is_not_json_is_refused(tmp_path: Path, text: bytes, fact: str) -> None:
    """What RFC 8259 does not allow, or this format, is refused with the reason."""
    write(tmp_path, text)
    fault = fault_of(tmp_path)
    assert fault.startswith(f"{tmp_path}/manifest.json: not JSON")
    assert fact in fault
    assert fault.isprintable()


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    """Any bytes at all, as manifest or as weights, end in an error or are accepted."""
    folder = tmp_path_factory.mktemp("noise")
    write(folder, noise)
    assert fault_of(folder) != ""
    write(folder, manifest(), noise)
    assert fault_of(folder) != ""


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES, st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_json_value_is_read(
    tmp_path_factory: pytest.TempPathFactory, value: Any, ascii_only: bool
) -> None:
    """Whatever Python writes as JSON is read to its end: only the member's name is refused."""
    folder = tmp_path_factory.mktemp("value")
    write(folder, json.dumps(manifest(later=value), ensure_ascii=ascii_only).encode())
    unknown = 'manifest has an unknown member "later"; the bundle is damaged: pull it again'
    assert fault_of(folder).endswith(unknown)


def test_verifying_finds_a_changed_byte(tmp_path: Path) -> None:
    """A byte that changed after sealing, at equal length, is found by its hash."""
    write(tmp_path, manifest())
    path = tmp_path / "w.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert "has sha256" in fault_of(tmp_path, verify=True)


@pytest.mark.parametrize("length", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_sha256_is_the_standards(tmp_path: Path, length: int) -> None:
    """Digests are hashlib's at every length around the borders of a block."""
    content = bytes(i * 7 % 256 for i in range(length))
    write(tmp_path, manifest())
    (tmp_path / "extra").write_bytes(content)
    fields = json.loads((tmp_path / "manifest.json").read_bytes())
    fields["files"]["extra"] = entry("extra", content)
    write(tmp_path, fields)
    assert fault_of(tmp_path, verify=True) == ""


def test_unlisted_file_is_refused(tmp_path: Path) -> None:
    """What the manifest does not list is no part of a bundle, so it is not one; folders are."""
    write(tmp_path, manifest())
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    assert fault_of(tmp_path) == ""
    (tmp_path / "empty" / "extra").write_bytes(b"")
    assert fault_of(tmp_path) == f"{tmp_path}/empty/extra: the manifest does not list this file"


def test_symbolic_link_is_refused(tmp_path: Path) -> None:
    """A link could lead out of the bundle, so none is followed, not even to an equal file."""
    write(tmp_path, manifest())
    kept = (tmp_path / "w.safetensors").rename(tmp_path.with_suffix(".kept"))
    (tmp_path / "w.safetensors").symlink_to(kept)
    assert "is a symbolic link" in fault_of(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A folder without a manifest, or without the weights, says which file is missing."""
    assert f"{tmp_path}/manifest.json: cannot be opened: No such file" in fault_of(tmp_path)
    write(tmp_path, manifest())
    (tmp_path / "w.safetensors").unlink()
    assert f"{tmp_path}/w.safetensors: No such file" in fault_of(tmp_path)


def test_giant_manifest_is_refused(tmp_path: Path) -> None:
    """A manifest above the format's limit is not even parsed."""
    write(tmp_path, b" " * (8 * 2**20 + 1))
    assert "more than 8388608" in fault_of(tmp_path)
