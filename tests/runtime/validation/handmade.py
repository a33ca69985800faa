"""Bundles written by hand, whose libraries are the tests' own."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import (
    AccuracyData,
    BundleManifest,
    BundleProgram,
    ReleaseState,
    Requirements,
    TensorSpec,
    unsealed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zoo.spec import Dtype, Tolerance


def handmade_program(name: str, dtype: Dtype, shape: tuple[int, ...], cases: int) -> BundleProgram:
    """A program from `x` to `y`, both of this dtype and shape."""
    return BundleProgram(
        name=name,
        files={
            "library": unsealed(f"programs/{name}/model.so"),
            "golden": unsealed(f"programs/{name}/golden.safetensors"),
        },
        golden_cases=cases,
        inputs=(TensorSpec(name="x", dtype=dtype, shape=shape),),
        outputs=(TensorSpec(name="y", dtype=dtype, shape=shape),),
        dimensions={},
        constants={},
        symbols=(),
    )


def handmade_manifest(
    model: str,
    programs: Sequence[BundleProgram],
    tolerances: Mapping[Dtype, Tolerance],
    accuracy: AccuracyData | None = None,
) -> BundleManifest:
    """The draft of a bundle for this machine, to be sealed."""
    files = {"weights": unsealed("weights.safetensors")}
    if accuracy is not None:
        files["accuracy"] = unsealed("accuracy.safetensors")
    return BundleManifest(
        model=model,
        target="cpu",
        build_key="0" * 64,
        state=ReleaseState.LOWERED,
        requires=Requirements(
            system=platform.system().lower(), machine=platform.machine(), runtime_abi=1
        ),
        programs=tuple(programs),
        accuracy=accuracy,
        tolerances=dict(tolerances),
        random_weights=None,
        source="written by hand",
        licence="Apache-2.0",
        versions={},
        created="2025-03-01T12:00:00+00:00",
        files=files,
    )
