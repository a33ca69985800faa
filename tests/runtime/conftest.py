"""The shim ABI called by name, as a lowered model calls it, and small bundles lowered for real."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from menagerie.format.bundle_manifest import (
    BundleProgram,
    TensorSpec,
    unsealed,
)
from menagerie.format.folder import seal
from menagerie.numerics import Dtype
from menagerie.session import Session
from transforms import run_passes
from transforms.lowering.cpu import lower
from transforms.targets import target_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))

from lesser_processor import LENT
from manifests import draft_manifest
from shim_device import DTYPE_NUMBERS, KINDS, Device, Handle, ShimError


class Abi(Device):
    """The CPU runtime's shims over the tests' own memory, so that they see what is written to it."""

    def __init__(self) -> None:
        super().__init__(KINDS[0])

    def dtype_number(self, dtype: torch.dtype) -> int:
        """The number of a dtype in the ABI."""
        return DTYPE_NUMBERS[dtype]

    def place(self, value: torch.Tensor) -> Handle:
        """A handle over a torch tensor's own memory, with its strides and storage offset."""
        return self.blob(value)

    def result(self, name: str, /, **arguments: Any) -> torch.Tensor:
        """The value of a shim's first result."""
        return self.value(self.call(name, **arguments)[0])


@pytest.fixture(scope="session")
def abi() -> Abi:
    """The shim ABI of the built runtime."""
    return Abi()


@pytest.fixture(scope="session")
def shim_error() -> type[Exception]:
    """What a failing shim raises in these tests."""
    return ShimError


@dataclass(frozen=True)
class Specimen:
    """A module, an example of its inputs by name, and the ranges of its dynamic dimensions."""

    module: nn.Module
    inputs: Mapping[str, torch.Tensor]
    dimensions: Mapping[str, tuple[int, int, int]]
    shapes: Mapping[str, tuple[int | str, ...]]


class ConvNet(nn.Module):
    """Convolution, normalisation, pooling and a linear layer: what an image model is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.pointwise = nn.Conv2d(16, 32, 1)
        self.head = nn.Linear(32, 40)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of an image [N, 3, H, W]."""
        x = torch.relu(self.norm(self.stem(image)))
        x = torch.nn.functional.max_pool2d(self.depthwise(x), 2)
        return self.head(torch.relu(self.pointwise(x)).mean((2, 3)))


class Attender(nn.Module):
    """Self-attention over a sequence of any length, with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, 32, 3, padding=1)
        self.mix = nn.MultiheadAttention(32, 2, batch_first=True)
        self.last = nn.Linear(32, 5)

    def forward(
        self, frames: torch.Tensor, keep: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and a count of frames, for frames [1, T, 8] of which `keep` [1, T] are real."""
        x = self.first(frames.transpose(1, 2)).transpose(1, 2)
        x, _ = self.mix(x, x, x, key_padding_mask=~keep, need_weights=False)
        return self.last(x).log_softmax(-1), keep.sum(1)


@pytest.fixture(scope="session")
def specimens() -> dict[str, Specimen]:
    """The modules that are lowered in these tests."""
    return make_specimens()


def lower_specimen(name: str, folder: str) -> None:
    """Writes the bundle of a specimen; what another process calls."""
    write_bundle(Path(folder), name, make_specimens()[name])


def make_specimens() -> dict[str, Specimen]:
    """The same in every process."""
    torch.manual_seed(0)
    net = ConvNet().eval()
    attender = Attender().eval()
    keep = torch.ones(1, 12, dtype=torch.bool)
    keep[0, 9:] = False
    return {
        "image": Specimen(net, {"image": torch.randn(1, 3, 20, 20)}, {}, {"image": (1, 3, 20, 20)}),
        "sequence": Specimen(
            attender,
            {"frames": torch.randn(1, 12, 8), "keep": keep},
            {"frames_count": (2, 48, 2)},
            {"frames": (1, "frames_count", 8), "keep": (1, "frames_count")},
        ),
    }


def _export(specimen: Specimen) -> torch.export.ExportedProgram:
    dims: dict[str, Any] = {
        name: step * torch.export.Dim(f"{name}_steps", min=low // step, max=high // step)
        for name, (low, high, step) in specimen.dimensions.items()
    }
    dynamic = {
        name: {axis: dims[size] for axis, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in specimen.shapes.items()
    }
    arguments = dict(specimen.inputs)
    exported = torch.export.export(
        specimen.module, (), arguments, dynamic_shapes=dynamic if dims else None
    )
    return exported.run_decompositions({})


def _spec(name: str, value: torch.Tensor, shape: tuple[int | str, ...]) -> TensorSpec:
    return TensorSpec(name=name, dtype=Dtype(str(value.dtype).removeprefix("torch.")), shape=shape)


def _results(specimen: Specimen) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        results = specimen.module(**specimen.inputs)
    parts = results if isinstance(results, tuple) else (results,)
    return {f"out{i}": part.contiguous() for i, part in enumerate(parts)}


def write_bundle(folder: Path, name: str, specimen: Specimen) -> Path:
    """Lowers a specimen and seals it as a bundle of one program."""
    home = folder / "programs" / "main"
    home.mkdir(parents=True)
    finished, _ = run_passes(_export(specimen), target_named("cpu").device_passes)
    lowered = lower(finished, home / "model.so")
    save_file({k: v.contiguous() for k, v in lowered.constants.items()}, folder / "w.safetensors")
    results = _results(specimen)
    golden = {f"0/input/{k}": v for k, v in specimen.inputs.items()}
    golden |= {f"0/output/{k}": v for k, v in results.items()}
    save_file(golden, home / "golden.safetensors")
    unknown = bool(specimen.dimensions)
    program = BundleProgram(
        name="main",
        files={
            "library": unsealed("programs/main/model.so"),
            "golden": unsealed("programs/main/golden.safetensors"),
        },
        golden_cases=1,
        inputs=tuple(_spec(k, v, specimen.shapes[k]) for k, v in specimen.inputs.items()),
        outputs=tuple(
            _spec(k, v, ("?",) * v.dim() if unknown else tuple(v.shape)) for k, v in results.items()
        ),
        dimensions=dict(specimen.dimensions),
        constants={k: k for k in lowered.constants},
        symbols=lowered.record.symbols,
    )
    seal(folder, draft_manifest(name, [program], {"weights": "w.safetensors"}))
    return folder


@pytest.fixture(scope="session")
def bundle_of() -> Callable[..., Path]:
    """Lowers a module: `bundle_of(folder, module, inputs, dimensions, shapes)` as of `Specimen`.

    Not again in a process that was lent a bundle of the folder's name.
    """

    def bundle(folder: Path, *specimen: Any) -> Path:
        if folder.name in LENT:
            return LENT[folder.name]
        return write_bundle(folder, folder.name, Specimen(*specimen))

    return bundle


@pytest.fixture(scope="session")
def bundles(
    tmp_path_factory: pytest.TempPathFactory, specimens: Mapping[str, Specimen]
) -> Callable[[str], Path]:
    """Bundles of the specimens `image` and `sequence`, each lowered at most once a session."""
    made: dict[str, Path] = {}

    def bundle(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = write_bundle(folder, name, specimens[name])
        return made[name]

    return bundle


@pytest.fixture(autouse=True)
def one_thread_of_torch() -> Iterator[None]:
    """The reference computes on one thread: small cases are not worth more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def session(bundle: Path) -> Iterator[Session]:
    """The session of a file's own `bundle`, on two threads."""
    with Session(bundle, threads=2) as opened:
        yield opened
