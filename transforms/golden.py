"""Golden cases: seeded inputs, and what eager PyTorch makes of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from transforms.export import CallableProgram
from transforms.state import FirstState
from zoo.errors import ExportError
from zoo.sources.random_weights import one_thread
from zoo.spec import Dimension, InputSpec, ProgramSpec, SampleKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "GoldenCase",
    "case_dimensions",
    "check_outputs",
    "input_dtype",
    "make_goldens",
    "make_inputs",
    "model_dtype",
    "telling_sizes",
]


@dataclass(frozen=True)
class GoldenCase:
    """One call of a program: sizes of the dynamic dimensions, inputs, and eager's outputs.

    A program that keeps state has runs of such calls, one after another.
    """

    dimensions: dict[str, int]
    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]


def case_dimensions(spec: ProgramSpec) -> list[dict[str, int]]:
    """Sizes for every case: each dimension is seen at an odd middle value, low and high.

    The first case is the middle one, so that it serves as a typical size where one is needed.
    Further cases repeat middle, low and high with other seeds until `golden_cases` are reached.
    """
    cases = telling_sizes(spec.dimensions)
    return [cases[i % len(cases)] for i in range(max(len(cases), spec.golden_cases))]


def telling_sizes(dimensions: Mapping[str, Dimension]) -> list[dict[str, int]]:
    """All dimensions in the middle (odd), all at their lowest, all highest, then mixtures.

    In these one dimension is low among high ones, or high among low ones: any two of n dimensions
    are seen at each pair of their ends, in 2 n cases instead of 2**n.
    """
    if not dimensions:
        return [{}]
    levels = [
        {n: _middle(d) for n, d in dimensions.items()},
        {n: _aligned_up(d.low, d.multiple_of) for n, d in dimensions.items()},
        {n: d.high - d.high % d.multiple_of for n, d in dimensions.items()},
    ]
    _, low, high = levels
    mixed = [
        {**most, name: one[name]} for name in dimensions for one, most in ((low, high), (high, low))
    ]
    return levels + [case for i, case in enumerate(mixed) if case not in mixed[:i] + levels[1:]]


def make_inputs(
    spec: ProgramSpec, dimensions: Mapping[str, int], *, seed: int, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Sample every input of a program.

    Args:
        spec: the program.
        dimensions: a size for each dynamic dimension.
        seed: of this case; each input draws from its own generator, so order does not matter.
        dtype: the model's; inputs declared float32 take it, so that half models get half inputs.
    """
    return {i.name: _sample(i, dimensions, seed, dtype) for i in spec.inputs}


def make_goldens(
    model: torch.nn.Module,
    spec: ProgramSpec,
    *,
    dtype: torch.dtype = torch.float32,
    calls: int = 1,
) -> list[GoldenCase]:
    """Run eager on every case, in one thread: two machines then give the same bytes.

    Args:
        model: the whole model; its buffers are as before when this returns.
        spec: the program.
        dtype: of the model; see `make_inputs`.
        calls: how many follow each other from the first state on, with inputs of their own; only
            of a program with state more than one. The cases are these calls, run after run.

    Raises:
        ExportError: if eager itself fails on a case, naming its sizes; or if its outputs could
            prove nothing: there is none, or one has no finite element in any case.
    """
    module = CallableProgram(model, spec)
    first, cases = FirstState(module), list[GoldenCase]()
    for seed, dimensions in enumerate(d for d in case_dimensions(spec) for _ in range(calls)):
        if seed % calls == 0:
            first.restore()
        try:
            inputs = make_inputs(spec, dimensions, seed=seed, dtype=dtype)
            with torch.no_grad(), one_thread():
                results = module(*(t.clone() for t in inputs.values()))
            outputs = {name: value.clone() for name, value in results.items()}
        except ExportError:
            raise
        except Exception as error:
            nth = f", in call {seed % calls + 1} of {calls} after a reset" if calls > 1 else ""
            raise ExportError(
                f"program {spec.name}",
                f"eager PyTorch fails at {dimensions or 'its fixed sizes'}{nth}: {error}",
                f"Mend the inputs, arguments{', calls' if nth else ''} or ranges in the manifest",
            ) from error
        cases.append(GoldenCase(dict(dimensions), inputs, outputs))
    first.restore()
    check_outputs(f"program {spec.name}", cases)
    return cases


def input_dtype(spec: InputSpec, model_dtype: torch.dtype) -> torch.dtype:
    """What an input has in a model of this dtype: inputs declared float32 take the model's."""
    declared: torch.dtype = getattr(torch, spec.dtype.value)
    return model_dtype if declared is torch.float32 else declared


def model_dtype(model: torch.nn.Module) -> torch.dtype:
    """The dtype of a model's floating parameters, by the first of them; float32 without any."""
    floats = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floats, torch.float32)


def check_outputs(place: str, cases: Sequence[GoldenCase]) -> None:
    """Refuse outputs that can prove nothing: whatever is compared with them is equal.

    Raises:
        ExportError: naming the output.
    """
    for name in cases[0].outputs:
        values = [case.outputs[name] for case in cases]
        if not any(value.numel() for value in values):
            raise ExportError(
                place,
                f"output {name} has no element in any golden case",
                "Enlarge the inputs, or name only the other outputs under `outputs`",
            )
        if not any(bool(value.isfinite().any()) for value in values):
            raise ExportError(
                place,
                f"output {name} of eager PyTorch has no finite element in any golden case",
                "Mend the weights, or the inputs' `sample` in the manifest",
            )


def _aligned_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _middle(dimension: Dimension) -> int:
    """An odd value near the middle; an odd multiple where the dimension has a step."""
    step = dimension.multiple_of
    units = (dimension.low + dimension.high) // 2 // step
    units += 1 - units % 2
    low, high = _aligned_up(dimension.low, step) // step, dimension.high // step
    return min(max(units, low), high) * step


def _sample(
    spec: InputSpec, dimensions: Mapping[str, int], seed: int, dtype: torch.dtype
) -> torch.Tensor:
    shape = tuple(s if isinstance(s, int) else dimensions[s] for s in spec.shape)
    digest = hashlib.sha256(f"{spec.name}:{seed}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    sample = spec.sample
    match sample.kind:
        case SampleKind.NORMAL:
            drawn = torch.randn(shape, generator=generator) * sample.std + sample.mean
        case SampleKind.UNIFORM:
            span = sample.high - sample.low
            drawn = torch.rand(shape, generator=generator) * span + sample.low
        case SampleKind.INTEGERS:
            drawn = torch.randint(int(sample.low), int(sample.high), shape, generator=generator)
        case SampleKind.PREFIX_MASK:
            length = torch.randint(1, shape[-1] + 1, (*shape[:-1], 1), generator=generator)
            drawn = torch.arange(shape[-1]).expand(shape) < length
        case SampleKind.ONES:
            drawn = torch.ones(shape)
    return drawn.to(input_dtype(spec, dtype)).contiguous()
