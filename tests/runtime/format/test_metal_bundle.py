"""What a bundle for Metal has besides: shaders, their header, and a twin to emulate it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import FILES, draft, write_files

from menagerie.format.folder import open_bundle, seal
from menagerie.typed_json import Malformed, plain
from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

METAL_FILES = FILES | {
    "programs/main/model.dylib": b"the library for Macs",
    "programs/main/model.linux-x86_64.so": b"its twin",
    "programs/main/kernels.metal": b"kernel void k() {}",
    "shaders.h.metal": b"// all kernels' header",
}


def _fields() -> dict[str, Any]:
    """The fields of a Metal bundle's manifest that differ from a CPU's."""
    program = plain(draft().programs[0])
    program |= {
        "library": "programs/main/model.dylib",
        "shaders": "programs/main/kernels.metal",
        "emulation": {
            "library": "programs/main/model.linux-x86_64.so",
            "source_sha256": "cd" * 32,
            "requires": {"system": "linux", "machine": "x86_64", "runtime_abi": 1},
        },
    }
    requires = {"system": "darwin", "machine": "arm64", "runtime_abi": 1}
    return {
        "target": "metal",
        "state": "emulated",
        "requires": requires | {"deployment_target": "15.0"},
        "programs": [program],
        "shader_header": "shaders.h.metal",
    }


def test_what_is_sealed_opens_unchanged(tmp_path: Path) -> None:
    """Every field of Metal survives the way through manifest.json."""
    write_files(tmp_path, METAL_FILES)
    sealed = seal(tmp_path, draft(**_fields()))
    opened = open_bundle(tmp_path).manifest
    assert opened == sealed
    assert opened.requires.deployment_target == "15.0"
    assert opened.programs[0].emulation is not None
    assert opened.programs[0].emulation.source_sha256 == "cd" * 32


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("programs/main/model.linux-x86_64.so", "programs.main.emulation.library"),
        ("programs/main/kernels.metal", "programs.main.shaders"),
        ("shaders.h.metal", "shader_header"),
    ],
)
def test_rule_5_every_reference_is_listed(tmp_path: Path, missing: str, use: str) -> None:
    """A file that the manifest speaks of and that is not there cannot be sealed."""
    write_files(tmp_path, {k: v for k, v in METAL_FILES.items() if k != missing})
    with pytest.raises(ArtifactError, match=use):
        seal(tmp_path, draft(**_fields()))


def test_rule_10_shaders_need_their_header() -> None:
    """Shaders without the header could not be compiled."""
    with pytest.raises(Malformed, match="no shader_header"):
        draft(**(_fields() | {"shader_header": None}))


def test_a_bundle_without_these_fields_still_opens(tmp_path: Path) -> None:
    """Bundles that were made before the target existed have none of them."""
    write_files(tmp_path, FILES)
    manifest = seal(tmp_path, draft())
    program = manifest.programs[0]
    assert (program.shaders, program.emulation, manifest.shader_header) == (None, None, None)
