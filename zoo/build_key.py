"""The build key: the hash of all that decides what a conversion makes."""

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

_SCHEME = 1  # raised when the key's own composition changes
# Of the artifact; all else is in it or in its report.
_NO_PART_OF_IT = {"tags", "targets", "precisions"}


def build_key(
    name: str, spec: ModelSpec, target: str, *, weights: str, code: str, versions: Mapping[str, str]
) -> str:
    """Return the SHA-256, in hexadecimal, of all that decides which artifact a conversion makes.

    Of the entry `spec`, tags, other targets and other precisions do not count. `weights` is
    `zoo.sources.fingerprint`'s answer, `code` a digest of the code that converts, and `versions`
    has the tools that convert, by name.
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
    """Return the sha256 over the code whose change makes another artifact of the same model.

    Raise UsageError if the compiler's code is not where the zoo's is: keys would not know it.
    """
    zoo = Path(__file__).parent
    transforms = zoo.with_name("transforms")  # not imported, which would bring torch
    if not (transforms / "stages.py").is_file():
        fact = "the code of the compiler is not beside that of the zoo"
        raise UsageError(str(transforms), fact, "Install menagerie-zoo whole")
    ours = [*(zoo / "sources").rglob("*.py"), *(zoo / "models").rglob("*.py"), zoo / "speech.py"]
    inserted = built("lowering/cpp_wrapper.h").parent.iterdir()  # and the others beside it
    known = transforms.rglob("*.py")
    compiler = [f for f in known if transforms / "bisect" not in f.parents]  # it makes no artifacts
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
