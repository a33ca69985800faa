"""The draft of a bundle that a test makes, to be sealed."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import (
    AccuracyData,
    BundleManifest,
    BundleProgram,
    ReleaseState,
    Requirements,
    unsealed,
)
from menagerie.host import RUNTIME_ABI
from menagerie.numerics import DEFAULT_TOLERANCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from menagerie.numerics import Dtype, Tolerance


def draft_manifest(
    model: str,
    programs: Sequence[BundleProgram],
    files: Mapping[str, str],
    *,
    tolerances: Mapping[Dtype, Tolerance] = DEFAULT_TOLERANCES,
    accuracy: AccuracyData | None = None,
    random_weights: int | None = 0,
    target: str = "cpu",
    requires: Requirements | None = None,
) -> BundleManifest:
    """A manifest around programs and `files` by role; `requires`: left out, a machine as this."""
    here = Requirements(
        system=platform.system().lower(), machine=platform.machine(), runtime_abi=RUNTIME_ABI
    )
    return BundleManifest(
        model=model,
        target=target,
        runtime=target,
        build_key="0" * 64,
        state=ReleaseState.LOWERED,
        requires=requires or here,
        programs=tuple(programs),
        accuracy=accuracy,
        tolerances=dict(tolerances),
        random_weights=random_weights,
        source="a test",
        licence="none",
        versions={},
        created="2030-01-31T12:00:00+00:00",
        files={role: unsealed(path) for role, path in files.items()},
    )
