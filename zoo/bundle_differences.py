"""Differences between two states of a bundle: after its proof, and after a rebuild.

A proof adds its report and the resulting state. A rebuild may differ in the report, the date and
the state; everything else, the manifest included, is compared byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from menagerie.format.bundle_manifest import MANIFEST, BundleManifest, BundleProgram, ReleaseState
from menagerie.format.folder import Bundle, seal
from menagerie.tensor_files import read_tensors
from menagerie.typed_json import plain
from menagerie.validation.compare import compare
from menagerie.validation.goldens import GoldenCases
from zoo.base_models import Frozen
from zoo.errors import ArtifactError

_REPORT = {"report.json", "report.html", "graphs.json"}
_MOST_TENSORS = 3  # named per file, before a count of the others
_NEVER = "1970-01-01T00:00:00+00:00"


def reseal(folder: Path, draft: BundleManifest, state: ReleaseState) -> BundleManifest:
    """Seal a proven bundle, with its report, in the proven state.

    The folder's library ran in a process of this user, which could write here, so `draft` is the
    manifest as read before the proof. Raise ArtifactError if a sealed file has changed; the folder
    is then no longer a bundle.
    """
    sealed = seal(folder, replace(without_report(draft), state=state))
    before, after = without_report(draft).listed, without_report(sealed).listed
    changed = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    if changed:
        (folder / MANIFEST).unlink()
        advice = "Do not trust this artifact or what it was made from"
        raise ArtifactError(str(folder / changed[0]), "changed while the bundle was run", advice)
    return sealed


def without_report(manifest: BundleManifest) -> BundleManifest:
    """Return the manifest without the proof's report."""
    kept = {role: entry for role, entry in manifest.files.items() if entry.path not in _REPORT}
    return replace(manifest, files=kept)


class Difference(Frozen):
    """A file, or a fact of the manifest, that differs between the rebuild and the release."""

    place: str
    fact: str
    rounding: bool = False  # golden outputs are within the release's tolerance


def differences(published: Bundle, rebuilt: Bundle) -> tuple[Difference, ...]:
    """Return how a rebuild differs from a release; empty if they are equal.

    The files of both have the digests in their manifests: the release was pulled, and the rebuilt
    bundle was checked.
    """
    before = without_report(published.manifest).listed
    after = without_report(rebuilt.manifest).listed
    found = [
        Difference(place=name, fact="was not made again") for name in before.keys() - after.keys()
    ]
    found += [Difference(place=n, fact="is not published") for n in after.keys() - before.keys()]
    programs = {program.golden.path: program for program in published.manifest.programs}
    for name in before.keys() & after.keys():
        if before[name].sha256 != after[name].sha256:
            files = published.file(name), rebuilt.file(name)
            program = programs.get(name)
            near = program is not None and _near(*files, program, published.manifest)
            found.append(Difference(place=name, fact=_files(*files), rounding=near))
    built = (  # without facts that depend on the machine or the date
        replace(without_report(b.manifest), state=ReleaseState.LOWERED, created=_NEVER)
        for b in (published, rebuilt)
    )
    one, two = (plain(each, sparse=True) for each in built)
    facts = list(_facts("", one, two))
    if one != two and not facts and not found:
        facts = ["differs in form"]
    found += [Difference(place=MANIFEST, fact=fact) for fact in facts]
    return tuple(sorted(found, key=lambda each: each.place))


def _near(published: Path, rebuilt: Path, program: BundleProgram, manifest: BundleManifest) -> bool:
    """Return whether golden cases have equal inputs, and outputs within the tolerances.

    Eager PyTorch rounds differently on another kind of processor; the model is still the same.
    """
    try:
        one, two = GoldenCases(published, program), GoldenCases(rebuilt, program)
    except ArtifactError:
        return False
    for case in range(program.golden_cases):
        theirs, ours = one.inputs(case), two.inputs(case)
        if any(theirs[name].tobytes() != ours[name].tobytes() for name in theirs):
            return False
        expected, found = one.outputs(case), two.outputs(case)
        for spec in program.outputs:
            name, tolerance = spec.name, manifest.tolerances.get(spec.dtype)
            given = expected[name], found[name]
            if not compare(*given, spec.dtype, tolerance, case=case, name=name).passed:
                return False
    return True


def _files(published: Path, rebuilt: Path) -> str:
    if published.suffix == ".safetensors" and (named := _tensors(published, rebuilt)):
        return named
    first, second = published.stat().st_size, rebuilt.stat().st_size
    sizes = "" if first == second else f"{first:,} bytes are published, {second:,} came now; "
    one = np.memmap(published, np.uint8, "r") if first else np.zeros(0, np.uint8)
    two = np.memmap(rebuilt, np.uint8, "r") if second else np.zeros(0, np.uint8)
    common = min(first, second)
    unequal = np.flatnonzero(one[:common] != two[:common])
    if not unequal.size:
        return f"{sizes}equal as far as both go"
    return f"{sizes}{unequal.size:,} bytes differ, the first is number {unequal[0]:,}"


def _tensors(published: Path, rebuilt: Path) -> str:
    try:
        one, two = read_tensors(published), read_tensors(rebuilt)
    except ArtifactError:
        return ""
    facts = [f"{name} is in one alone" for name in sorted(one.keys() ^ two.keys())]
    facts += [
        f"{name} {fact}"
        for name in sorted(one.keys() & two.keys())
        if (fact := _arrays(one[name], two[name])) is not None
    ]
    more = f"; {len(facts) - _MOST_TENSORS} more" if len(facts) > _MOST_TENSORS else ""
    return "; ".join(facts[:_MOST_TENSORS]) + more


def _arrays(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> str | None:
    if (one.shape, one.dtype) != (two.shape, two.dtype):
        return f"is {two.dtype} {list(two.shape)}, not {one.dtype} {list(one.shape)}"
    if one.tobytes() == two.tobytes():
        return None
    if one.dtype.kind != "f":
        return f"differs in {np.count_nonzero(one != two):,} of {one.size:,} elements"
    with np.errstate(all="ignore"):
        apart = np.nanmax(np.abs(one.astype(np.float64) - two.astype(np.float64)))
    return f"differs by {apart:.3g} at most"


def _facts(place: str, one: Any, two: Any) -> Iterator[str]:
    """Yield each leaf of the manifest that differs, without the files' digests and sizes."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted(one.keys() | two.keys()):
            if key not in {"sha256", "bytes"}:
                yield from _facts(f"{place}.{key}".lstrip("."), one.get(key), two.get(key))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for number, pair in enumerate(zip(one, two, strict=True)):
            yield from _facts(f"{place}[{number}]", *pair)
    elif one != two:
        yield f"{place} is {json.dumps(two)}, and {json.dumps(one)} is published"
