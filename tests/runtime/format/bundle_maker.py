"""Small bundles for tests, sealed by the code under test, their files made here."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from menagerie.format.bundle_manifest import BundleManifest
from menagerie.format.folder import seal
from menagerie.host import RUNTIME_ABI
from menagerie.numerics import DEFAULT_TOLERANCES
from menagerie.typed_json import check, plain

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.store import Release, Store

BUILD_KEY = "ab" * 32

FILES = {
    "weights.safetensors": b"the weights",
    "programs/main/model.so": b"the library",
    "programs/main/golden.safetensors": b"the goldens",
    "report.json": b"{}",
}


def placed(path: str, **more: Any) -> dict[str, Any]:
    """A file of a draft, whose bytes are not read yet."""
    return {"path": path, "sha256": "0" * 64, "bytes": 0, **more}


def draft(**changes: Any) -> BundleManifest:
    """A manifest to seal; `changes` replace its fields."""
    tensor = {"name": "x", "dtype": "float32", "shape": [1, "length"]}
    program = {
        "name": "main",
        "files": {
            "library": placed("programs/main/model.so"),
            "golden": placed("programs/main/golden.safetensors"),
        },
        "golden_cases": 3,
        "inputs": [tensor],
        "outputs": [{**tensor, "name": "y"}],
        "dimensions": {"length": [1, 8, 1]},
        "constants": {"fc.weight": "fc.weight"},
        "symbols": ["aoti_torch_cpu_mm_out"],
    }
    fields: dict[str, Any] = {
        "model": "tiny",
        "target": "cpu",
        "build_key": BUILD_KEY,
        "state": "validated",
        "requires": {
            "system": platform.system().lower(),
            "machine": platform.machine(),
            "runtime_abi": RUNTIME_ABI,
        },
        "programs": [program],
        "tolerances": plain(DEFAULT_TOLERANCES),
        "random_weights": 0,
        "source": "made by a test",
        "licence": "Apache-2.0",
        "versions": {"torch": "2.13.0"},
        "created": "2030-01-31T12:00:00+00:00",
        "files": {"weights": placed("weights.safetensors")},
    }
    fields |= changes
    made: BundleManifest = check(BundleManifest, plain({"runtime": fields["target"], **fields}))
    return made


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Writes `files` by their paths under `folder`."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def make_bundle(folder: Path, files: dict[str, bytes] | None = None, **changes: Any) -> Path:
    """A sealed bundle; `files` are added to or replace the usual ones."""
    write_files(folder, FILES | (files or {}))
    seal(folder, draft(**changes))
    return folder


def published(store: Store, folder: Path, digits: str, hour: int = 10, **changes: Any) -> str:
    """Publishes a build with files of its own; its key."""
    files = {"programs/main/model.so": digits.encode()}
    created = f"2030-01-31T{hour}:00:00+00:00"
    bundle = make_bundle(
        folder / f"{digits}{hour}", files, build_key=digits * 32, created=created, **changes
    )
    return publish(store, bundle).build_key


def publish(store: Store, bundle: Path) -> Release:
    """Makes a bundle a release that nobody has signed."""
    return store.admit(store.propose(bundle), None)
