"""Precision int8: products and convolutions of integers, rounded as numpy rounds by definition."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file, save_file
from torch import nn

from flows.parameters import ConversionOptions
from flows.plan import plan
from menagerie.errors import MenagerieError
from menagerie.format.bundle_manifest import parse_manifest
from menagerie.format.folder import seal
from menagerie.profile import profile
from menagerie.session import Session
from transforms import convert
from transforms.pipeline import run_passes
from zoo.errors import UsageError
from zoo.precision import Precision
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.floating]


class _Net(nn.Module):
    """Every kind of product: with and without bias, activation or sum behind it, of any batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image = nn.Conv2d(3, 24, 5, padding=2)
        self.down, self.line = nn.Conv2d(24, 32, 3, stride=2, bias=False), nn.Conv1d(32, 48, 1)
        self.depthwise = nn.Conv2d(3, 3, 3, groups=3)
        self.up, self.back = nn.Linear(48, 64), nn.Linear(64, 48, bias=False)

    def forward(self, rows: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Results of each, in the order of `_expected`."""
        first = torch.relu(self.image(image))
        second = self.down(image.repeat(1, 8, 1, 1))
        third = self.line(second.flatten(2))
        up = nn.functional.gelu(self.up(rows))
        return first, second, third, up, self.back(self.up(rows)) + rows, self.depthwise(image)


@pytest.fixture(scope="module")
def net() -> _Net:
    """Untrained."""
    return _Net().eval().requires_grad_(requires_grad=False)


@pytest.fixture(scope="module")
def bundle(net: _Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in integers, of any batch from one to eight."""
    axis = {0: torch.export.Dim("batch", min=1, max=8)}
    inputs = torch.randn(3, 5, 48), torch.randn(3, 3, 9, 7)
    out = tmp_path_factory.mktemp("integers") / "out"
    made = convert(
        net, inputs, precision="int8", dynamic_shapes=(axis, axis), out=out, measure_seconds=0
    )
    return made.folder


@pytest.fixture(scope="module")
def session(bundle: Path) -> Iterator[Session]:
    """The same, loaded."""
    with Session(bundle) as loaded:
        yield loaded


def _rounded(slices: Floats) -> Floats:
    """The values of integers of 0 to 255, for each element of the first axis by itself."""
    flat = slices.reshape(len(slices), -1).astype("f8")
    low, high = np.minimum(flat.min(1), 0), np.maximum(flat.max(1), 0)
    scale = ((high - low) / 255)[:, None]
    divisor = np.where(scale == 0, 1, scale)
    zero = np.floor(-low[:, None] / divisor + 0.5)
    integers = np.clip(np.floor(flat / divisor + zero + 0.5), 0, 255)
    return np.asarray(((integers - zero) * scale).reshape(slices.shape))


def _weights(bundle: Path) -> dict[str, torch.Tensor]:
    """By the format's text: integers times the scale of their row, in float64."""
    kept = load_file(bundle / "weights.safetensors")
    made = {}
    for name, value in kept.items():
        if name.endswith(".scales"):
            continue
        if value.dtype is torch.int8:
            scales = kept[f"{name}.scales"]
            assert scales.shape == value.shape[:1]
            assert scales.dtype is torch.bfloat16
            made[name] = value.double() * scales.double().reshape(-1, *[1] * (value.dim() - 1))
        else:
            made[name] = value.double()
    return made


def _linear(rows: Floats, weight: torch.Tensor, bias: torch.Tensor | None) -> Floats:
    flat = _rounded(rows.reshape(-1, rows.shape[-1])).reshape(rows.shape)
    product = flat @ weight.numpy().T
    return product if bias is None else product + bias.numpy()


def _convolution(
    image: Floats, weight: torch.Tensor, bias: torch.Tensor | None, **how: int
) -> Floats:
    made = nn.functional.conv2d(torch.from_numpy(_rounded(image)), weight, bias, **how)
    return np.asarray(made.numpy())


def _expected(bundle: Path, rows: Floats, image: Floats) -> list[Floats]:
    """In float64, which holds every sum of these integers."""
    w = _weights(bundle)
    first = np.maximum(_convolution(image, w["image.weight"], w["image.bias"], padding=2), 0)
    second = _convolution(np.tile(image, (1, 8, 1, 1)), w["down.weight"], None, stride=2)
    flat = second.astype("f4").reshape(*second.shape[:2], 1, -1)
    third = _convolution(flat, w["line.weight"][:, :, None], w["line.bias"])[:, :, 0]
    hidden = _linear(rows, w["up.weight"], w["up.bias"])
    up = nn.functional.gelu(torch.from_numpy(hidden)).numpy()
    back = _linear(hidden.astype("f4"), w["back.weight"], None) + rows
    depthwise = _Net().depthwise(torch.from_numpy(image)).detach()
    return [first, second, third, up, back, depthwise.numpy()]


def _inputs(batch: int) -> dict[str, Floats]:
    generator = np.random.default_rng(batch)
    rows = generator.normal(size=(batch, 5, 48)).astype("f4")
    image = generator.normal(size=(batch, 3, 9, 7)).astype("f4")
    return {"rows": rows, "image": image}


def _snr(expected: Floats, found: Floats) -> float:
    error = np.linalg.norm((expected - found).ravel())
    return float(20 * np.log10(np.linalg.norm(expected.ravel()) / max(error, 1e-30)))


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_products_are_those_of_the_integers(bundle: Path, session: Session, batch: int) -> None:
    """Of one rounding exactly; behind two, where a middle may fall to either side, nearly.

    Float32's own rounding is 130 dB below; that to eight bits 45 dB, which would show.
    """
    inputs = _inputs(batch)
    found = list(session.run(inputs).values())
    expected = _expected(bundle, **inputs)
    bounds = (100, 100, 60, 100, 60, 100)
    assert all(_snr(e, f) > b for e, f, b in zip(expected, found, bounds, strict=True))


def test_the_file_keeps_integers_of_products_only(bundle: Path) -> None:
    """The nine numbers of a depthwise kernel stay, as do biases."""
    kept = load_file(bundle / "weights.safetensors")
    integers = {name for name, value in kept.items() if value.dtype is torch.int8}
    assert integers == {f"{n}.weight" for n in ("image", "down", "line", "up", "back")}


def test_a_result_does_not_depend_on_the_others_of_its_batch(session: Session) -> None:
    """A row, or image, has its own scale, so that a loud one does not drown the rest."""
    inputs = _inputs(3)
    loud = {name: value * np.array([1, 1e6, 1], "f4").reshape(-1, *[1] * (value.ndim - 1))
            for name, value in inputs.items()}  # fmt: skip
    for quiet, same in zip(session.run(inputs).values(), session.run(loud).values(), strict=True):
        assert np.array_equal(quiet[[0, 2]], same[[0, 2]])


@pytest.mark.parametrize("value", [0.0, 2.5, -2.5, 1e-40, 1e30])
def test_equal_numbers_are_exact(bundle: Path, session: Session, value: float) -> None:
    """Of zeros the bias is left; every other number is 255 steps, or none, from zero."""
    inputs = {name: np.full_like(held, value) for name, held in _inputs(2).items()}
    found = list(session.run(inputs).values())
    w = _weights(bundle)
    exact = 0.0 if abs(value) < 1e-34 else value
    rows = np.full((2, 5, 48), exact) @ w["up.weight"].numpy().T + w["up.bias"].numpy()
    assert _snr(nn.functional.gelu(torch.from_numpy(rows)).numpy(), found[3]) > 90


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_own_slice_nan(session: Session, odd: float) -> None:
    """A row of a product, an image of a convolution; nothing else."""
    inputs = _inputs(3)
    sound = list(session.run(inputs).values())
    inputs["rows"][1, 2, 7] = odd
    inputs["image"][1, 0, 4, 4] = odd
    found = list(session.run(inputs).values())
    assert np.isnan(found[1][1]).all()
    assert np.array_equal(np.isnan(found[4][1]).all(-1), [False, False, True, False, False])
    assert all(np.array_equal(s[[0, 2]], f[[0, 2]]) for s, f in zip(sound, found, strict=True))
    rest = [0, 1, 3, 4]
    assert np.array_equal(sound[4][1][rest], found[4][1][rest])


_ELSEWHERE = """
import sys
from safetensors.numpy import load_file, save_file
from menagerie.session import Session
with Session(sys.argv[1]) as session:
    save_file(dict(session.run(load_file(sys.argv[2]))), sys.argv[3])
"""


def test_a_processor_without_such_instructions_computes_the_same(
    bundle: Path, session: Session, tmp_path: Path
) -> None:
    """In float32, of values that were rounded as the integers are."""
    inputs = _inputs(3)
    save_file({n: torch.from_numpy(v) for n, v in inputs.items()}, tmp_path / "inputs")
    command = [sys.executable, "-c", _ELSEWHERE, bundle, tmp_path / "inputs", tmp_path / "outputs"]
    subprocess.run(command, check=True, env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"})
    plain = load_arrays(tmp_path / "outputs")
    for (name, found), bound in zip(
        session.run(inputs).items(), (100, 100, 60, 100, 60, 100), strict=True
    ):
        assert _snr(plain[name].astype("f8"), found) > bound


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({".scales": torch.ones(63).bfloat16()}, "do not divide its rows"),
        ({".scales": torch.ones(65).bfloat16()}, "do not divide its rows"),
        ({".scales": torch.ones(()).bfloat16()}, "do not divide its rows"),
        ({".scales": torch.ones(64)}, "its scales are not bfloat16"),
        ({".scales": None}, "has no tensor"),
        ({"": torch.ones(64, 47, dtype=torch.int8)}, "up"),
        ({"": torch.ones(64, 48, dtype=torch.int16)}, "up"),
        ({"": torch.ones(64 * 24, 2, dtype=torch.uint8)}, "has no tensor"),
    ],
)
def test_a_file_that_breaks_the_format_is_refused(
    bundle: Path, tmp_path: Path, changes: dict[str, torch.Tensor | None], reason: str
) -> None:
    """Before anything is computed."""
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    tensors = load_file(folder / "weights.safetensors")
    for part, value in changes.items():
        del tensors["up.weight" + part]
        if value is not None:
            tensors["up.weight" + part] = value
    save_file(tensors, folder / "weights.safetensors")
    seal(folder, parse_manifest((folder / "manifest.json").read_bytes(), "manifest.json"))
    with pytest.raises(MenagerieError, match=reason), Session(folder):
        pass


