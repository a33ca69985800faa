"""The zoo's own entries: complete, licensed, and really loadable as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from menagerie.numerics import DEFAULT_TOLERANCES
from zoo.manifest import load_manifest
from zoo.sources import load, torchvision
from zoo.sources.context import Context
from zoo.spec import TorchvisionSource

if TYPE_CHECKING:
    from zoo.spec import InputSpec, ProgramSpec

_MANIFEST = load_manifest()
_SMALL = {
    "digits_cnn",
    "mobilenet_v3_small",
    "parakeet_ctc_small",
    "resnet18",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "yolo_style",
}
_NAMES = [
    pytest.param(name, marks=() if name in _SMALL else pytest.mark.sweep)
    for name in _MANIFEST.models
]


def test_default_selection() -> None:
    """What `zoo convert` takes by default: four trained models, and one with random weights."""
    assert set(_MANIFEST.select([])) == {
        "digits_cnn",
        "efficientnet_lite0",
        "resnet18",
        "silero_vad",
        "spoken_digits",
    }


@pytest.mark.parametrize("name", _MANIFEST.models)
def test_terms_are_stated(name: str) -> None:
    """Every entry names a licence and whom to thank."""
    licence = _MANIFEST.spec(name).licence
    assert licence.spdx in {"Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "MIT"}
    assert licence.attribution


def test_torchvision_knows_every_weights_enum() -> None:
    """No enum is misspelt: each belongs to its builder and has a hash in its file's name."""
    for name, spec in _MANIFEST.models.items():
        if not isinstance(spec.source, TorchvisionSource):
            continue
        builder = torchvision._builder(spec.source, Context(name, Path()))
        known = torchvision.library().models.get_model_weights(builder)
        member = next(m for m in known if str(m) == spec.source.weights)
        assert torchvision._FILE_HASH.search(member.url)


@pytest.mark.parametrize(
    "name", [n for n in _NAMES if _MANIFEST.spec(str(n.values[0])).source.kind != "package"]
)
def test_random_model_answers_to_its_input(name: str) -> None:
    """Loaded with a seed and called as written, outputs are finite, sizeable and differ by input.

    A model whose outputs are below the tolerance, or hardly depend on the input, would prove
    nothing of a converter.
    """
    spec = _MANIFEST.spec(name)
    origin = _MANIFEST.origins[name].file
    loaded = load(name, spec, origin=origin, random_weights=0, allow_factories=False)
    for program in spec.programs:
        first, second = (_call(loaded.module, program, seed) for seed in (0, 1))
        for a, b in zip(first, second, strict=True):
            assert bool(a.isfinite().all())
            assert float(a.abs().max()) > 1e3 * DEFAULT_TOLERANCES[spec.dtype].absolute
            assert float((a - b).norm() / a.norm()) > 1e-2


def _call(module: torch.nn.Module, program: ProgramSpec, seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    inputs = {i.name: _draw(i, program) for i in program.inputs}
    with torch.no_grad():
        result = module.get_submodule(program.part)(**inputs, **program.arguments)
    if isinstance(result, torch.Tensor):
        return [result]
    return [result[key] for key in program.outputs]


def _draw(spec: InputSpec, program: ProgramSpec) -> torch.Tensor:
    shape = [s if isinstance(s, int) else program.dimensions[s].low for s in spec.shape]
    dtype = getattr(torch, spec.dtype)
    return torch.randn(shape) if spec.dtype.is_floating else torch.ones(shape, dtype=dtype)
