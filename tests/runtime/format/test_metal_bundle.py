"""What a bundle for Metal has besides: shaders, their header, and a library to emulate it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import FILES, draft, placed, write_files

from menagerie.format.folder import open_bundle, seal
from menagerie.host import RUNTIME_ABI
from menagerie.typed_json import Malformed, plain
from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

METAL_FILES = FILES | {
    "programs/main/model.dylib": b"the library for Macs",
    "programs/main/model.linux-x86_64.so": b"to emulate it",
    "programs/main/kernels.metal": b"kernel void k() {}",
    "shaders.h.metal": b"// all kernels' header",
}


def _fields() -> dict[str, Any]:
    """The fields of a Metal bundle's manifest that differ from a CPU's."""
    program = plain(draft().programs[0])
    program["files"] |= {
        "library": placed("programs/main/model.dylib"),
        "shaders": placed("programs/main/kernels.metal"),
        "emulation": placed(
            "programs/main/model.linux-x86_64.so",
            source_sha256="cd" * 32,
            requires={"system": "linux", "machine": "x86_64", "runtime_abi": RUNTIME_ABI},
        ),
    }
    requires = {"system": "darwin", "machine": "arm64", "runtime_abi": RUNTIME_ABI}
    return {
        "target": "metal",
        "state": "emulated",
        "requires": requires | {"deployment_target": "15.0"},
        "programs": [program],
        "files": {
            "weights": placed("weights.safetensors"),
            "shader_header": placed("shaders.h.metal"),
        },
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
        ("programs/main/model.linux-x86_64.so", "programs.main.files.emulation"),
        ("programs/main/kernels.metal", "programs.main.files.shaders"),
        ("shaders.h.metal", "files.shader_header"),
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
        draft(**(_fields() | {"files": {"weights": placed("weights.safetensors")}}))


@pytest.mark.parametrize("lost", ["source_sha256", "requires"])
def test_rule_11_an_emulation_library_says_where_it_runs_and_what_it_comes_from(lost: str) -> None:
    """Without both, neither the host that loads it is known, nor that it emulates."""
    fields = _fields()
    del fields["programs"][0]["files"]["emulation"][lost]
    with pytest.raises(Malformed, match="emulation lacks requires or source_sha256"):
        draft(**fields)


def test_an_unknown_role_is_kept(tmp_path: Path) -> None:
    """A target to come lists its own files, for the bundle and a program, and they survive."""
    write_files(tmp_path, METAL_FILES | {"plan.bin": b"plan", "programs/main/tiles.bin": b"tiles"})
    fields = _fields()
    fields["files"]["schedule"] = placed("plan.bin")
    fields["programs"][0]["files"]["tiles"] = placed("programs/main/tiles.bin")
    seal(tmp_path, draft(**fields))
    manifest = open_bundle(tmp_path).manifest
    assert manifest.files["schedule"].bytes == len(b"plan")
    assert manifest.programs[0].files["tiles"].path == "programs/main/tiles.bin"


def test_a_bundle_without_these_fields_still_opens(tmp_path: Path) -> None:
    """Bundles that were made before the target existed have none of them."""
    write_files(tmp_path, FILES)
    manifest = seal(tmp_path, draft())
    program = manifest.programs[0]
    assert (program.shaders, program.emulation) == (None, None)
    assert "shader_header" not in manifest.files