def test_layers_are_kept_out_by_name(net: _Net) -> None:
    """What is not rounded is what it was; a name of no layer is a mistake."""
    program = torch.export.export(net, (torch.randn(2, 5, 48), torch.randn(2, 3, 9, 7)))
    options = {"precision": "int8", "keep": "up down.weight"}
    made, _ = run_passes(program, [PassChoice(name="quantise_weights", options=options)])
    kept = {n for n, v in made.state_dict.items() if torch.equal(v, net.state_dict()[n])}
    rounded = {"image.weight", "line.weight", "back.weight"}
    assert kept == set(net.state_dict()) - rounded
    wrong = PassChoice(name="quantise_weights", options={**options, "keep": "uq"})
    with pytest.raises(UsageError, match="'uq', which names no parameter"):
        run_passes(program, [wrong])


def test_layers_to_keep_may_be_of_one_program(tmp_path: Path) -> None:
    """A name that one program has is no mistake in another; one that none has is."""
    torch.manual_seed(0)
    x, first = torch.randn(3, 32), nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    second = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32))
    programs = {"first": (first.eval(), (x,)), "second": (second.eval(), (x,))}
    with pytest.raises(UsageError, match="'3', which names no parameter"):
        convert(programs, precision="int8", keep=["2", "3"], out=tmp_path / "out")
    made = convert(programs, precision="int8", keep=["2"], out=tmp_path / "out", measure_seconds=0)
    rounded = {log.program: {c.parameter for c in log.rounding} for log in made.report.passes}
    assert rounded == {name: {"0.weight", "1.weight"} for name in programs}


