"""DecomposeStft: spectra equal to eager's FFT up to rounding, and no complex number left."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from menagerie.session import Session
from tests.examples import examples
from transforms import convert
from transforms.export.trace import dynamic_shapes, trace
from transforms.graph.callable import eager_of
from transforms.graph.graph_pass import check_program
from transforms.lowering.cpu import BACKEND
from transforms.lowering.inductor import generate_code
from transforms.passes.decompose_stft import DecomposeStft
from zoo.errors import UnsupportedKernels
from zoo.spec import Dimension, InputSpec, ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch.export import ExportedProgram

# Rounding the basis and summing N products in float32 leaves noise of about sqrt(N) 2^-24 of the
# signal: 110 dB at N = 64; an error in one term or one bin stays far below 60 dB.
FEWEST_DB = {torch.float32: 110.0, torch.float64: 260.0}

pytestmark = pytest.mark.filterwarnings(
    "ignore:A window was not provided:UserWarning",
    "ignore:stft with return_complex=False:UserWarning",
)


def _stage(program: ExportedProgram, stage: str) -> ExportedProgram:
    if stage == "training":
        return program
    return program.run_decompositions({} if stage == "functional" else None)


def _one_stage_always(cases: Iterable[str], *stages: str) -> list[Any]:
    """Each case in each stage: in one of them in turn always, in the others in the sweep."""
    return [
        pytest.param(case, stage, marks=[pytest.mark.sweep] * (stage != always))
        for case, always in zip(cases, itertools.cycle(stages), strict=False)
        for stage in stages
    ]


def _complex_left(program: ExportedProgram) -> list[str]:
    values = {n.name: n.meta.get("val") for n in program.graph.nodes}
    return [n for n, v in values.items() if isinstance(v, torch.Tensor) and v.is_complex()]


def _flat(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _assert_equal(actual: Any, expected: Any) -> None:
    for out, ref in zip(_flat(actual), _flat(expected), strict=True):
        assert out.shape == ref.shape
        assert out.dtype == ref.dtype
        noise = (out - ref).double().norm()
        level = 20 * torch.log10(ref.double().norm() / noise)
        assert noise == 0 or level >= FEWEST_DB[ref.dtype]


class Spectrum(nn.Module):
    """torch.stft of the input, and something made of it."""

    def __init__(self, consumer: Any, window: torch.Tensor | None = None, **options: Any) -> None:
        super().__init__()
        self.consumer, self.options = consumer, options
        self.register_buffer("window", window)

    def forward(self, signal: torch.Tensor) -> Any:
        """A spectrum, consumed."""
        options = {"return_complex": True, **self.options}
        return self.consumer(torch.stft(signal, window=self.window, **options))


class Rfft(nn.Module):
    """torch.fft.rfft of the input, and something made of it."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__()
        self.consumer, self.options = consumer, options

    def forward(self, signal: torch.Tensor) -> Any:
        """A spectrum, consumed."""
        return self.consumer(torch.fft.rfft(signal, **self.options))


CONSUMERS = {
    "magnitude": torch.abs,
    "power": lambda z: z.abs() ** 2,
    "square": lambda z: z.abs().square(),
    "self_product": lambda z: (m := z.abs()) * m,
    "both": lambda z: (z.abs(), z.abs().pow(2)),
    "pair": torch.view_as_real,
    "pair_power": lambda z: torch.view_as_real(z).pow(2).sum(-1),
    "parts": lambda z: (z.real, z.imag),
    "conjugate": lambda z: z.conj().imag,
    "conjugate_product": lambda z: (z * z.conj()).real,
    "trimmed": lambda z: z[..., :-1].abs() ** 2,
    "swapped": lambda z: z.transpose(-1, -2).abs(),
    "reshaped": lambda z: z.reshape(-1, 1).abs(),
    "scaled": lambda z: (z / 3.0).abs() + (z * torch.full((), 0.5, dtype=z.real.dtype)).real,
    # eager may view what the planes' strides forbid
    "viewed": lambda z: z.abs().transpose(-1, -2).contiguous().view(-1),
    "viewed_pair": lambda z: torch.view_as_real(z).transpose(-2, -3).flatten(),
    "viewed_slice": lambda z: torch.view_as_real(z.unsqueeze(0)).transpose(-2, -3).flatten(),
}


