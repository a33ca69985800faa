"""A release's linked parts and platform: a bill of materials and a model card.

It has the form of CycloneDX 1.5, https://cyclonedx.org/docs/1.5/json/. It is a file of the bundle,
so the manifest's signature covers it; it contains no time, so that rebuilding gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from menagerie.format.bundle_manifest import BundleManifest, Role, TensorSpec

SBOM_FILE: Final = "sbom.cdx.json"
_NAMESPACE = uuid.UUID("6a3f7a0e-6a55-4c06-9d0b-0d6b7d1d6c11")  # ours, drawn once
_GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"
_LIBRARIES = (Role.LIBRARY, Role.EMULATION)
_HOW = "menagerie:linked"


@dataclass(frozen=True)
class Part:
    """A third-party component that is contained in a release, or needed at run time.

    `how`: `headers` and `static` parts are inside a library, `dynamic` ones beside it; `sha256` is
    the digest of the compiled source, if it is in this repository.
    """

    name: str
    version: str
    licence: str  # SPDX
    how: str
    purl: str = ""
    sha256: str = ""


JSON_PART = Part("nlohmann-json", "3.12.0", "MIT", "headers", "pkg:github/nlohmann/json@v3.12.0")
MONOCYPHER = Part(
    "Monocypher",
    "4.0.3",
    "BSD-2-Clause OR CC0-1.0",
    "static",
    "pkg:github/LoupVaillant/Monocypher@4.0.3",
    "57eb914fc88136119bd41655cccb8c250048bf54d470540625186f8ab16f64be",
)
ONEDNN = Part("oneDNN", "3.2", "Apache-2.0", "dynamic", "pkg:pypi/onednn-cpu-gomp@2023.2.0")
RUNTIME_PARTS: Final = (JSON_PART, MONOCYPHER, ONEDNN)


def sbom_document(folder: Path, draft: BundleManifest) -> bytes:
    """Return the document for a bundle about to be sealed; it is the same for the same bundle."""
    model = f"model:{draft.model}"
    inside, beside = _inside(draft), _beside(draft)
    runtime = f"menagerie-{draft.runtime}"
    parts = [_component(part) for part in (*inside, *beside)]
    version = draft.versions.get("menagerie", "")
    ours = Part(runtime, version, "Apache-2.0", "dynamic")
    files = [p.files[role].path for p in draft.programs for role in _LIBRARIES if role in p.files]
    libraries = [_file(folder, path) for path in files]
    graph = {
        model: [each["bom-ref"] for each in libraries],
        **{each["bom-ref"]: [*map(_reference, inside), _reference(ours)] for each in libraries},
        _reference(ours): [_reference(part) for part in beside],
        **{_reference(part): [] for part in (*inside, *beside)},
    }
    described: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": model,
        "name": draft.model,
        "version": draft.build_key,
        "modelCard": _card(draft),
    }
    if draft.licence:
        described["licenses"] = [{"expression": draft.licence}]
    fields = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, draft.build_key)}",
        "version": 1,
        "metadata": {"component": described},
        "components": [*libraries, *parts, _component(ours)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in graph.items()],
    }
    return (json.dumps(fields, sort_keys=True, indent=1) + "\n").encode()


def linked(document: bytes) -> list[Part]:
    """Return every part in a document that `sbom_document` made."""
    found = []
    for each in json.loads(document)["components"]:
        how = [p["value"] for p in each.get("properties", ()) if p["name"] == _HOW]
        if how:
            licence = each["licenses"][0]["expression"]
            found.append(Part(each["name"], each.get("version", ""), licence, how[0]))
    return found


def _inside(draft: BundleManifest) -> tuple[Part, ...]:
    """Return the third-party parts that the model's library contains."""
    torch = draft.versions.get("torch", "")
    public = torch.partition("+")[0]
    parts = [Part("torch", torch, "BSD-3-Clause", "headers", f"pkg:pypi/torch@{public}")]
    compiler = draft.versions.get("compiler", "")
    if draft.requires.system == "darwin":  # it loads its own libc++
        parts.append(Part("libc++", compiler, "Apache-2.0 WITH LLVM-exception", "headers"))
    emulated = any(program.emulation for program in draft.programs)
    if (draft.requires.system == "linux" or emulated) and "clang" not in compiler:
        parts.append(Part("libstdc++", compiler, _GCC, "static"))
    return tuple(parts)


def _beside(draft: BundleManifest) -> tuple[Part, ...]:
    """Return the parts that the runtime contains or loads on such a machine."""
    parts = [JSON_PART, MONOCYPHER]
    if draft.requires.system == "linux":
        parts += [Part("libgomp", "", _GCC, "dynamic"), Part("libgcc_s", "", _GCC, "dynamic")]
        if draft.requires.machine == "x86_64":
            parts.append(ONEDNN)
    return tuple(parts)


def _file(folder: Path, path: str) -> dict[str, Any]:
    hashes = _hashes(hashlib.sha256((folder / path).read_bytes()).hexdigest())
    return {"type": "file", "bom-ref": f"file:{path}", "name": path, "hashes": hashes}


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}] if sha256 else []


def _component(part: Part) -> dict[str, Any]:
    hashes = _hashes(part.sha256)
    optional = {"version": part.version, "purl": part.purl, "hashes": hashes}
    return {
        "type": "library",
        "bom-ref": _reference(part),
        "name": part.name,
        "scope": "required",
        "licenses": [{"expression": part.licence}],
        "properties": [{"name": _HOW, "value": part.how}],
        **{name: value for name, value in optional.items() if value},
    }


def _reference(part: Part) -> str:
    return f"part:{part.name}"


def _card(draft: BundleManifest) -> dict[str, Any]:
    card: dict[str, Any] = {
        "modelParameters": {
            "inputs": [{"format": f} for p in draft.programs for f in _tensors(p.name, p.inputs)],
            "outputs": [{"format": f} for p in draft.programs for f in _tensors(p.name, p.outputs)],
        },
        "properties": [
            {"name": "menagerie:source", "value": draft.source},
            {"name": "menagerie:platform", "value": draft.platform},
            {"name": "menagerie:build_key", "value": draft.build_key},
        ],
    }
    if draft.random_weights is not None:
        limit = f"Random weights of seed {draft.random_weights}: its outputs mean nothing"
        card["considerations"] = {"technicalLimitations": [limit]}
    if draft.accuracy is not None:
        value = repr(draft.accuracy.eager_accuracy)
        metric = {"type": "accuracy of eager PyTorch", "value": value}
        card["quantitativeAnalysis"] = {"performanceMetrics": [metric]}
    return card


def _tensors(program: str, specs: Iterable[TensorSpec]) -> Iterable[str]:
    for spec in specs:
        sizes = ", ".join(map(str, spec.shape))
        yield f"{program}.{spec.name}: {spec.dtype.value} [{sizes}]"
