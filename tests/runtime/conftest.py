"""The shim ABI called by name, as a lowered model calls it, and small bundles lowered for real."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from runtime.library import last_error, library
from runtime.shim_list import RUNTIME_ABI
from runtime.shims import Shim, load
from transforms.lowering.cpu import lower
from zoo.artifact.bundle import seal
from zoo.artifact.manifest import (
    BundleManifest,
    BundleProgram,
    ReleaseState,
    Requirements,
    TensorSpec,
)
from zoo.spec import DEFAULT_TOLERANCES, Dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

# c10's numbers (c10/core/ScalarType.h).
DTYPE_NUMBERS = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}


class ShimError(Exception):
    """A shim returned failure; the message is the thread's."""


class Handle:
    """An owned tensor handle; `kept` is what its memory belongs to."""

    def __init__(self, lib: ctypes.CDLL, pointer: int, kept: object = None) -> None:
        self.lib = lib
        self.pointer = ctypes.c_void_p(pointer)
        self.kept = kept

    def __del__(self) -> None:
        self.lib.aoti_torch_delete_tensor_object(self.pointer)


class Abi:
    """Calls shims with arguments by their C names; lists and options are spread as the ABI wants."""

    def __init__(self) -> None:
        self.lib = library()
        self.shims: Mapping[str, Shim] = {shim.name: shim for shim in load()}

    def dtype_number(self, dtype: torch.dtype) -> int:
        """The number of a dtype in the ABI."""
        return DTYPE_NUMBERS[dtype]

    def tensor(self, value: torch.Tensor) -> Handle:
        """A handle over a torch tensor's own memory, with its strides and storage offset."""
        pointer = ctypes.c_void_p()
        self._check(
            self.lib.aoti_torch_create_tensor_from_blob(
                ctypes.c_void_p(value.untyped_storage().data_ptr()),
                ctypes.c_int64(value.dim()),
                (ctypes.c_int64 * 16)(*value.shape),
                (ctypes.c_int64 * 16)(*value.stride()),
                ctypes.c_int64(value.storage_offset()),
                DTYPE_NUMBERS[value.dtype],
                0,
                0,
                ctypes.byref(pointer),
            )
        )
        return Handle(self.lib, pointer.value or 0, value)

    def value(self, handle: Handle) -> torch.Tensor:
        """A copy of what is behind a handle, with its strides."""
        sizes, strides = self.geometry(handle)
        dtype = self._query("dtype", handle, ctypes.c_int32())
        kind = next(k for k, number in DTYPE_NUMBERS.items() if number == dtype)
        last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        if 0 in sizes:
            return torch.empty(sizes, dtype=kind)
        address = self._query("data_ptr", handle, ctypes.c_void_p())
        memory = (ctypes.c_byte * ((last + 1) * kind.itemsize)).from_address(address)
        flat = torch.frombuffer(bytearray(memory), dtype=kind)
        return flat.as_strided(sizes, strides)

    def geometry(self, handle: Handle) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides behind a handle."""
        axes = self._query("dim", handle, ctypes.c_int64())
        sizes = self._query_list("sizes", handle, axes)
        return sizes, self._query_list("strides", handle, axes)

    def call(self, name: str, /, **arguments: Any) -> list[Handle]:
        """Calls a shim; returns its results in order.

        Tensors may be handles or torch tensors, lists Python sequences, absent options None.
        """
        shim = self.shims[name]
        results: list[ctypes.c_void_p] = []
        spread: list[Any] = []
        alive: list[Any] = []
        parameters = [
            p.strip().rsplit(" ", 1) for p in " ".join(shim.parameters.split()).split(",")
        ]
        given = dict(arguments)
        skip = False
        for kind, parameter in parameters:
            if skip:
                skip = False
                continue
            if parameter.startswith("ret"):
                results.append(ctypes.c_void_p())
                spread.append(ctypes.byref(results[-1]))
                continue
            value = given.pop(parameter)
            skip = any(p[1] == f"{parameter}_len_" for p in parameters)
            spread += self._spread(kind, value, alive, listed=skip)
        assert not given, f"{name} has no parameters {sorted(given)}"
        self._check(getattr(self.lib, name)(*spread))
        return [Handle(self.lib, result.value or 0, alive) for result in results]

    def result(self, name: str, /, **arguments: Any) -> torch.Tensor:
        """The value of a shim's first result."""
        return self.value(self.call(name, **arguments)[0])

    def _spread(self, kind: str, value: Any, alive: list[Any], *, listed: bool) -> list[Any]:
        if isinstance(value, torch.Tensor):
            value = self.tensor(value)
        alive.append(value)
        if kind == "AtenTensorHandle":
            return [value.pointer]
        if kind == "AtenTensorHandle*":
            return [None if value is None else ctypes.byref(value.pointer)]
        if listed:
            return self._spread_list(kind, value, alive)
        if kind == "const char*":
            return [value.encode()]
        if kind == "const char**":
            return [None if value is None else ctypes.byref(ctypes.c_char_p(value.encode()))]
        if kind == "const int64_t*":
            return [(ctypes.c_int64 * len(value))(*value)]
        scalars: dict[str, Any] = {
            "double": ctypes.c_double,
            "int32_t": ctypes.c_int32,
            "int64_t": ctypes.c_int64,
        }
        if value is None:
            return [None]
        number = scalars[kind.rstrip("*")](value)
        return [ctypes.byref(number) if kind.endswith("*") else number]

    def _spread_list(self, kind: str, value: Sequence[float], alive: list[Any]) -> list[Any]:
        if kind == "const double**":
            doubles = [ctypes.c_double(v) for v in value]
            array = (ctypes.POINTER(ctypes.c_double) * len(doubles))(
                *[ctypes.pointer(d) for d in doubles]
            )
            alive += [doubles, array]
            return [array, ctypes.c_int64(len(doubles))]
        return [(ctypes.c_int64 * len(value))(*map(int, value)), ctypes.c_int64(len(value))]

    def _query(self, what: str, handle: Handle, into: Any) -> Any:
        self._check(getattr(self.lib, f"aoti_torch_get_{what}")(handle.pointer, ctypes.byref(into)))
        return into.value

    def _query_list(self, what: str, handle: Handle, length: int) -> tuple[int, ...]:
        into = ctypes.POINTER(ctypes.c_int64)()
        self._check(getattr(self.lib, f"aoti_torch_get_{what}")(handle.pointer, ctypes.byref(into)))
        return tuple(into[:length])

    def _check(self, status: int) -> None:
        if status != 0:
            raise ShimError(last_error())


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
    lowered = lower(_export(specimen), home / "model.so")
    save_file({k: v.contiguous() for k, v in lowered.constants.items()}, folder / "w.safetensors")
    results = _results(specimen)
    golden = {f"0/input/{k}": v for k, v in specimen.inputs.items()}
    golden |= {f"0/output/{k}": v for k, v in results.items()}
    save_file(golden, home / "golden.safetensors")
    unknown = bool(specimen.dimensions)
    program = BundleProgram(
        name="main",
        library="programs/main/model.so",
        golden="programs/main/golden.safetensors",
        golden_cases=1,
        inputs=tuple(_spec(k, v, specimen.shapes[k]) for k, v in specimen.inputs.items()),
        outputs=tuple(
            _spec(k, v, ("?",) * v.dim() if unknown else tuple(v.shape)) for k, v in results.items()
        ),
        dimensions=dict(specimen.dimensions),
        constants={k: k for k in lowered.constants},
        symbols=lowered.record.symbols,
    )
    seal(folder, bundle_manifest(name, program))
    return folder


def bundle_manifest(name: str, *programs: BundleProgram) -> BundleManifest:
    """A manifest around programs whose weights lie in w.safetensors."""
    return BundleManifest(
        model=name,
        target="cpu",
        build_key="0" * 64,
        state=ReleaseState.LOWERED,
        requires=Requirements(
            system=platform.system().lower(), machine=platform.machine(), runtime_abi=RUNTIME_ABI
        ),
        programs=programs,
        weights="w.safetensors",
        tolerances=DEFAULT_TOLERANCES,
        random_weights=0,
        source="a test",
        licence="none",
        versions={},
        created="2030-01-31T12:00:00+00:00",
        files={},
    )


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
