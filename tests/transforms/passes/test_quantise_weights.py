"""Weights as integers with scales: how they are rounded, what is, what the artifact computes."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from menagerie.errors import MenagerieError
from menagerie.format.bundle_manifest import parse_manifest
from menagerie.format.folder import seal
from menagerie.session import Session
from transforms import convert
from transforms.passes.quantisation import INTEGERS, Scheme, quantised
from transforms.pipeline import run_passes
from zoo.errors import UsageError
from zoo.precision import Precision
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from pathlib import Path

_BITS = {8: Precision.INT8_WEIGHT_ONLY, 4: Precision.INT4_WEIGHT_ONLY}


@st.composite
def _weights(draw: Any) -> tuple[torch.Tensor, Scheme]:
    """Normal numbers of any scale, outliers and rows of zeros; groups that fit or do not."""
    group = draw(st.sampled_from([4, 32, None]))
    scheme = Scheme(bits=draw(st.sampled_from([8, 4])), group=group)
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 32]), min_size=2, max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    weight = torch.randn(shape, generator=generator) * 10.0 ** draw(st.integers(-44, 36))
    if draw(st.booleans()):
        weight.view(-1)[0] *= 50
    if draw(st.booleans()):
        weight[-1] = 0
    return weight.clamp(-3e38, 3e38), scheme


_CUT = 2.0**-7  # by which share a scale can be smaller for being bfloat16, and then some
_LEAST = torch.finfo(torch.float32).smallest_normal * 2 * 127  # scales of less may be zero


def _grouped(weight: torch.Tensor, scheme: Scheme) -> torch.Tensor:
    """By row and group, in float64."""
    rows = weight.reshape(weight.shape[0], -1).double()
    group = scheme.group or rows.shape[1]
    group = group if rows.shape[1] % group == 0 else rows.shape[1]
    return rows.reshape(rows.shape[0], -1, group)


@given(_weights())
def test_nothing_is_further_off_than_a_step(drawn: tuple[torch.Tensor, Scheme]) -> None:
    """The bound of rounding up or down, or what a smaller scale clips of the largest."""
    weight, scheme = drawn
    found = quantised(weight, scheme)
    assert found is not None
    exact = _grouped(weight, scheme)
    largest = exact.abs().amax(-1, keepdim=True)
    step = largest / (2 ** (scheme.bits - 1) - 1)
    bound = torch.maximum(step * (1 + _CUT), largest * _CUT).clamp_min(_LEAST)
    assert bool(((exact - _grouped(found.wide(), scheme)).abs() <= bound).all())


@given(_weights())
def test_no_sum_of_a_group_is_further_off_than_half_a_step(
    drawn: tuple[torch.Tensor, Scheme],
) -> None:
    """Or than it is when everything is rounded to nearest, where clipping leaves no choice."""
    weight, scheme = drawn
    found = quantised(weight, scheme)
    assert found is not None
    exact = _grouped(weight, scheme)
    scales = found.scales.double().reshape(*exact.shape[:2], 1)
    most = 2 ** (scheme.bits - 1) - 1
    nearest = scales * (exact / scales.clamp_min(1e-300)).round().clamp(-most, most)
    half = (scales[..., 0] / 2 * (1 + _CUT)).clamp_min(_LEAST * exact.shape[-1])
    off = (exact - _grouped(found.wide(), scheme)).sum(-1).abs()
    assert bool((off <= torch.maximum(half, (exact - nearest).sum(-1).abs())).all())


@given(_weights())
def test_what_is_quantised_is_quantised_to_itself(drawn: tuple[torch.Tensor, Scheme]) -> None:
    """So the rounded weight alone says what to store."""
    weight, scheme = drawn
    once = quantised(weight, scheme)
    assert once is not None
    twice = quantised(once.wide(), scheme)
    assert twice is not None
    assert torch.equal(once.values, twice.values)
    assert torch.equal(once.scales, twice.scales)


def test_by_hand() -> None:
    """Eight numbers of two groups, small enough to be checked by arithmetic."""
    weight = torch.tensor([[7.0, -3.5, 0.9, 0.0, 14.0, -14.0, 3.0, 1.1]])
    found = quantised(weight, Scheme(bits=4, group=4))
    assert found is not None
    assert found.scales.tolist() == [[1.0, 2.0]]
    assert found.values.tolist() == [[7, -4, 1, 0, 7, -7, 1, 1]]  # 3 is taken down, for the sum
    assert found.packed().tolist() == [[15 + 4 * 16, 9 + 8 * 16, 15 + 1 * 16, 9 + 9 * 16]]


def test_a_weight_that_is_not_finite_is_not_quantised() -> None:
    """There is no scale for NaN."""
    assert quantised(torch.tensor([[1.0, math.nan]]), INTEGERS[Precision.INT8_WEIGHT_ONLY]) is None


class _Net(nn.Module):
    """Convolutions, one depthwise, a layer, a table, a transposed product and a buffer.

    Windows of 27 and 9 numbers are too short for a scale of their own, and so are the 15 channels
    that `pointwise` reads; the 16 that `expansion` reads are not.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.depthwise = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=16)
        self.wide, self.thin = nn.Conv2d(16, 64, 3), nn.Conv2d(64, 15, 1)
        self.pointwise = nn.Conv2d(15, 16, 1)
        self.expansion = nn.Conv2d(16, 64, 1)
        self.table, self.linear = nn.Embedding(5, 48), nn.Linear(64, 48)
        self.factor = nn.Parameter(torch.randn(48, 33) / 7)
        self.register_buffer("basis", torch.randn(33, 40))

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(batch, 40)."""
        features = self.wide(self.depthwise(self.first(x)))
        features = self.expansion(self.pointwise(self.thin(features)))
        mean = features.mean((2, 3))
        return (self.linear(mean) + self.table(rows)) @ self.factor @ self.basis


_ROUNDED = (
    "wide.weight", "thin.weight", "expansion.weight", "table.weight", "linear.weight", "factor",
)  # fmt: skip


def _net() -> tuple[_Net, tuple[torch.Tensor, torch.Tensor]]:
    module = _Net().eval().requires_grad_(requires_grad=False)
    return module, (torch.randn(2, 3, 12, 12), torch.tensor([1, 4]))


def _round(module: nn.Module, bits: int) -> None:
    """Put the quantised weights into the module itself, by the definition."""
    for name in _ROUNDED:
        held = module.get_parameter(name)
        found = quantised(held, INTEGERS[_BITS[bits]])
        assert found is not None
        held.copy_(found.wide())


@pytest.mark.parametrize("bits", _BITS)
def test_parameters_of_products_are_rounded_and_nothing_else(bits: int) -> None:
    """The program computes what eager does of a model whose weights were rounded."""
    module, inputs = _net()
    choice = PassChoice(name="quantise_weights", options={"precision": _BITS[bits].value})
    made, log = run_passes(torch.export.export(module, inputs), [choice])
    assert log.records[0].changes == (f"rounded 6 weights to {_BITS[bits]}, to compute in float32",)
    _round(module, bits)
    assert torch.equal(module(*inputs), made.module()(*inputs))


def test_weights_with_infinities_stay() -> None:
    """And the record says why."""
    module = nn.Linear(32, 4).requires_grad_(requires_grad=False)
    module.weight[0, 0] = math.inf
    program = torch.export.export(module, (torch.randn(2, 32),))
    made, log = run_passes(program, ["quantise_weights"])
    assert made is program
    assert ["infinite" in refusal.reason for refusal in log.records[0].refusals] == [True]


def test_another_precision_is_refused() -> None:
    """Names those that there are."""
    module, inputs = _net()
    choice = PassChoice(name="quantise_weights", options={"precision": "float16"})
    with pytest.raises(
        UsageError, match="Known: int8, int8-static, int8-weight-only, int4-weight-only"
    ):
        run_passes(torch.export.export(module, inputs), [choice])


@pytest.mark.parametrize("bits", _BITS)
@pytest.mark.parametrize("group", [32, 64])
def test_groups_are_as_long_as_given(bits: int, group: int) -> None:
    """So many numbers of a row share a scale: each is a whole number of its largest's steps."""
    module = nn.Linear(128, 8).requires_grad_(requires_grad=False)
    options: dict[str, str | int] = {"precision": _BITS[bits].value, "group": group}
    choice = PassChoice(name="quantise_weights", options=options)
    made, _ = run_passes(torch.export.export(module, (torch.randn(2, 128),)), [choice])
    wanted = quantised(module.weight, Scheme(bits=bits, group=group))
    assert wanted is not None
    assert wanted.scales.shape == (8, 128 // group)
    assert torch.equal(made.state_dict["weight"], wanted.wide())


def test_the_bundle_keeps_as_many_scales(tmp_path: Path) -> None:
    """A row of 128 has two by 64 of it; one that 64 does not divide has one."""
    made = convert(
        nn.Sequential(nn.Linear(128, 40), nn.Linear(40, 3)).eval(),
        (torch.randn(2, 128),),
        precision="int4-weight-only",
        group=64,
        tolerances={"float32": 1.0},
        out=tmp_path / "out",
        measure_seconds=0,
    )
    kept = load_file(made.folder / "weights.safetensors")
    assert kept["0.weight.scales"].shape == (40, 2)
    assert kept["1.weight.scales"].shape == (3, 1)


@pytest.mark.parametrize(("precision", "group"), [("int8", 64), ("int4-weight-only", 48)])
def test_other_groups_are_refused(precision: str, group: int, tmp_path: Path) -> None:
    """Before anything is made, with those that there are."""
    net, inputs = nn.Linear(64, 2), (torch.randn(1, 64),)
    with pytest.raises(UsageError, match="32, 64, 128, 256"):
        convert(net, inputs, precision=precision, group=group, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("target", "bits"), [("cpu", 8), ("cpu", 4), ("metal", 4)])
def test_the_bundle_keeps_integers_and_computes_in_float32(
    target: str, bits: int, tmp_path: Path
) -> None:
    """The file has the types that the format names; the artifact agrees with the rounded model."""
    module, inputs = _net()
    made = convert(
        module,
        inputs,
        target=target,
        precision=_BITS[bits],
        out=tmp_path / "out",
        measure_seconds=0,
    )
    kept = _kept(made.folder / "weights.safetensors")
    word, parts = ("I8", 2) if bits == 8 else ("U8", 3)
    assert sum(kind == word for kind, _ in kept.values()) == len(_ROUNDED)
    assert len(kept) == len(_ROUNDED) * (parts - 1) + len(module.state_dict())
    weights = sum(module.get_parameter(name).numel() for name in _ROUNDED)
    held = sum(
        size for name, (_, size) in kept.items() if name.split(".s")[0] in _stored(kept, word)
    )
    assert held < weights * 4 * {8: 0.27, 4: 0.18}[bits]  # rows of 48 and 33 numbers among them

    _round(module, bits)
    with Session(made.folder) as session:
        (found,) = session.run({"x": inputs[0].numpy(), "rows": inputs[1].numpy()}).values()
    expected = module(*inputs).numpy()
    assert np.abs(expected - found).max() < 2e-5 * np.abs(expected).max()


def _stored(kept: dict[str, tuple[str, int]], word: str) -> set[str]:
    return {name for name, (kind, _) in kept.items() if kind == word}


def _kept(path: Path) -> dict[str, tuple[str, int]]:
    """Type and bytes of each tensor, by the format's text: a length of 8 bytes, then JSON."""
    held = path.read_bytes()
    head = json.loads(held[8 : 8 + int.from_bytes(held[:8], "little")])
    return {
        name: (entry["dtype"], entry["data_offsets"][1] - entry["data_offsets"][0])
        for name, entry in head.items()
        if name != "__metadata__"
    }


_TAMPERED: dict[str, tuple[dict[str, Any], str]] = {
    "no scales": ({".scales": None}, "has no tensor"),
    "scales of another type": ({".scales": torch.ones(48, 2)}, "its scales are not bfloat16"),
    "a row without a scale": ({".scales": torch.ones(47, 2).bfloat16()}, "do not divide its rows"),
    "groups of no equal length": ({".scales": torch.ones(48, 3).bfloat16()}, "do not divide"),
    "no groups": ({".scales": torch.ones(48, 0).bfloat16()}, "do not divide its rows"),
    "no shape": ({".shape": None}, "has no tensor"),
    "a shape of floats": ({".shape": torch.tensor([48.0, 64.0])}, "must be a list of int64"),
    "a negative axis": ({".shape": torch.tensor([-48, -64])}, "has an axis of size -48"),
    "a shape beyond memory": ({".shape": torch.tensor([2**62, 2**62])}, "shape overflows"),
    "more axes than any": ({".shape": torch.ones(9, dtype=torch.int64)}, "has more than 8 axes"),
    "one axis": ({".shape": torch.tensor([48 * 64])}, "two axes or more"),
    "packed for another shape": ({".shape": torch.tensor([48, 66])}, "is not packed as its shape"),
    "another weight's shape": ({".shape": torch.tensor([48, 63])}, "linear"),
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with weights of four bits."""
    module, inputs = _net()
    out = tmp_path_factory.mktemp("packed") / "out"
    made = convert(module, inputs, precision="int4-weight-only", out=out, measure_seconds=0)
    return made.folder


@pytest.mark.parametrize("case", _TAMPERED)
def test_a_quantised_weight_that_breaks_the_format_is_refused(
    case: str, packed: Path, tmp_path: Path
) -> None:
    """By name and rule, before anything is computed."""
    changes, reason = _TAMPERED[case]
    folder = _tampered(packed, tmp_path / "bundle", changes)
    with pytest.raises(MenagerieError, match=reason), Session(folder) as session:
        session.run({"x": np.zeros((2, 3, 12, 12), "f4"), "rows": np.zeros(2, "i8")})


def _tampered(bundle: Path, folder: Path, changes: dict[str, torch.Tensor | None]) -> Path:
    """A copy, sealed anew, in which parts of the linear layer's weight are others or missing."""
    shutil.copytree(bundle, folder)
    tensors = load_file(folder / "weights.safetensors")
    for part, value in changes.items():
        del tensors["linear.weight" + part]
        if value is not None:
            tensors["linear.weight" + part] = value
    save_file(tensors, folder / "weights.safetensors")
    seal(folder, parse_manifest((folder / "manifest.json").read_bytes(), "manifest.json"))
    return folder
