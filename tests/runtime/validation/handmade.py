"""Bundles written by hand, whose libraries are the tests' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import (
    BundleProgram,
    TensorSpec,
    unsealed,
)

if TYPE_CHECKING:
    from menagerie.numerics import Dtype


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