@settings(max_examples=examples(10, 25), deadline=None)
@given(data=st.data())
def test_spectrum_equals_eager(data: st.DataObject) -> None:
    """For every option of torch.stft, consumer and stage of the graph the numbers stay."""
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 2**31)))
    n_fft = draw(st.sampled_from([8, 15, 32, 64]))
    width = draw(st.sampled_from([n_fft, n_fft - 3]))
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.float64]))
    window = torch.rand(width, dtype=dtype) if draw(st.booleans()) else None
    module = Spectrum(
        CONSUMERS[draw(st.sampled_from(sorted(CONSUMERS)))],
        window,
        n_fft=n_fft,
        win_length=width,
        hop_length=draw(st.sampled_from([None, 3, n_fft])),
        center=draw(st.booleans()),
        pad_mode=draw(st.sampled_from(["reflect", "constant", "replicate"])),
        normalized=draw(st.booleans()),
        onesided=draw(st.sampled_from([None, True, False])),
    )
    signal = torch.randn(*draw(st.sampled_from([(), (1,), (3,)])), 140, dtype=dtype)
    program = torch.export.export(module, (signal,), strict=False)
    program = _stage(program, draw(st.sampled_from(["training", "functional", "core"])))
    result, record = DecomposeStft()(program)
    assert record.modified
    assert not record.refusals
    assert not _complex_left(result)
    _assert_equal(result.module()(signal), module(signal))


@settings(max_examples=examples(6, 12), deadline=None)
@given(
    axis=st.sampled_from([-1, 1, 0]),
    norm=st.sampled_from([None, "backward", "ortho", "forward"]),
    consumer=st.sampled_from(sorted(CONSUMERS)),
    stage=st.sampled_from(["training", "functional", "core"]),
)
def test_rfft_equals_eager(axis: int, norm: str | None, consumer: str, stage: str) -> None:
    """A real FFT over any one axis, in any normalisation, is the same matrix product."""
    torch.manual_seed(0)
    module = Rfft(CONSUMERS[consumer], dim=axis, norm=norm)
    signal = torch.randn(12, 12, 12)  # equal sizes: only the axis itself distinguishes them
    program = _stage(torch.export.export(module, (signal,), strict=False), stage)
    result, record = DecomposeStft()(program)
    assert record.modified
    assert not _complex_left(result)
    _assert_equal(result.module()(signal), module(signal))