class _Tied(nn.Module):
    """Ends with the weight that it begins with, and takes a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.middle = nn.Embedding(40, 32), nn.Linear(32, 32)
        self.end = nn.Linear(32, 40, bias=False)
        self.end.weight = self.begin.weight

    def forward(self, words: torch.Tensor, more: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.end(self.middle(self.begin(words)) + more["x"])


@pytest.mark.parametrize("name", ["begin", "end"])
def test_a_tied_weight_is_kept_by_either_name(name: str, tmp_path: Path) -> None:
    """Also where an input is a container, which lies flat in the program."""
    torch.manual_seed(0)
    given = torch.randint(0, 40, (2, 3)), {"x": torch.randn(2, 3, 32)}
    made = convert(
        _Tied().eval(), given, precision="int8-weight-only", keep=[name], measure_seconds=0,
        out=tmp_path / "out",
    )  # fmt: skip
    rounded = [cost.parameter for log in made.report.passes for cost in log.rounding]
    assert rounded == ["middle.weight"]


@pytest.mark.parametrize("name", ["model.0", "0", "model.0.weight"])
def test_layers_to_keep_may_be_within_a_part_called_model(name: str) -> None:
    """As named_parameters() has them, and as rounding's costs do."""
    wrapper = nn.Module()
    wrapper.model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    wrapper.forward = wrapper.model.forward  # type: ignore[method-assign]
    options = {"precision": "int8", "keep": name}
    program = torch.export.export(wrapper.eval(), (torch.randn(3, 32),))
    made, _ = run_passes(program, [PassChoice(name="quantise_weights", options=options)])
    kept = {n for n, v in wrapper.state_dict().items() if torch.equal(v, made.state_dict[n])}
    assert kept == {"model.0.weight", "model.0.bias", "model.1.bias"}


