"""The bundle's manifest.json as types; the rules are in runtime/menagerie/format/FORMAT.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

from menagerie.format.paths import bundle_path
from menagerie.numerics import Dtype, TextEnum, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "NAME",
    "AccuracyData",
    "BundleManifest",
    "BundleProgram",
    "Emulation",
    "FileEntry",
    "Moment",
    "Name",
    "ReleaseState",
    "Requirements",
    "Sha256",
    "TensorSpec",
    "check_name",
    "check_sha256",
    "moment",
    "platform_name",
]

FORMAT_NAME: Final = "menagerie-bundle"
FORMAT_VERSION: Final = 2
# Earlier ones that are read: 1 has neither `platform` nor `runtime`, which its other fields imply.
READABLE_VERSIONS: Final = (1, 2)
SINCE_VERSION_2: Final = ("platform", "runtime")

NAME = re.compile(r"[a-z][a-z0-9_]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")
_ZONE = re.compile(r"[+-]\d\d:\d\d$")
_MOST = 2**63 - 1  # what C's readers can hold


def moment(text: str) -> datetime:
    """The time that `text` names in ISO 8601.

    Raises:
        ValueError: it names none, or no time zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or not _ZONE.search(text):  # Python 3.10 takes no shorter form
        raise ValueError("a time names its zone, e.g. 2030-01-31T12:00:00+00:00")
    return time


def _moment(text: str) -> str:
    moment(text)
    return text


def check_name(text: str) -> str:
    """Returns `text` if it can name a model, a target or a program; else raises ValueError."""
    if not NAME.fullmatch(text):
        raise ValueError(
            "a name is lower-case letters, digits and underscores, and starts with a letter"
        )
    return text


def check_sha256(text: str) -> str:
    """Returns `text` if it is a SHA-256 as this project writes them; else raises ValueError."""
    if not _SHA256.fullmatch(text):
        raise ValueError("a sha256 is 64 lower-case hexadecimal digits")
    return text


def _some(entries: tuple[T, ...]) -> tuple[T, ...]:
    if not entries:
        raise ValueError("is empty")
    return entries


def _positive(number: int) -> int:
    if number < 1:
        raise ValueError(f"is {number}, not at least 1")
    return _count(number)


def _count(number: int) -> int:
    if not 0 <= number <= _MOST:
        raise ValueError(f"is {number}, not from 0 to {_MOST}")
    return number


BundlePath = Annotated[str, bundle_path]
Moment = Annotated[str, _moment]
Name = Annotated[str, check_name]
Sha256 = Annotated[str, check_sha256]
Count = Annotated[int, _count]
Axis = Count | str


class ReleaseState(TextEnum):
    """How far an artifact has been proven; a store holds only `emulated` and `validated` ones."""

    LOWERED = "lowered"
    EMULATED = "emulated"
    VALIDATED = "validated"


@dataclass(frozen=True)
class FileEntry:
    """Size and digest of one file of the bundle."""

    sha256: Sha256
    bytes: Count


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What a machine must offer to run this artifact."""

    system: str  # as platform.system().lower(): linux, darwin
    machine: str  # as platform.machine(): x86_64, arm64
    instructions: tuple[str, ...] = ()  # as /proc/cpuinfo names them: avx2, fma, f16c ...
    deployment_target: str | None = None  # the oldest macOS it loads on: "15.0"
    runtime_abi: int


def platform_name(target: str, requires: Requirements) -> str:
    """Target, system and processor in people's words: `cpu-linux-x86_64`, `metal-macos-arm64`."""
    system = {"darwin": "macos"}.get(requires.system, requires.system)
    machine = {"aarch64": "arm64"}.get(requires.machine, requires.machine)
    return f"{target}-{system}-{machine}"


@dataclass(frozen=True)
class TensorSpec:
    """A program's input or output; an axis is a size or the name of a dynamic dimension.

    Output axes that depend on a dynamic dimension in another way than being equal to it are "?".
    """

    name: str
    dtype: Dtype
    shape: tuple[Axis, ...]


@dataclass(frozen=True)
class Emulation:
    """A Metal program's twin, by which a host without a GPU proves it."""

    library: BundlePath  # compiled from the very source that the program's own library came from
    source_sha256: Sha256  # of that source, the wrapper
    requires: Requirements  # of the host that emulates


@dataclass(frozen=True, kw_only=True)
class BundleProgram:
    """One program: its library, how to call it, and which tensors of the weights it wants."""

    name: Name
    library: BundlePath
    shaders: BundlePath | None = None  # generated Metal kernels, without the bundle's shared header
    emulation: Emulation | None = None
    golden: BundlePath  # safetensors: `<case>/input/<name>` and `<case>/output/<name>`
    golden_cases: Annotated[int, _positive]
    inputs: tuple[TensorSpec, ...]
    outputs: Annotated[tuple[TensorSpec, ...], _some]  # without any, nothing could be proven
    dimensions: dict[str, tuple[int, int, int]]  # name -> lowest and highest size, and step
    constants: dict[str, str]  # the library's constant name -> tensor in the weights file
    symbols: tuple[str, ...]  # shim functions the library imports

    def __post_init__(self) -> None:
        for name, (low, high, step) in self.dimensions.items():
            if not 0 <= low <= high <= _MOST or not 1 <= step <= _MOST:
                raise ValueError(f"dimension {name!r} has no sizes from {low} to {high} by {step}")
        _check_axes(self.inputs, self.dimensions.keys())
        _check_axes(self.outputs, self.dimensions.keys() | {"?"})


def _check_axes(tensors: tuple[TensorSpec, ...], known: Iterable[str]) -> None:
    names = [tensor.name for tensor in tensors]
    if len(set(names)) != len(names):
        raise ValueError("two inputs or two outputs bear the same name")
    for tensor in tensors:
        for axis in tensor.shape:
            if isinstance(axis, str) and axis not in known:
                raise ValueError(f"{tensor.name}: axis {axis!r} is no dimension of this program")


@dataclass(frozen=True)
class AccuracyData:
    """The accuracy gate's data inside the bundle."""

    file: BundlePath  # safetensors: the program's inputs by name, and `labels`, int64
    program: str
    output: str
    batch: int
    eager_accuracy: float


@dataclass(frozen=True, kw_only=True)
class BundleManifest:
    """manifest.json: written last, names every other file by path, size and sha256."""

    format: Literal["menagerie-bundle"] = FORMAT_NAME
    version: Literal[1, 2] = FORMAT_VERSION
    model: Name
    target: Name
    platform: str = ""  # what it runs on; see `platform_name`
    runtime: str = ""  # whose library runs it; most targets have their own
    build_key: Sha256
    state: ReleaseState
    requires: Requirements
    programs: Annotated[tuple[BundleProgram, ...], _some]
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

    def __post_init__(self) -> None:
        platform = platform_name(self.target, self.requires)
        if self.platform not in {"", platform}:
            raise ValueError(f"platform is {self.platform!r}, but it requires {platform!r}")
        check_name(self.runtime or self.target)
        current = (FORMAT_VERSION, platform, self.runtime or self.target)
        for field, value in zip(("version", "platform", "runtime"), current, strict=True):
            object.__setattr__(self, field, value)
        names = [program.name for program in self.programs]
        if len(set(names)) != len(names):
            raise ValueError("two programs bear the same name")
        if self.accuracy is not None and self.accuracy.program not in names:
            raise ValueError("the accuracy data names no program of this bundle")
        if self.shader_header is None and any(p.shaders is not None for p in self.programs):
            raise ValueError("there are shaders, but no shader_header")
