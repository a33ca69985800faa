"""Hand-made reports: one that passed, one of several programs, and every way to fail."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype
from menagerie.validation.findings import (
    AccuracyResult,
    Bound,
    CaseShape,
    ErrorHistogram,
    Measurement,
    OutputParity,
    ProgramValidation,
    ValidationReport,
    Verdict,
)
from zoo.records import (
    ConversionReport,
    Diagnosis,
    Divergence,
    DivergenceStage,
    LayerCost,
    LoweringRecord,
    PassLog,
    PassRecord,
    Refusal,
    StageTime,
)

MACHINE = "Intel Xeon Processor (Cascadelake), 2 cores, Linux x86_64"
RUNTIME = "menagerie 0.1.0, ABI 1, oneDNN 3.2.0"
STAGES = (
    ("pull", 0.61),
    ("export", 2.31),
    ("transform", 0.48),
    ("lower", 24.7),
    ("validate", 3.92),
)
BELL = (1, 4, 15, 48, 130, 250, 310, 180, 52)  # a plausible spread over half decades


def parity(output: str, case: int, shape: tuple[int, ...], max_abs: float) -> OutputParity:
    """A float32 output that errs by `max_abs`; its elements spread below that."""
    tolerance = DEFAULT_TOLERANCES[Dtype.FLOAT32]
    elements = math.prod(shape)
    top = math.floor(2 * math.log10(max_abs)) if max_abs else 0
    counts = tuple(b * elements // 1000 for b in BELL) if max_abs else ()
    passed = max_abs <= tolerance.absolute
    return OutputParity(
        case=case,
        output=output,
        dtype=Dtype.FLOAT32,
        shape=shape,
        max_abs=max_abs,
        max_rel=max_abs / 8.1,
        snr_db=-20 * math.log10(max_abs / 2.7) if max_abs else math.inf,
        cosine=1 - max_abs**2,
        nonfinite_match=True,
        tolerance=tolerance,
        passed=passed,
        passed_by=Bound.ABSOLUTE if passed else None,
        scale=8.1,
        fact="" if passed else f"max abs error {max_abs:.3g} exceeds 0.0001; worst at [0, 3]",
        errors=ErrorHistogram(
            exact=elements - sum(counts), first=top - len(counts) + 1, counts=counts
        ),
    )


def timing(median: float) -> Measurement:
    """Eighty runs around a median, with a tail."""
    return Measurement(
        minimum_ms=median * 0.94, median_ms=median, p90_ms=median * 1.09, runs=80, threads=2, case=0
    )


def validation(
    *programs: ProgramValidation, accuracy: AccuracyResult | None = None
) -> ValidationReport:
    """What a sound artifact's validation says."""
    return ValidationReport(
        verdict=Verdict.PASSED,
        detail="",
        programs=programs,
        accuracy=accuracy,
        load_ms=61.4,
        peak_memory_bytes=178_520_064,
        second_model_coexists=True,
        machine=MACHINE,
        runtime=RUNTIME,
    )


def _program(name: str, parities: tuple[OutputParity, ...], median: float) -> ProgramValidation:
    cases = sorted({p.case for p in parities})
    return ProgramValidation(
        program=name,
        cases=tuple(CaseShape(case=c, dimensions={}) for c in cases),
        parity=parities,
        deterministic=True,
        latency=timing(median),
        passed=all(p.passed for p in parities),
    )


def _folding() -> PassRecord:
    layers = [f"layer{a}.{b}.conv{c}" for a in (1, 2, 3, 4) for b in (0, 1) for c in (1, 2)]
    return PassRecord(
        name="fold_batch_norm",
        modified=True,
        nodes_before=191,
        nodes_after=112,
        changes=tuple(f"{layer}: batch norm folded into the weight and bias" for layer in layers),
        refusals=(Refusal(node="layer2.0.downsample.0", reason="its weight has a second user"),),
        seconds=0.31,
    )


@pytest.fixture
def resnet() -> ConversionReport:
    """One program with one output in three cases; random weights."""
    outputs = tuple(
        parity("logits", c, (1, 1000), e) for c, e in enumerate((2.1e-6, 1.7e-6, 3.3e-6))
    )
    symbols = (
        "aoti_torch_check",
        "aoti_torch_cpu_addmm_out",
        "aoti_torch_cpu_convolution",
        "aoti_torch_delete_tensor_object",
        "aoti_torch_empty_strided",
        "aoti_torch_get_data_ptr",
        "aoti_torch_get_sizes",
        "aoti_torch_get_strides",
        "aoti_torch_new_tensor_handle",
        "aoti_torch__reinterpret_tensor",
    )
    return ConversionReport(
        model="resnet18",
        summary="Residual network for image classification, 224 by 224 pixels, 1000 classes.",
        target="cpu",
        build_key="5d3cf1f7a60e8b42" * 4,
        source="torchvision resnet18, seeded random weights",
        random_weights=0,
        licence="BSD-3-Clause",
        parameters=11_689_512,
        weights_bytes=46_830_888,
        passes=(PassLog(program="main", records=(_folding(),)),),
        lowering=(
            LoweringRecord(
                program="main",
                library_bytes=213_504,
                symbols=symbols,
                fallback_kernels=("addmm_out", "convolution"),
                generated_kernels=24,
                seconds=24.7,
            ),
        ),
        validation=validation(_program("main", outputs, 23.4)),
        eager_latency=(("main", timing(34.9)),),
        stages=tuple(StageTime(stage=s, seconds=t) for s, t in STAGES),
        versions={"menagerie": "0.1.0", "torch": "2.13.0", "torchvision": "0.28.0"},
        created="2025-03-01T12:00:00Z",
    )


