"""The bundle's manifest.json as types; the rules are in runtime/menagerie/format/FORMAT.md."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from menagerie.format.paths import bundle_path
from zoo.spec import Dtype, Name, Sha256, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AccuracyData",
    "BundleManifest",
    "BundleProgram",
    "Emulation",
    "FileEntry",
    "ReleaseState",
    "Requirements",
    "TensorSpec",
    "moment",
]

FORMAT_NAME: Final = "menagerie-bundle"
FORMAT_VERSION: Final = 1


def moment(text: str) -> datetime:
    """The time that `text` names in ISO 8601.

    Raises:
        ValueError: it names none, or no time zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time names its zone, e.g. 2030-01-31T12:00:00+00:00")
    return time


def _moment(text: str) -> str:
    moment(text)
    return text


BundlePath = Annotated[str, AfterValidator(bundle_path)]
Moment = Annotated[str, AfterValidator(_moment)]
Axis = Annotated[int, Field(ge=0)] | str


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReleaseState(StrEnum):
    """How far an artifact has been proven; a store holds only `emulated` and `validated` ones."""

    LOWERED = "lowered"
    EMULATED = "emulated"
    VALIDATED = "validated"


class FileEntry(_Frozen):
    """Size and digest of one file of the bundle."""

    sha256: Sha256
    bytes: int = Field(ge=0)


class Requirements(_Frozen):
    """What a machine must offer to run this artifact."""

    system: str  # as platform.system().lower(): linux, darwin
    machine: str  # as platform.machine(): x86_64, arm64
    instructions: tuple[str, ...] = ()  # as /proc/cpuinfo names them: avx2, fma, f16c ...
    deployment_target: str | None = None  # the oldest macOS it loads on: "15.0"
    runtime_abi: int


class TensorSpec(_Frozen):
    """A program's input or output; an axis is a size or the name of a dynamic dimension.

    Output axes that depend on a dynamic dimension in another way than being equal to it are "?".
    """

    name: str
    dtype: Dtype
    shape: tuple[Axis, ...]


class Emulation(_Frozen):
    """A Metal program's twin, by which a host without a GPU proves it."""

    library: BundlePath  # compiled from the very source that the program's own library came from
    source_sha256: Sha256  # of that source, the wrapper
    requires: Requirements  # of the host that emulates


class BundleProgram(_Frozen):
    """One program: its library, how to call it, and which tensors of the weights it wants."""

    name: Name
    library: BundlePath
    shaders: BundlePath | None = None  # generated Metal kernels, without the bundle's shared header
    emulation: Emulation | None = None
    golden: BundlePath  # safetensors: `<case>/input/<name>` and `<case>/output/<name>`
    golden_cases: int = Field(ge=1)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...] = Field(min_length=1)  # else nothing could be proven
    dimensions: dict[str, tuple[int, int, int]]  # name -> lowest and highest size, and step
    constants: dict[str, str]  # the library's constant name -> tensor in the weights file
    symbols: tuple[str, ...]  # shim functions the library imports

    @model_validator(mode="after")
    def _axes_known(self) -> Self:
        for name, (low, high, step) in self.dimensions.items():
            if not 0 <= low <= high or step < 1:
                raise ValueError(f"dimension {name!r} has no sizes from {low} to {high} by {step}")
        _check_axes(self.inputs, self.dimensions.keys())
        _check_axes(self.outputs, self.dimensions.keys() | {"?"})
        return self


def _check_axes(tensors: tuple[TensorSpec, ...], known: Iterable[str]) -> None:
    names = [tensor.name for tensor in tensors]
    if len(set(names)) != len(names):
        raise ValueError("two inputs or two outputs bear the same name")
    for tensor in tensors:
        for axis in tensor.shape:
            if isinstance(axis, str) and axis not in known:
                raise ValueError(f"{tensor.name}: axis {axis!r} is no dimension of this program")


class AccuracyData(_Frozen):
    """The accuracy gate's data inside the bundle."""

    file: BundlePath  # safetensors: the program's inputs by name, and `labels`, int64
    program: str
    output: str
    batch: int
    eager_accuracy: float


class BundleManifest(_Frozen):
    """manifest.json: written last, names every other file by path, size and sha256."""

    format: Literal["menagerie-bundle"] = FORMAT_NAME
    version: Literal[1] = FORMAT_VERSION
    model: Name
    target: Name
    build_key: Sha256
    state: ReleaseState
    requires: Requirements
    programs: tuple[BundleProgram, ...] = Field(min_length=1)
    weights: BundlePath
    shader_header: BundlePath | None = None  # what stands before every program's shaders
    accuracy: AccuracyData | None = None
    tolerances: dict[Dtype, Tolerance]
    random_weights: int | None
    source: str
    licence: str
    versions: dict[str, str]
    created: Moment
    files: dict[BundlePath, FileEntry]

    @model_validator(mode="after")
    def _programs_named_once(self) -> Self:
        names = [program.name for program in self.programs]
        if len(set(names)) != len(names):
            raise ValueError("two programs bear the same name")
        if self.accuracy is not None and self.accuracy.program not in names:
            raise ValueError("the accuracy data names no program of this bundle")
        return self

    @model_validator(mode="after")
    def _shaders_have_their_header(self) -> Self:
        if self.shader_header is None and any(p.shaders is not None for p in self.programs):
            raise ValueError("there are shaders, but no shader_header")
        return self
