"""The bill of materials is CycloneDX by its own schema, and says what is linked and pinned."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

from bundle_maker import draft, make_bundle

from menagerie.host import RUNTIME_ABI
from transforms.sbom import RUNTIME_PARTS, linked, sbom_document

ROOT = Path(__file__).parents[2]
SCHEMAS = Path(__file__).parent / "cyclonedx"  # of the CycloneDX project, Apache-2.0
VERSIONS = {"torch": "2.13.0+cpu", "compiler": "g++ 12.2.0", "menagerie": "0.2.0"}
METAL = {
    "target": "metal",
    "requires": {
        "system": "darwin", "machine": "arm64", "deployment_target": "15.0",
        "runtime_abi": RUNTIME_ABI,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    """Of CycloneDX 1.5, with the schemas it refers to."""
    schemas = {path.name: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    kept = [(name, Resource.from_contents(schema)) for name, schema in schemas.items()]
    kept += [(f"http://cyclonedx.org/schema/{name}", resource) for name, resource in kept]
    registry: Registry[Any] = Registry().with_resources(kept)
    return Draft7Validator(schemas["bom-1.5.SNAPSHOT.schema.json"], registry=registry)


def bill(folder: Path, **changes: Any) -> bytes:
    """Of the tiny bundle in `folder`, which is made."""
    make_bundle(folder)
    return sbom_document(folder, draft(**{"versions": VERSIONS, **changes}))


@pytest.mark.parametrize("changes", [{}, METAL, {"licence": "", "random_weights": None}])
def test_it_is_cyclonedx(
    validator: Draft7Validator, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """By the format's own schema; every reference is of something that is there."""
    found = json.loads(bill(tmp_path, **changes))
    assert not [error.message for error in validator.iter_errors(found)]
    there = {each["bom-ref"] for each in found["components"]}
    there.add(found["metadata"]["component"]["bom-ref"])
    graph = {each["ref"]: set(each["dependsOn"]) for each in found["dependencies"]}
    assert set(graph) == there
    assert set().union(*graph.values()) <= there


def test_the_validator_would_notice(validator: Draft7Validator, tmp_path: Path) -> None:
    """A licence that is no text, and a part without a name, are refused."""
    found = json.loads(bill(tmp_path))
    del found["components"][0]["name"]
    found["components"][1]["licenses"] = [{"expression": 7}]
    assert list(validator.iter_errors(found))


def test_it_names_the_library_by_its_bytes(tmp_path: Path) -> None:
    """And has the same bytes for the same bundle; the model, its build and licence are in it."""
    document = bill(tmp_path / "one")
    assert document == bill(tmp_path / "two")
    found = json.loads(document)
    [library] = [each for each in found["components"] if each["type"] == "file"]
    digest = hashlib.sha256(b"the library").hexdigest()
    assert library["hashes"] == [{"alg": "SHA-256", "content": digest}]
    model = found["metadata"]["component"]
    assert (model["name"], model["version"]) == ("tiny", "ab" * 32)
    assert model["licenses"] == [{"expression": "Apache-2.0"}]
    assert model["modelCard"]["modelParameters"]["inputs"] == [
        {"format": "main.x: float32 [1, length]"}
    ]


def test_each_platform_has_its_parts(tmp_path: Path) -> None:
    """libstdc++ inside what GCC links on Linux; oneDNN on x86-64; on a Mac, the system's libc++."""
    linux = {"system": "linux", "machine": "x86_64", "runtime_abi": RUNTIME_ABI}
    names = {part.name for part in linked(bill(tmp_path / "linux", requires=linux))}
    assert {"torch", "libstdc++", "libgomp", "oneDNN", "Monocypher", "nlohmann-json"} <= names
    arm = linked(bill(tmp_path / "arm", requires={**linux, "machine": "aarch64"}))
    assert "oneDNN" not in {part.name for part in arm}
    mac = {part.name: part for part in linked(bill(tmp_path / "mac", **METAL))}
    assert {"libstdc++", "libgomp", "oneDNN"}.isdisjoint(mac)
    assert (mac["torch"].version, mac["torch"].licence) == ("2.13.0+cpu", "BSD-3-Clause")


def test_versions_are_those_that_are_pinned() -> None:
    """In the runtime's build, and in the source that is compiled; each licence is in NOTICE."""
    json_part, monocypher, onednn = RUNTIME_PARTS
    build = (ROOT / "runtime/pyproject.toml").read_text()
    assert f"nlohmann-json=={json_part.version}" in build
    assert onednn.purl.rpartition("@")[2] in build
    source = ROOT / "runtime/third_party/monocypher/monocypher.c"
    assert f"Monocypher version {monocypher.version}" in source.read_text()
    assert hashlib.sha256(source.read_bytes()).hexdigest() == monocypher.sha256
    [stated] = re.findall(r"SPDX-License-Identifier: (.*)", source.read_text())[:1]
    assert stated == monocypher.licence
    notice = (ROOT / "runtime/NOTICE").read_text()
    for name in ("oneDNN 3.2", "Monocypher 4.0.3", "JSON for Modern C++ 3.12.0", "libgomp"):
        assert name in notice
