"""What a candidate must be before anybody signs it: what the promoter's own manifest says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import ReleaseState
from zoo.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from menagerie.format.bundle_manifest import BundleManifest
    from zoo.spec import ModelSpec

__all__ = ["check_candidate"]


@dataclass(frozen=True)
class _Fault:
    field: str
    fact: str


def check_candidate(manifest: BundleManifest, spec: ModelSpec) -> None:
    """Returns if a candidate is what the manifest's entry asks for.

    Its goldens are another matter: whoever did not see them made computes them again.

    Args:
        manifest: of the candidate.
        spec: the model's entry, as the promoter has it.

    Raises:
        ValidationError: it proves itself by other tolerances, or bears another licence, other
            programs or no accuracy data; says all that is wrong.
    """
    faults = "; ".join(f"{fault.field} {fault.fact}" for fault in _faults(manifest, spec))
    if faults:
        raise ValidationError(
            f"{manifest.model} for {manifest.platform}",
            f"the candidate is not what the manifest asks for: {faults}",
            "Convert it anew with this manifest",
        )


def _faults(manifest: BundleManifest, spec: ModelSpec) -> Iterator[_Fault]:
    if manifest.state is ReleaseState.LOWERED:
        yield _Fault("state", "is lowered: it was never run")
    if manifest.licence != spec.licence.spdx:
        yield _Fault("licence", f"is {manifest.licence!r}, not {spec.licence.spdx!r}")
    for dtype, given in manifest.tolerances.items():
        asked = spec.tolerance(dtype)
        if asked is None or given.absolute > asked.absolute:
            most = None if asked is None else asked.absolute
            yield _Fault(f"tolerances.{dtype}", f"allows {given.absolute:g}, not {most}")
        elif (given.snr_db or 1e9) < (asked.snr_db or 1e9):
            yield _Fault(f"tolerances.{dtype}", f"asks for {given.snr_db} dB, not {asked.snr_db}")
    asked_for = [program.name for program in spec.programs]
    if [program.name for program in manifest.programs] != asked_for:
        yield _Fault("programs", f"are not {', '.join(asked_for)}")
    if (manifest.accuracy is None) != (spec.accuracy is None):
        yield _Fault("accuracy", "has no data for the gate" if spec.accuracy else "has data")
