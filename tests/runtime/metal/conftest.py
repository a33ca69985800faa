"""The Metal runtime on this machine's device, and small bundles for it, lowered for real."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "cases"))

from manifests import draft_manifest
from quantised_products import PackedProducts, PackedRest, Quantised
from shim_device import KINDS, Device

from menagerie.format.bundle_manifest import BundleProgram, Requirements, TensorSpec, unsealed
from menagerie.format.folder import seal
from menagerie.host import RUNTIME_ABI
from menagerie.numerics import Dtype
from transforms import run_passes
from transforms.lowering import metal
from transforms.lowering.inductor import metal_header
from transforms.lowering.metal_codegen import metal_code
from transforms.lowering.result import host_requirements
from transforms.targets import target_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@pytest.fixture(scope="session")
def device() -> Device:
    """The Metal runtime's shims, called by name."""
    return next(Device(kind) for kind in KINDS if kind.target == "metal")


class Net(nn.Module):
    """Convolutions, one of them of a channels-last image, views, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits [N, 5] of an image [N, 3, H, W]."""
        x = torch.relu(self.stem(image)).to(memory_format=torch.channels_last)
        left, right = torch.relu(self.depthwise(x)).split(4, 1)
        return self.head(torch.cat((right, left * 2), 1).mean((2, 3)))


class Mixer(nn.Module):
    """A linear layer and softmax: another model than `Net`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Mixed rows [N, 6]."""
        return torch.softmax(self.layer(rows), -1) @ rows.t()


MODELS: Mapping[str, tuple[type[nn.Module], str, tuple[int, ...]]] = {
    "net": (Net, "image", (1, 3, 10, 10)),
    "mixer": (Mixer, "rows", (4, 6)),
    "packed": (PackedProducts, "rows", (40, 96)),
    "rest": (PackedRest, "rows", (4, 96)),
}
_ALL = ("net", "mixer")


def _lower(
    program: torch.export.ExportedProgram, folder: Path, name: str
) -> Mapping[str, torch.Tensor]:
    """Writes the shaders and the library to emulate; the Mach-O library is a placeholder."""
    inner = f"programs/{name}"
    own = folder / inner
    own.mkdir(parents=True)
    finished, _ = run_passes(program, target_named("metal").device_passes, target="metal")
    code = metal._generate(name, finished)
    parts = metal_code(code.wrapper, code.shaders, name, f"{inner}/kernels.metal")
    (own / "kernels.metal").write_text(parts.shaders)
    (own / "model.dylib").write_bytes(b"not for this system")
    (folder / "shaders.h.metal").write_text(metal_header())
    metal._emulation(parts, own)
    return code.constants


def _program(
    folder: Path, name: str, model: str, weights: dict[str, torch.Tensor]
) -> BundleProgram:
    """Lowers a model as one program, with one golden case, and adds its weights to the others."""
    kind, argument, shape = MODELS[model]
    torch.manual_seed(7)
    module, value = kind().eval(), torch.randn(shape)
    with torch.no_grad():
        exported = torch.export.export(module, (value,)).run_decompositions({})
        output = module(value).contiguous()
    constants = _lower(exported, folder, name)
    weights |= {f"{model}.{k}": v.contiguous() for k, v in constants.items()}
    if isinstance(module, Quantised):
        weights |= {f"{model}.{k}": v for k, v in module.kept.items()}
    inner = f"programs/{name}"
    golden = {f"0/input/{argument}": value, "0/output/y": output}
    save_file(golden, folder / inner / "golden.safetensors")
    return BundleProgram(
        name=name,
        files={
            "library": unsealed(f"{inner}/model.dylib"),
            "shaders": unsealed(f"{inner}/kernels.metal"),
            "emulation": unsealed(
                f"{inner}/{metal.emulation_name()}",
                source_sha256="0" * 64,
                requires=host_requirements(),
            ),
            "golden": unsealed(f"{inner}/golden.safetensors"),
        },
        golden_cases=1,
        inputs=(TensorSpec(name=argument, dtype=Dtype.FLOAT32, shape=shape),),
        outputs=(TensorSpec(name="y", dtype=Dtype.FLOAT32, shape=tuple(output.shape)),),
        dimensions={},
        constants={k: f"{model}.{k}" for k in constants},
        symbols=(),
    )


def write_bundle(folder: Path, name: str) -> Path:
    """Lowers one of the models as program `main`, or all, each as the program of its name."""
    weights: dict[str, torch.Tensor] = {}
    if name == "all":
        programs = [_program(folder, model, model, weights) for model in _ALL]
    else:
        programs = [_program(folder, "main", name, weights)]
    save_file(weights, folder / "w.safetensors")
    requires = Requirements(
        system="darwin", machine="arm64", deployment_target="14.0", runtime_abi=RUNTIME_ABI
    )
    files = {"weights": "w.safetensors", "shader_header": "shaders.h.metal"}
    seal(folder, draft_manifest(name, programs, files, target="metal", requires=requires))
    return folder


@pytest.fixture(scope="session")
def metal_bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Bundles of the models `net` and `mixer`, and of `all`, each lowered once a session."""
    made: dict[str, Path] = {}

    def bundle(name: str) -> Path:
        if name not in made:
            made[name] = write_bundle(tmp_path_factory.mktemp(name), name)
        return made[name]

    return bundle
