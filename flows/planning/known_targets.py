"""Whether the targets that a manifest names are known: the manifest itself takes any name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.targets import all_targets
from zoo.errors import ManifestError
from zoo.nearest import advice

if TYPE_CHECKING:
    from zoo.manifest import Manifest

__all__ = ["check_targets"]


def check_targets(manifest: Manifest) -> None:
    """Raise ManifestError with every target that nobody knows, and where it is named."""
    known = all_targets()
    faults = []
    for name, spec in manifest.models.items():
        origin = manifest.origin(name)
        for target in spec.targets:
            if target not in known:
                step = advice(target, known, f"Known: {', '.join(known)}")
                fault = f"models.{name}.targets: there is no target {target!r}. {step}"
                faults.append(f"{origin.file.name}:{origin.line}: {fault}")
    if faults:
        raise ManifestError("manifest", tuple(faults))
