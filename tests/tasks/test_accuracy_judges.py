"""A precision that is judged by accuracy: converted from a manifest, and checked by the promoter.

The promoter's check is called here and not by `zoo release promote`, which starts it in a process.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from real_jobs import converted
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

from menagerie.format.bundle_manifest import Role
from menagerie.format.folder import open_bundle, seal
from transforms.candidate import check_goldens
from zoo.errors import ValidationError
from zoo.manifest import load_manifest
from zoo.report.summary import demand, heading, outputs, summarise

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zoo.records import ConversionReport

ENTRY = """
version: 1
family: Toys
models:
  nearest:
    summary: points by the nearest centre
    source: {kind: factory, builder: "nearest_centre:make"}
    programs:
      - inputs: [{name: input, shape: [n, 32]}]
        outputs: [scores]
        dimensions: {n: {low: 1, high: 50}}
    accuracy: {data: points.safetensors, batch: 50, max_degradation: 0.05}
    precisions: {int8: {}}
    targets: [cpu]
    licence: {spdx: Apache-2.0}
"""
CODE = """
import torch

def make():
    centres = torch.randn(10, 32, generator=torch.Generator().manual_seed(1))
    centres[:, -1] = 0.0
    layer = torch.nn.Linear(32, 10, bias=False)
    layer.weight = torch.nn.Parameter(centres)
    return layer.eval()
"""
SAMPLES = 200


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One entry; points whose last feature is 600, which eight bits have to span."""
    folder = tmp_path_factory.mktemp("manifest")
    (folder / "toys.yaml").write_text(ENTRY)
    (folder / "nearest_centre.py").write_text(CODE)
    generator = torch.Generator().manual_seed(2)
    centres = torch.randn(10, 32, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(10, (SAMPLES,), generator=generator)
    x = centres[labels] + 0.8 * torch.randn(SAMPLES, 32, generator=generator)
    x[:, -1] = 600.0
    save_file({"input": x, "labels": labels}, folder / "points.safetensors")
    return folder


@pytest.fixture(scope="module")
def proven(
    manifest: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ConversionReport]:
    """The entry in int8: its bundle and report."""
    return converted(manifest, "nearest_int8", tmp_path_factory.mktemp("job"))


def test_the_report_says_that_accuracy_judged(proven: tuple[Path, ConversionReport]) -> None:
    """The SNR is below int8's usual 12 dB; heading and table name what judged in its place."""
    _, report = proven
    figures = summarise(report)
    assert figures.worst_snr_db is not None
    assert figures.worst_snr_db < 12
    assert figures.accuracy_judged
    assert heading(report) == "Proven by its accuracy"
    [output] = outputs(report)
    assert demand(output.worst) == "finite where eager's is; accuracy judges"
    gate = report.validation.accuracy
    assert gate is not None
    assert (gate.samples, gate.slack) == (SAMPLES, 10)
    assert 0.9 < gate.artifact < gate.eager + 0.05


def _claim(**changes: Any) -> Callable[[Path], None]:
    def change(bundle: Path) -> None:
        found = open_bundle(bundle, check_hashes=False).manifest
        assert found.accuracy is not None
        seal(bundle, replace(found, accuracy=replace(found.accuracy, **changes)))

    return change


def _tensors(of: Callable[[Any], Any], tensor: str, change: Callable[[Any], Any]) -> Any:
    def forge(bundle: Path) -> None:
        manifest = open_bundle(bundle, check_hashes=False).manifest
        path = bundle / of(manifest).path
        save_arrays({**(kept := load_arrays(path)), tensor: change(kept[tensor])}, path)
        seal(bundle, manifest)

    return forge


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (lambda _: None, ""),
        (_claim(eager_accuracy=0.5), "its accuracy gate is .*0.5"),
        (_claim(slack=150), "its accuracy gate is .*150"),
        (_tensors(lambda m: m.files[Role.ACCURACY], "labels", np.zeros_like), "gate are others"),
        (
            _tensors(lambda m: m.programs[0].golden, "1/output/scores", lambda x: x + 0.5),
            "golden output scores",
        ),
    ],
    ids=["honest", "eager's accuracy", "loss", "data", "goldens"],
)
def test_the_promoter_believes_no_gate(
    proven: tuple[Path, ConversionReport],
    manifest: Path,
    tmp_path: Path,
    forge: Callable[[Path], None],
    words: str,
) -> None:
    """With no SNR to hold a wrong artifact back, eager's count and its data are made again."""
    bundle = shutil.copytree(proven[0], tmp_path / "bundle")
    forge(bundle)
    spec = load_manifest(manifest).spec("nearest_int8")
    given = "nearest_int8", spec, manifest / "toys.yaml", bundle
    if not words:
        check_goldens(*given, allow_factories=True)
        return
    with pytest.raises(ValidationError, match=words):
        check_goldens(*given, allow_factories=True)