@pytest.fixture
def rounded(resnet: ConversionReport) -> ConversionReport:
    """The same in integers: what rounding each of fourteen layers costs."""
    carried = [
        LayerCost(parameter=f"layer{i}.weight", result_snr_db=35.0 + i, output_snr_db=20.0 + i)
        for i in range(8)
    ]
    others = [
        LayerCost(parameter=f"layer{i}.weight", result_snr_db=35.0 + i, output_snr_db=None)
        for i in range(8, 14)
    ]
    log = resnet.passes[0].model_copy(update={"rounding": (*carried, *others)})
    return resnet.model_copy(update={"passes": (log,)})


@pytest.fixture
def transducer(resnet: ConversionReport) -> ConversionReport:
    """Three programs with dynamic lengths, several outputs, trained weights."""
    lengths = (64, 501, 3000)
    encoder = tuple(
        p
        for case, frames in enumerate(lengths)
        for p in (
            parity("encoded", case, (1, frames // 8, 640), 4e-6 * (case + 1)),
            parity("lengths", case, (1,), 0.0),
        )
    )
    step = tuple(
        p
        for case in range(3)
        for p in (
            parity("hidden", case, (2, 1, 640), 3e-7),
            parity("cell", case, (2, 1, 640), 6e-7 * (case + 1)),
            parity("decoded", case, (1, 1, 640), 2e-7),
        )
    )
    joint = tuple(parity("logits", case, (1, 1, 8198), 9e-6) for case in range(3))
    programs = [_program("encoder", encoder, 81.0), _program("decoder_step", step, 1.9)]
    programs.append(_program("joint", joint, 3.2))
    shapes = tuple(CaseShape(case=c, dimensions={"frames": n}) for c, n in enumerate(lengths))
    programs[0] = replace(programs[0], cases=shapes)
    first = resnet.lowering[0]
    return resnet.model_copy(
        update={
            "model": "parakeet_tdt_small",
            "summary": "Speech recognition: a conformer encoder and a token-and-duration decoder.",
            "random_weights": None,
            "parameters": 13_700_000,
            "weights_bytes": 54_800_000,
            "passes": tuple(
                PassLog(program=p.program, records=resnet.passes[0].records[:1]) for p in programs
            ),
            "lowering": tuple(
                first.model_copy(update={"program": p.program, "library_bytes": n})
                for p, n in zip(programs, (1_420_000, 240_000, 150_000), strict=True)
            ),
            "validation": validation(
                *programs, accuracy=AccuracyResult(samples=360, eager=0.975, artifact=0.975)
            ),
            "eager_latency": tuple(
                (p.program, timing(t)) for p, t in zip(programs, (124.0, 1.7, 4.0), strict=True)
            ),
        }
    )


@pytest.fixture
def diverged(resnet: ConversionReport) -> ConversionReport:
    """The second case is out of tolerance by far, since a pass broke a convolution."""
    outputs = (
        parity("logits", 0, (1, 1000), 2.1e-6),
        parity("logits", 1, (1, 1000), 3.1e-2),
        parity("logits", 2, (1, 1000), 0.0),
    )
    program = _program("main", outputs, 23.4)
    failed = replace(
        validation(program),
        verdict=Verdict.DIVERGED,
        detail=f"program main, case 1, output logits: {outputs[1].fact}",
    )
    found = Divergence(
        stage=DivergenceStage.PASSES,
        pass_name="fold_batch_norm",  # noqa: S106 - no password
        node="conv2d_3",
        operator="aten.conv2d.default",
        module_path="layer1.0.conv2",
        source_line="models/resnet.py:92",
        max_abs=0.25,
        snr_db=3.5,
        reproducer=Path("reports") / "resnet18" / "divergence",
    )
    diagnosis = Diagnosis(program="main", case=1, divergence=found)
    return resnet.model_copy(update={"validation": failed, "diagnosis": diagnosis})


@pytest.fixture
def crashed(resnet: ConversionReport) -> ConversionReport:
    """The process died before anything was measured."""
    dead = ValidationReport(
        verdict=Verdict.CRASHED,
        detail="killed by SIGSEGV in program main, case 1",
        programs=(),
        machine=MACHINE,
    )
    return resnet.model_copy(update={"validation": dead})