def test_metal_refuses_and_says_what_to_take(net: _Net, tmp_path: Path) -> None:
    """Its runtime has no such products: neither a module nor an entry gets so far."""
    inputs = torch.randn(2, 5, 48), torch.randn(2, 3, 9, 7)
    with pytest.raises(UsageError, match="Take int8-weight-only"):
        convert(net, inputs, target="metal", precision="int8", out=tmp_path / "out")
    options = ConversionOptions(store=str(tmp_path / "store"), random_weights=0)
    with pytest.raises(UsageError, match="Take int8-weight-only"):
        plan(["digits_cnn"], ["metal"], options, precisions=[Precision.INT8])
    assert not (tmp_path / "out").exists()


class _Inverted(nn.Module):
    """An inverted residual's first layers, whose expanded image is larger than the cache."""

    def __init__(self, turn: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.turn = turn  # of a row's factor from one row to the next
        self.wide, self.slid = nn.Conv2d(36, 403, 1), nn.Conv2d(403, 403, 3, 2, 1, groups=403)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        """(N, 403, H / 2, W / 2) of (N, H, W, 36)."""
        wide = self.wide(places.permute(0, 3, 1, 2))
        if self.turn:
            wide = wide * torch.cos(torch.arange(wide.shape[2]) * self.turn)[None, None, :, None]
        return torch.relu(self.slid(nn.functional.relu6(wide)))


@pytest.mark.parametrize("turn", [0, 0.7])
def test_an_expansion_of_integers_is_computed_with_what_slides_over_it(
    tmp_path: Path, turn: float
) -> None:
    """Each image of a batch is rounded by itself; sums of integers are exact."""
    block = _Inverted(turn).eval().requires_grad_(requires_grad=False)
    places = torch.randn(2, 44, 43, 36)
    places[1] *= 40
    made = convert(block, (places,), precision="int8", out=tmp_path / "out", measure_seconds=0)
    with Session(made.folder, threads=2) as session:
        given = {"places": places.numpy()}
        [actual] = session.run(given).values()
        found = profile(session, lambda: session.run(given), threads=1, seconds=0)
    w = _weights(made.folder)
    image = places.permute(0, 3, 1, 2).numpy()
    factors = np.cos(np.arange(44, dtype=np.float32) * np.float32(turn))[:, None]
    wide = (_convolution(image, w["wide.weight"], w["wide.bias"]) * factors).clip(0, 6)
    slid = nn.functional.conv2d(
        torch.from_numpy(wide), w["slid.weight"], w["slid.bias"], stride=2, padding=1, groups=403
    )
    difference = np.abs(actual - torch.relu(slid).numpy())
    # A number half way between two integers may be rounded to the other one.
    assert np.quantile(difference, 0.999) < 1e-4
    vnni = "avx512_vnni" in Path("/proc/cpuinfo").read_text(encoding="ascii")
    together = [k for k in found.kernels if "by 403x36x1x1 by 403x1x3x3" in k.kernel]
    assert len(together) == (1 if vnni else 0)
