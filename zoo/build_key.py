"""The build key: the hash of everything that determines a conversion's result."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.numerics import Dtype
from menagerie.paths import PACKAGE, built
from menagerie.typed_json import plain
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.spec import ModelSpec

_SCHEME = 1  # incremented when the key's composition changes
# Fields that affect neither the artifact nor its report.
_NO_PART_OF_IT = {"tags", "targets", "precisions"}


def build_key(
    name: str, spec: ModelSpec, target: str, *, weights: str, code: str, versions: Mapping[str, str]
) -> str:
    """Return the SHA-256, in hexadecimal, of everything that determines a conversion's artifact.

    Tags, other targets and other precisions of the entry `spec` do not count. `weights` is
    `zoo.sources.fingerprint`'s result, `code` is a digest of the converter's code, and `versions`
    maps the names of the converter's tools to their versions.
    """
    facts = {
        "scheme": _SCHEME,
        "name": name,
        "entry": spec.model_dump(mode="json", exclude=_NO_PART_OF_IT),
        "tolerances": {dtype.value: plain(spec.tolerance(dtype)) for dtype in Dtype},
        "target": target,
        "weights": weights,
        "code": code,
        "versions": dict(versions),
    }
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@functools.cache
def code_digest() -> str:
    """Return the sha256 of the code whose changes may change a model's artifact.

    Raise UsageError if the compiler's code is not beside the zoo's, because keys would lack it.
    """
    zoo = Path(__file__).parent
    transforms = zoo.with_name("transforms")  # not imported, because that would import torch
    if not (transforms / "stages.py").is_file():
        fact = "the code of the compiler is not beside that of the zoo"
        raise UsageError(str(transforms), fact, "Install menagerie-zoo whole")
    ours = [*(zoo / "sources").rglob("*.py"), *(zoo / "models").rglob("*.py"), zoo / "speech.py"]
    inserted = built("lowering/cpp_wrapper.h").parent.iterdir()  # with the files beside it
    known = transforms.rglob("*.py")
    compiler = [f for f in known if transforms / "bisect" not in f.parents]  # makes no artifacts
    files = [
        *((f"transforms/{f.relative_to(transforms)}", f) for f in compiler),
        *((f"zoo/{f.relative_to(zoo)}", f) for f in ours),
        *((f"lowering/{f.name}", f) for f in inserted),
        ("shims.toml", PACKAGE / "shims.toml"),
    ]
    digest = hashlib.sha256()
    for name, file in sorted(files):
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