@pytest.mark.parametrize("rank", [1, 2])
def test_core_operator_with_centre_equals_eager(rank: int) -> None:
    """aten.stft.center, which pads by itself, is understood as well as torch.stft's own padding."""

    class Centred(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.ops.aten.stft.center(x, 16, 4, 16, None, True, "reflect", False, None, True)
            return y.abs()

    signal = torch.randn(50) if rank == 1 else torch.randn(2, 50)
    program = torch.export.export(Centred(), (signal,), strict=False)
    result, record = DecomposeStft()(program)
    assert record.modified
    _assert_equal(result.module()(signal), Centred()(signal))


def test_real_output_form_is_replaced() -> None:
    """return_complex=False yields real and imaginary parts on a last axis of two."""
    module = Spectrum(lambda y: y.pow(2).sum(-1), torch.rand(20), n_fft=20, return_complex=False)
    signal = torch.randn(2, 90)
    result, record = DecomposeStft()(torch.export.export(module, (signal,), strict=False))
    assert record.modified
    assert not any("stft" in str(n.target) for n in result.graph.nodes)
    _assert_equal(result.module()(signal), module(signal))


class MelFrontEnd(nn.Module):
    """Log-mel features as speech models make them: emphasis, STFT, power, mel filters, log."""

    def __init__(self, *, computed_window: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.computed_window = computed_window
        self.register_buffer("window", torch.hann_window(48, periodic=False))
        self.register_buffer("filters", torch.rand(33, 10))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Signal (batch, samples) to features (batch, frames, 10)."""
        emphasised = torch.cat([signal[:, :1], signal[:, 1:] - 0.97 * signal[:, :-1]], dim=1)
        window = torch.hann_window(48, periodic=False) if self.computed_window else self.window
        spectrum = torch.stft(emphasised, 64, 16, 48, window=window, return_complex=True)
        power = torch.view_as_real(spectrum).pow(2).sum(-1)
        mel = power.transpose(1, 2) @ self.filters
        return torch.log(mel + 2**-24)


def _export_dynamic(module: nn.Module) -> ExportedProgram:
    length = torch.export.Dim("length", min=100, max=1000)
    return torch.export.export(
        module,
        (torch.randn(2, 400),),
        dynamic_shapes=({1: length},),
        strict=False,
        prefer_deferred_runtime_asserts_over_guards=True,  # torch cannot prove stft's own guards
    )


@pytest.mark.parametrize("stage", ["training", "functional", "core"])
@pytest.mark.parametrize("computed_window", [False, True])
def test_mel_front_end_of_any_length_equals_eager(stage: str, computed_window: bool) -> None:
    """A whole speech front end keeps its numbers at the shortest, an odd and the longest signal."""
    module = MelFrontEnd(computed_window=computed_window)
    program = _stage(_export_dynamic(module), stage)
    result, record = DecomposeStft()(program)
    assert record.modified
    assert not _complex_left(result)
    check_program(result, "test")
    for size in (100, 333, 1000):
        signal = torch.randn(2, size)
        # the logarithm turns a relative error of the power into an absolute one
        torch.testing.assert_close(result.module()(signal), module(signal), rtol=1e-5, atol=1e-5)


def test_lowered_code_needs_no_fft_kernel() -> None:
    """Inductor makes matrix products and loops of the front end, and falls back to nothing else."""
    result, _ = DecomposeStft()(_stage(_export_dynamic(MelFrontEnd()), "functional"))
    options = {"aot_inductor.package": True, "aot_inductor.package_constants_in_so": False}
    code = generate_code(result, {**options, "aot_inductor.link_libtorch": False}, BACKEND)
    assert set(code.kernel_uses) <= {"aoti_torch_cpu_mm_out", "aoti_torch_cpu_bmm_out"}


def test_new_nodes_know_where_they_come_from() -> None:
    """Every inserted node has a fake value, and the source line of the transform."""
    program = torch.export.export(MelFrontEnd(), (torch.randn(2, 400),), strict=False)
    result, _ = DecomposeStft()(program)
    known = {n.name for n in program.graph.nodes}
    fresh = [n for n in result.graph.nodes if n.name not in known and n.op == "call_function"]
    assert fresh
    assert all("val" in n.meta and "stft" in n.meta["stack_trace"] for n in fresh)


def test_a_program_read_from_a_file_is_rewritten() -> None:
    """There the output says its values, too, as calls do."""
    module, signal, file = Rfft(torch.abs), torch.randn(3, 16), io.BytesIO()
    torch.export.save(torch.export.export(module, (signal,), strict=False), file)
    result, record = DecomposeStft()(torch.export.load(io.BytesIO(file.getvalue())))
    assert record.modified
    _assert_equal(result.module()(signal), module(signal))


def test_original_program_is_untouched() -> None:
    """The program handed in still has its transform and still computes."""
    module, signal = MelFrontEnd(), torch.randn(2, 400)
    program = torch.export.export(module, (signal,), strict=False)
    DecomposeStft()(program)
    assert any("stft" in str(n.target) for n in program.graph.nodes)
    torch.testing.assert_close(program.module()(signal), module(signal))


def _write_into_view(z: torch.Tensor) -> torch.Tensor:
    parts = torch.view_as_real(z)
    parts.select(-1, 1).mul_(2.0)
    return z.abs()


@pytest.mark.parametrize(
    ("consumer", "reason"),
    [
        (lambda z: z, "returns complex numbers"),
        (lambda z: torch.linalg.matrix_exp(z[..., :5, :5]).abs(), "no form in real and imaginary"),
        (lambda z: torch.fft.ifft(z, n=8192).abs(), "8192 samples is too large"),
        (
            lambda z: (z[:, :4, :4] * torch.linalg.eigvals(z.real[..., :4, :4])[..., None]).abs(),
            "also takes",
        ),
        (lambda z: torch.istft(z, 8, 2, return_complex=True, onesided=False).abs(), "a complex"),
    ],
    ids=["output", "matrix", "inverse", "stranger", "istft"],
)
def test_refuses_with_a_reason_and_changes_nothing(consumer: Any, reason: str) -> None:
    """Where the planes do not carry, the pass says why and hands back the very same program."""
    module = Spectrum(consumer, n_fft=8, hop_length=2, onesided="a complex" not in reason)
    program = torch.export.export(module, (torch.randn(5, 40),), strict=False)
    result, record = DecomposeStft()(program)
    transforms = [r for r in record.refusals if r.node == "stft"]
    assert result is program
    assert not record.modified
    assert reason in transforms[0].reason


_REAL_AGAIN = {
    "cube": lambda z: (z**3).imag,
    "root": lambda z: ((z + 9) ** 0.5).real,
    "angle": lambda z: torch.angle(z).cos(),  # on the cut a rounding turns it by a whole turn
    "complex scalar": lambda z: (z * (1 + 2j)).real,
    "reciprocal": lambda z: (1.0 / (z + 9)).abs(),
    "divisor": lambda z: (z.abs() / (z + 9)).real,
    "sum": lambda z: (z + z.conj() - z.mean(-1, keepdim=True)).abs(),
    "parts of an axis": lambda z: tuple(part.abs() for part in z.unbind(0)),
    "halves": lambda z: z.chunk(2, -1)[1].imag,
    "exponential": lambda z: (z * 0.1).exp().real,
    "square": lambda z: (z**2).real + z.square().imag,
    "joined": lambda z: torch.cat([z, z * 2], 1).abs(),
    "correlation": lambda z: (z @ z.mH).real,
    "product of an equation": lambda z: torch.einsum("bft,bgt->bfg", z, z.conj()).abs(),
    "chosen": lambda z: torch.where(z.abs() > 1, z, z * 0.5).imag,
    "phase kept": lambda z: torch.view_as_real(torch.polar(z.abs().sqrt(), z.angle())),
    "inverse": lambda z: torch.istft(z, 16, 4),
    "inverse of odd hops": lambda z: torch.istft(z, 16, 5, window=torch.hann_window(16)),
    "shorter": lambda z: torch.istft(z, 16, 4, length=60),
    "longer": lambda z: torch.istft(z, 16, 4, length=90),
    "inverse of a narrow window": lambda z: torch.istft(z, 16, 4, 12, torch.hann_window(12)),
    "inverse, normalised": lambda z: torch.istft(z, 16, 4, normalized=True, center=False),
    "inverse of frames": lambda z: torch.fft.irfft(z, n=21, dim=1),
    "inverse of odd frames": lambda z: torch.fft.irfft(z, n=7, dim=1, norm="ortho"),
    "inverse of other scale": lambda z: torch.fft.irfft(z, dim=-2, norm="forward") / 16,
    "inverse of bins": lambda z: torch.fft.ifft(z, dim=1).real,
    "inverse of two axes": torch.fft.irfft2,
    "given sizes, back": lambda z: torch.fft.irfftn(z, s=(5, 20), dim=(0, 2), norm="ortho"),
    "of bins again": lambda z: torch.fft.fft2(z, s=(12, -1), norm="forward").abs(),
    "of bins along all axes": lambda z: torch.fft.ifftn(z).imag,
    "of Hermitian bins": lambda z: torch.fft.hfft(z, n=13),
    "of Hermitian bins along two axes": lambda z: torch.fft.hfft2(z, norm="ortho"),
    "masked": lambda z: torch.istft(z * z.abs().sigmoid(), 16, 4),
    "written": lambda z: z.mul_(2.0).abs(),
    "written through a view": _write_into_view,
}


@pytest.mark.filterwarnings("ignore:The length of signal is shorter")
@pytest.mark.parametrize(("consumer", "stage"), _one_stage_always(_REAL_AGAIN, "training", "core"))
def test_what_was_complex_is_real_and_equal(consumer: str, stage: str) -> None:
    """Complex arithmetic and inverse transforms, by what eager computes."""
    torch.manual_seed(0)
    module, signal = Spectrum(_REAL_AGAIN[consumer], n_fft=16, hop_length=4), torch.randn(2, 80)
    program = _stage(torch.export.export(module, (signal,), strict=False), stage)
    result, record = DecomposeStft()(program)
    assert not record.refusals
    assert not _complex_left(result)
    _assert_equal(result.module()(signal), module(signal))


@pytest.mark.filterwarnings("ignore:The length of signal is shorter")
@pytest.mark.parametrize(
    "consumer", [c for c in _REAL_AGAIN if "inverse" in c or c in ("masked", "sum", "joined")]
)
def test_inverses_serve_every_batch(consumer: str) -> None:
    """The batch is dynamic, and stays so."""
    torch.manual_seed(0)
    module = Spectrum(_REAL_AGAIN[consumer], n_fft=16, hop_length=4)
    batch = ({0: torch.export.Dim("batch", min=2, max=9)},)
    program = torch.export.export(module, (torch.randn(3, 80),), dynamic_shapes=batch, strict=False)
    result, record = DecomposeStft()(program)
    assert not record.refusals
    assert result.range_constraints == program.range_constraints
    for count in (2, 9):
        signal = torch.randn(count, 80)
        _assert_equal(result.module()(signal), module(signal))


def test_parts_that_are_written_afterwards_are_copied() -> None:
    """`torch.complex` copies them, and so do its planes."""

    class Written(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            parts = a + 1
            z = torch.complex(parts, b)
            parts.add_(1)
            return z.abs() + parts

    given = torch.randn(3), torch.randn(3)
    result, record = DecomposeStft()(torch.export.export(Written(), given, strict=False))
    assert record.modified
    _assert_equal(result.module()(*given), Written()(*given))


@pytest.mark.parametrize("stage", ["training", "core"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_real_bins_are_turned_back(dtype: torch.dtype, stage: str) -> None:
    """`irfft` of numbers that are not complex."""

    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.irfft(x, n=14) + torch.fft.irfft(x, norm="ortho", dim=0)[:1, :1]

    bins = (torch.randn(5, 9) * 3).to(dtype)
    program = _stage(torch.export.export(Inverse(), (bins,), strict=False), stage)
    result, record = DecomposeStft()(program)
    assert len(record.changes) == 2
    assert not _complex_left(result)
    _assert_equal(result.module()(bins), Inverse()(bins))


class Rotary(nn.Module):
    """Rotary embeddings by complex numbers, of a constant or of an input."""

    def __init__(self) -> None:
        super().__init__()
        turns = torch.outer(torch.arange(16.0), 10.0 ** -torch.arange(4))
        self.register_buffer("turns", torch.polar(torch.ones_like(turns), turns), persistent=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries [batch, 16, heads, 8] turned twice."""
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        given = torch.polar(torch.ones_like(angles), angles)
        turned = (torch.view_as_real(pairs * t[None, :, None]) for t in (self.turns, given))
        first, second = (t.flatten(3).type_as(x) for t in turned)
        return first, second


@pytest.mark.parametrize("stage", ["training", "functional", "core"])
def test_rotary_embeddings_are_real_and_equal(stage: str) -> None:
    """`view_as_complex`, `polar` and a complex buffer, for any batch."""
    given = (torch.randn(2, 16, 3, 8), torch.randn(16, 4))
    sizes = ({0: torch.export.Dim("batch", max=9)}, {})
    program = torch.export.export(Rotary(), given, dynamic_shapes=sizes, strict=False)
    result, record = DecomposeStft()(_stage(program, stage))
    assert not record.refusals
    assert not _complex_left(result)
    for x in (given[0], torch.randn(5, 16, 3, 8)):
        _assert_equal(result.module()(x, given[1]), Rotary()(x, given[1]))


def test_refuses_frames_longer_than_allowed() -> None:
    """A transform over a whole long signal would need a basis of its square: refused by size."""
    program = torch.export.export(Rfft(torch.abs), (torch.randn(65),), strict=False)
    result, record = DecomposeStft(largest_frame=64)(program)
    assert result is program
    assert "too large" in record.refusals[0].reason


def test_refuses_a_length_that_is_not_fixed(tmp_path: Path) -> None:
    """A transform over a dynamic axis has no constant basis, and the refusal says so."""
    sizes = ({1: torch.export.Dim("length", min=100, max=1000)},)
    with pytest.raises(UnsupportedKernels, match=r"the length of an axis of .* is not fixed"):
        convert(Rfft(torch.abs), (torch.ones(2, 400),), dynamic_shapes=sizes, out=tmp_path / "out")


_OF_REAL = {
    "padded": lambda x: torch.fft.rfft(x, n=16),
    "cut": lambda x: torch.fft.rfft(x, n=9, dim=1),
    "both signs": torch.fft.fft,
    "both signs, back": lambda x: torch.fft.ifft(x, dim=0),
    "two axes": torch.fft.rfft2,
    "two other axes": lambda x: torch.fft.rfftn(x, dim=(2, 0), norm="ortho"),
    "given sizes": lambda x: torch.fft.rfftn(x, s=(4, 15)),
    "all axes": lambda x: torch.fft.fftn(x, norm="forward"),
    "Hermitian": lambda x: torch.fft.ihfft(x, n=11),
    "Hermitian along all axes": torch.fft.ihfftn,
}


@pytest.mark.parametrize(
    ("transform", "stage"), _one_stage_always(_OF_REAL, "training", "functional", "core")
)
def test_transforms_of_real_signals_equal_eager(transform: str, stage: str) -> None:
    """Of other lengths, of several axes and of both signs; in double precision."""
    torch.manual_seed(0)
    make = _OF_REAL[transform]

    class Transform(nn.Module):
        def forward(self, signal: torch.Tensor) -> torch.Tensor:
            """A spectrum's parts."""
            return torch.view_as_real(make(signal).resolve_conj())

    signal = torch.randn(5, 7, 12, dtype=torch.float64)
    program = _stage(torch.export.export(Transform(), (signal,), strict=False), stage)
    result, record = DecomposeStft()(program)
    assert not record.refusals
    assert not _complex_left(result)
    _assert_equal(result.module()(signal), Transform()(signal))


class FourierOperator(nn.Module):
    """Mixes channels at the lowest frequencies of a field (arXiv 2010.08895)."""

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        shape = (2, channels, channels, modes, modes)
        self.weight = nn.Parameter(torch.randn(*shape, dtype=torch.complex64) / channels)

    def forward(self, field: torch.Tensor) -> torch.Tensor:
        """From (batch, channels, height, width) to the same."""
        bins, kept = torch.fft.rfft2(field), self.modes
        mixed = torch.zeros_like(bins)
        for sign, rows in zip(self.weight, (slice(kept), slice(-kept, None)), strict=True):
            mixed[:, :, rows, :kept] = torch.einsum(
                "bixy,ioxy->boxy", bins[:, :, rows, :kept], sign
            )
        return torch.fft.irfft2(mixed, s=field.shape[-2:]) + field


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_a_fourier_operator_is_proven(target: str, tmp_path: Path) -> None:
    """Through the front door, weights and all."""
    torch.manual_seed(0)
    given = (torch.randn(2, 3, 16, 24),)
    convert(FourierOperator(3, 5), given, target=target, out=tmp_path / "out", measure_seconds=0)


def test_quantised_and_bfloat16_graphs_come_through_unharmed() -> None:
    """A graph with quantisation, bfloat16 and no transform is handed back as it was."""

    class Quantised(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
            return q.to(torch.bfloat16) @ q.to(torch.bfloat16).t()

    program = torch.export.export(Quantised(), (torch.randn(3, 4),), strict=False)
    result, record = DecomposeStft()(program)
    assert result is program
    assert not record.refusals


def test_quantised_spectrum_keeps_its_quantisation() -> None:
    """Fake quantisation around a transform is as it was; only the transform is replaced."""

    def quantised(z: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(z.abs(), 0.25, 0, 0, 255)

    module, signal = Spectrum(quantised, n_fft=16), torch.randn(2, 60)
    program = torch.export.export(module, (signal,), strict=False).run_decompositions({})
    result, record = DecomposeStft()(program)
    assert record.modified
    counts = [sum("fake_quant" in str(n.target) for n in p.graph.nodes) for p in (program, result)]
    assert counts[0] == counts[1] > 0
    # a value on the edge between two steps may fall to either side
    expected = module(signal)
    assert (result.module()(signal) - expected).abs().max() <= 0.25
    assert ((result.module()(signal) - expected).abs() > 0).float().mean() < 0.01


_LENGTHS = (600, 601, 639, 640, 641, 703, 720, 1599, 1600)


@pytest.mark.parametrize(
    ("center", "pad_mode"), [(True, "reflect"), (True, "constant"), (False, "reflect")]
)
@pytest.mark.parametrize(
    ("n_fft", "hop", "width"),
    [
        (127, 50, 100),
        *(
            pytest.param(*frames, marks=pytest.mark.sweep)
            for frames in ((256, 160, 256), (400, 160, 400), (64, 48, 33))
        ),
    ],
)
def test_one_program_serves_every_length(
    n_fft: int, hop: int, width: int, center: bool, pad_mode: str
) -> None:
    """Signals of any length in the range, multiples of the hop or not, down to two frames."""

    class Power(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(width))

        def forward(self, signal: torch.Tensor) -> torch.Tensor:
            options = {"center": center, "pad_mode": pad_mode, "return_complex": True}
            return torch.stft(signal, n_fft, hop, width, self.window, **options).abs().square()

    module = Power()
    spec = ProgramSpec(
        inputs=(InputSpec(name="signal", shape=("batch", "samples")),),
        dimensions={
            "batch": Dimension(low=1, high=3),
            "samples": Dimension(low=_LENGTHS[0], high=_LENGTHS[-1]),
        },
    )
    draw = torch.Generator().manual_seed(0)
    example, inner = (torch.randn(2, 733, generator=draw),), eager_of(module, spec).module
    program = trace("program main", inner, example, shapes=(dynamic_shapes(spec),))
    result, record = DecomposeStft()(program)
    assert record.modified
    assert result.range_constraints == program.range_constraints
    assert {(r.lower, r.upper) for r in result.range_constraints.values()} == {(1, 3), (600, 1600)}
    call = result.module()
    for length in _LENGTHS:
        signal = torch.randn(1 + length % 3, length, generator=draw)
        _assert_equal(call(signal)["output"], module(signal))


def test_half_a_frame_is_multiplied() -> None:
    """Two products with pairs of samples, without those that the window makes zero at both ends."""
    module = Spectrum(torch.abs, torch.hann_window(40), n_fft=64, win_length=40, hop_length=16)
    program = torch.export.export(module, (torch.randn(1, 400),), strict=False)
    result, _ = DecomposeStft()(program)
    shapes = {n: tuple(v.shape) for n, v in result.state_dict.items() if "sines" in n}
    # samples 13 to 32 of 64 with their partners: a Hann window's first is zero, too
    assert shapes == {"fourier_cosines_64": (20, 33), "fourier_sines_64": (20, 33)}
    # a library is given each weight's memory whole
    assert all(v.untyped_storage().nbytes() == v.nbytes for v in result.state_dict.values())


class Enhancer(nn.Module):
    """A spectrum masked and turned back into a signal, and rotary embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = Rotary()

    def forward(self, signal: torch.Tensor, x: torch.Tensor, angles: torch.Tensor) -> Any:
        """The signal, and the turned queries."""
        window = torch.hann_window(32)
        spectrum = torch.stft(signal, 32, 8, window=window, return_complex=True)
        masked = spectrum * spectrum.abs().sigmoid()
        return torch.istft(masked, 32, 8, window=window), self.rotary(x, angles)


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_programs_with_complex_numbers_are_proven(target: str, tmp_path: Path) -> None:
    """Through the front door, where they end as real numbers."""
    given = (torch.randn(2, 400), torch.randn(2, 16, 3, 8), torch.randn(16, 4))
    convert(Enhancer(), given, target=target, out=tmp_path / "out", measure_seconds=0)


class _Denoiser(nn.Module):
    """Spectra turned back into signals that are as long as those that they are of, or longer."""

    def forward(self, signal: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """By hops that divide a frame and others, with a window and without."""
        length, window = signal.shape[-1], torch.hann_window(32)
        even = torch.stft(signal, 32, 8, window=window, return_complex=True)
        odd = torch.stft(signal, 32, 5, window=window, return_complex=True)
        plain = torch.stft(signal, 32, 8, center=False, normalized=True, return_complex=True)
        return (
            torch.istft(even, 32, 8, window=window, length=length),
            torch.istft(odd, 32, 5, window=window, length=length),
            torch.istft(plain, 32, 8, center=False, normalized=True, length=length + 9),
            even.istft(32, 8, window=window, length=40),
        )


def test_signals_keep_a_length_that_is_not_fixed(tmp_path: Path) -> None:
    """Torch reads the length as a number, which was that of the example."""
    shapes = {"signal": {1: Dim("length", min=64, max=500)}}
    out, module = tmp_path / "out", _Denoiser()
    convert(module, (torch.randn(2, 400),), dynamic_shapes=shapes, out=out, measure_seconds=0)
    with Session(out) as session:
        for length in (64, 71, 72, 333, 500):
            signal = torch.randn(2, length)
            results = session.run({"signal": signal.numpy()}).values()
            _assert_equal(tuple(torch.from_numpy(x.copy()) for x in results), module(signal))
