"""Golden tensors read without torch equal what torch wrote; broken files are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from menagerie.format.bundle_manifest import BundleProgram, TensorSpec, unsealed
from menagerie.numerics import Dtype
from menagerie.validation.findings import CaseKind
from menagerie.validation.goldens import GoldenCases, read_tensors
from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = BundleProgram(
    name="main",
    files={"library": unsealed("model.so"), "golden": unsealed("golden.safetensors")},
    golden_cases=3,
    inputs=(
        TensorSpec(name="x", dtype=Dtype.FLOAT32, shape=("batch", 3, "time")),
        TensorSpec(name="mask", dtype=Dtype.BOOL, shape=("batch", "time")),
    ),
    outputs=(TensorSpec(name="y", dtype=Dtype.FLOAT32, shape=("batch", "?")),),
    dimensions={"batch": (1, 8, 1), "time": (1, 100, 1)},
    constants={},
    symbols=(),
)


def golden_tensors(sizes: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Cases of the given batch and time."""
    tensors = {}
    for case, (batch, time) in enumerate(sizes):
        tensors[f"{case}/input/x"] = torch.randn(batch, 3, time)
        tensors[f"{case}/input/mask"] = torch.ones(batch, time, dtype=torch.bool)
        tensors[f"{case}/output/y"] = torch.randn(batch, 2)
    return tensors


@pytest.mark.parametrize("dtype", list(Dtype))
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 5)])
def test_every_dtype_reads_as_torch_wrote_it(
    tmp_path: Path, dtype: Dtype, shape: tuple[int, ...]
) -> None:
    """Values, shape and dtype are torch's; bfloat16 arrives as its 16 bits."""
    kind = getattr(torch, dtype.value)
    tensor = torch.randn(shape).mul(50).to(kind)
    save_file({"a": tensor, "b": torch.zeros(3)}, tmp_path / "t.safetensors")
    found = read_tensors(tmp_path / "t.safetensors")["a"]
    expected = tensor.view(torch.uint16) if dtype is Dtype.BFLOAT16 else tensor
    assert found.dtype == expected.numpy().dtype
    assert found.shape == shape
    assert np.array_equal(found, expected.numpy())


def test_a_case_has_its_tensors_and_dimensions(tmp_path: Path) -> None:
    """Inputs and outputs come by name, dynamic sizes from the inputs, the largest case is known."""
    tensors = golden_tensors([(1, 1), (8, 100), (3, 17)])
    save_file(tensors, tmp_path / "g")
    goldens = GoldenCases(tmp_path / "g", PROGRAM)
    assert len(goldens) == 3
    assert goldens.dimensions(2) == {"batch": 3, "time": 17}
    assert goldens.largest() == 1
    assert np.array_equal(goldens.inputs(1)["x"], tensors["1/input/x"].numpy())
    assert np.array_equal(goldens.outputs(1)["y"], tensors["1/output/y"].numpy())


def test_inputs_are_copies(tmp_path: Path) -> None:
    """An artifact that writes into its inputs alters neither the file nor the next run."""
    save_file(golden_tensors([(1, 2)] * 3), tmp_path / "g")
    goldens = GoldenCases(tmp_path / "g", PROGRAM)
    goldens.inputs(0)["x"][:] = 7
    assert not np.any(goldens.inputs(0)["x"] == 7)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    """Every case must be whole."""
    tensors = golden_tensors([(1, 2)] * 3)
    del tensors["2/output/y"]
    save_file(tensors, tmp_path / "g")
    with pytest.raises(ArtifactError, match="golden tensor '2/output/y' is missing"):
        GoldenCases(tmp_path / "g", PROGRAM)


def test_a_strange_dtype_is_refused(tmp_path: Path) -> None:
    """An element type that no program has is not guessed at."""
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "g").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(ArtifactError, match="not readable as safetensors"):
        read_tensors(tmp_path / "g")


@given(content=st.binary(max_size=64))
def test_arbitrary_bytes_never_escape(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """Whatever the bytes, the error is ours."""
    path = tmp_path_factory.mktemp("bytes") / "g"
    path.write_bytes(content)
    with pytest.raises(ArtifactError):
        read_tensors(path)


@given(cut=st.integers(0, 200), flip=st.integers(0, 63), data=st.data())
def test_a_damaged_header_never_escapes(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int, data: st.DataObject
) -> None:
    """A truncated or altered file reads as some tensors or as our error, never as another's."""
    path = tmp_path_factory.mktemp("damaged") / "g"
    save_file({"a": torch.arange(6.0).reshape(2, 3)}, path)
    content = bytearray(path.read_bytes())
    content[flip % len(content)] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: max(0, len(content) - cut)])
    try:
        read_tensors(path)
    except ArtifactError:
        return


def test_kinds_of_cases_are_reported_where_they_are_known(tmp_path: Path) -> None:
    """A kind that a later version writes, and a bundle that says nothing, are no faults."""
    path = tmp_path / "golden.safetensors"
    tensors = golden_tensors([(1, 5), (2, 6), (3, 7)])
    save_file(tensors, path, metadata={"0": "noise", "1": "picture", "2": "dream"})
    cases = GoldenCases(path, PROGRAM)
    assert [cases.kind(n) for n in range(3)] == [CaseKind.NOISE, CaseKind.PICTURE, None]
    save_file(tensors, path)
    assert GoldenCases(path, PROGRAM).kind(0) is None
