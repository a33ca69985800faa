"""The types of manifest.json, its canonical form, and a reader that trusts no input.

The rules are in runtime/menagerie/format/FORMAT.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Final, Literal, TypeVar

from menagerie.errors import ArtifactError
from menagerie.numerics import Dtype, TextEnum, Tolerance
from menagerie.typed_json import AtLeast, Malformed, check, load, matching
from menagerie.typed_json import document as json_document

MANIFEST = "manifest.json"
MODEL_SIGNATURE = "model.sig"  # for tools of OpenSSF Model Signing; ours ignore it
SIGNATURE = "signature.json"  # signs the manifest's bytes; missing from unsigned bundles
PARTIAL = ".manifest.json.partial"  # the manifest while it is written; never part of a bundle
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_LONGEST = 200
FORMAT_NAME: Final = "menagerie-bundle"
FORMAT_VERSION: Final = 2
NAME: Final = "[a-z][a-z0-9_]*"  # of a model, a target or a program
T = TypeVar("T")
# Only this form of ISO 8601, which readers in other languages accept too.
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3}|\.[0-9]{6})?[+-][0-9]{2}:[0-9]{2}"
)
_MOST = 2**63 - 1  # the largest number of C's readers
MAX_FILES = 10_000
MAX_MANIFEST_BYTES = 8 * 2**20
_DAMAGED = "The bundle is damaged or not a bundle: pull or convert it again"


def bundle_path(text: str) -> str:
    """Return `text` if rule 4 of FORMAT.md allows the path; else raise ValueError saying why."""
    if len(text) > _LONGEST:
        raise ValueError(f"a path has at most {_LONGEST} characters")
    if not all(_SEGMENT.fullmatch(segment) for segment in text.split("/")):
        raise ValueError(
            f"{text!r} is not a relative path of letters, digits, '_', '.', '-' and '/' "
            "whose parts start with a letter, a digit or '_'"
        )
    if text.lower().split("/")[0] in {MANIFEST, SIGNATURE, MODEL_SIGNATURE}:
        raise ValueError(f"{MANIFEST} lists neither itself nor {SIGNATURE} and {MODEL_SIGNATURE}")
    return text


def moment(text: str) -> datetime:
    """Parse an ISO 8601 time; raise ValueError if it is malformed or has no time zone."""
    if not _MOMENT.fullmatch(text):
        raise ValueError("a time names its zone, e.g. 2030-01-31T12:00:00+00:00")
    return datetime.fromisoformat(text)


def _moment(text: str) -> str:
    moment(text)
    return text


def _some(entries: tuple[T, ...]) -> tuple[T, ...]:
    if not entries:
        raise ValueError("is empty")
    return entries


check_name = matching(
    NAME, "a name is lower-case letters, digits and underscores, and starts with a letter"
)
check_sha256 = matching("[0-9a-f]{64}", "a sha256 is 64 lower-case hexadecimal digits")
BundlePath = Annotated[str, bundle_path]
Moment = Annotated[str, _moment]
Name = Annotated[str, check_name]
Sha256 = Annotated[str, check_sha256]
Count = Annotated[int, AtLeast(0)]
Positive = Annotated[int, AtLeast(1)]
Axis = Count | str


class ReleaseState(TextEnum):
    """How far an artifact has been proven; a store holds only `emulated` and `validated` ones."""

    LOWERED = "lowered"
    EMULATED = "emulated"
    VALIDATED = "validated"


class Role:
    """The role of a file for today's runtimes; a target may add roles of its own."""

    # of a program
    LIBRARY: Final = "library"
    GOLDEN: Final = "golden"  # safetensors: `<case>/input/<name>` and `<case>/output/<name>`
    REFUTING: Final = "refuting"  # eager's answers for menagerie.validation.refuting
    SHADERS: Final = "shaders"  # generated Metal kernels, without the bundle's shared header
    EMULATION: Final = "emulation"  # a library that proves it on a host without the device
    # of the bundle
    WEIGHTS: Final = "weights"
    SHADER_HEADER: Final = "shader_header"  # prepended to every program's shaders
    ACCURACY: Final = "accuracy"  # safetensors: the program's inputs by name, and `labels`, int64
    SPEECH: Final = "speech"  # how the programs turn recordings into text; menagerie.speech.recipe
    SBOM: Final = "sbom"  # the linked libraries, and a model card: CycloneDX, JSON
    HELD_OUT: Final = "held_out"  # recordings with known text; menagerie.speech.word_errors


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """The requirements of an artifact on a machine."""

    system: str  # as platform.system().lower(): linux, darwin
    machine: str  # as platform.machine(): x86_64, arm64
    instructions: tuple[str, ...] = ()  # as /proc/cpuinfo names them: avx2, fma, f16c ...
    deployment_target: str | None = None  # the oldest macOS that loads it: "15.0"
    runtime_abi: int


def platform_name(target: str, requires: Requirements) -> str:
    """Name target, system and processor: `cpu-linux-x86_64`, `metal-macos-arm64`."""
    system = {"darwin": "macos"}.get(requires.system, requires.system)
    machine = {"aarch64": "arm64"}.get(requires.machine, requires.machine)
    return f"{target}-{system}-{machine}"


@dataclass(frozen=True)
class TensorSpec:
    """A program's input or output; an axis is a size or the name of a dynamic dimension.

    An output axis that depends on a dynamic dimension without being equal to it is "?".
    """

    name: str
    dtype: Dtype
    shape: tuple[Axis, ...]


@dataclass(frozen=True)
class FileEntry:
    """One file of the bundle: its path, size and digest, and its requirements."""

    path: BundlePath
    sha256: Sha256
    bytes: Count
    source_sha256: Sha256 | None = None  # of its source, if other files were compiled from it too
    requires: Requirements | None = None  # of a machine that loads it, if other than the bundle's


def unsealed(
    path: str, *, source_sha256: str | None = None, requires: Requirements | None = None
) -> FileEntry:
    """Return the entry of a file in a draft; sealing adds its hash."""
    return FileEntry(path, "", 0, source_sha256, requires)


@dataclass(frozen=True, kw_only=True)
class State:
    """The state that a program keeps from one call to the next.

    Its golden cases are runs of `calls` calls, each of which starts with the state in the weights.
    """

    constants: Annotated[tuple[str, ...], _some]  # the constants that a call changes
    calls: Positive


@dataclass(frozen=True, kw_only=True)
class BundleProgram:
    """One program: its files, its signature, and the tensors of the weights that it uses."""

    name: Name
    files: dict[Name, FileEntry]  # by role
    golden_cases: Positive
    inputs: tuple[TensorSpec, ...]
    outputs: Annotated[tuple[TensorSpec, ...], _some]  # without outputs, nothing can be proven
    dimensions: dict[str, tuple[int, int, int]]  # name -> lowest and highest size, and step
    constants: dict[str, str]  # the library's constant name -> tensor in the weights file
    symbols: tuple[str, ...]  # shim functions the library imports
    state: State | None = None

    def __post_init__(self) -> None:
        for name, (low, high, step) in self.dimensions.items():
            if not 0 <= low <= high <= _MOST or not 1 <= step <= _MOST:
                raise ValueError(f"dimension {name!r} has no sizes from {low} to {high} by {step}")
        _require_roles(self.files, Role.LIBRARY, Role.GOLDEN)
        library = self.emulation
        if library and (library.requires is None or library.source_sha256 is None):
            raise ValueError("files.emulation lacks requires or source_sha256")
        if self.state is not None:
            self._check_state(self.state)
        _check_axes(self.inputs, self.dimensions.keys())
        _check_axes(self.outputs, self.dimensions.keys() | {"?"})

    def _check_state(self, state: State) -> None:
        if len(set(state.constants)) != len(state.constants):
            raise ValueError("state.constants: one is a duplicate")
        if unknown := sorted(set(state.constants) - self.constants.keys()):
            raise ValueError(f"state.constants: there is no constant {unknown[0]!r}")
        if self.golden_cases % state.calls:
            fact = f"must be a multiple of state.calls ({state.calls})"
            raise ValueError(f"golden_cases ({self.golden_cases}) {fact}")

    @property
    def library(self) -> FileEntry:
        """The native code."""
        return self.files[Role.LIBRARY]

    @property
    def golden(self) -> FileEntry:
        """The golden cases of the program."""
        return self.files[Role.GOLDEN]

    @property
    def shaders(self) -> FileEntry | None:
        """See `Role.SHADERS`."""
        return self.files.get(Role.SHADERS)

    @property
    def emulation(self) -> FileEntry | None:
        """See `Role.EMULATION`; its `requires` and `source_sha256` are set."""
        return self.files.get(Role.EMULATION)


def _require_roles(files: dict[str, FileEntry], *roles: str) -> None:
    for role in roles:
        if role not in files:
            raise ValueError(f"files.{role}: is missing")


def _check_axes(tensors: tuple[TensorSpec, ...], known: Iterable[str]) -> None:
    names = [tensor.name for tensor in tensors]
    if len(set(names)) != len(names):
        raise ValueError("two inputs or two outputs have the same name")
    for tensor in tensors:
        for axis in tensor.shape:
            if isinstance(axis, str) and axis not in known:
                raise ValueError(f"{tensor.name}: axis {axis!r} is no dimension of this program")


Metric = Literal["top-1", "nearest", "pitch", "text"]


@dataclass(frozen=True)
class AccuracyData:
    """How the accuracy gate judges the data in its role's file."""

    program: str
    output: str
    batch: int
    eager_accuracy: float
    slack: int | None = None  # samples that may be judged differently; None: none
    metric: Metric | None = None  # defines a correct answer; None: top-1


@dataclass(frozen=True, kw_only=True)
class BundleManifest:
    """manifest.json: written last, names every other file by path, size and sha256."""

    format: Literal["menagerie-bundle"] = FORMAT_NAME
    version: Literal[2] = FORMAT_VERSION
    model: Name
    target: Name
    platform: str = ""  # where it runs, see `platform_name`; a draft may omit it
    runtime: Name  # the runtime whose library runs it
    build_key: Sha256
    state: ReleaseState
    requires: Requirements
    programs: Annotated[tuple[BundleProgram, ...], _some]
    accuracy: AccuracyData | None = None
    tolerances: dict[Dtype, Tolerance]
    random_weights: int | None
    source: str
    licence: str
    versions: dict[str, str]
    created: Moment
    files: dict[Name, FileEntry]  # by role; the files of no program

    def __post_init__(self) -> None:
        platform = platform_name(self.target, self.requires)
        if self.platform not in {"", platform}:
            raise ValueError(f"platform is {self.platform!r}, but it requires {platform!r}")
        object.__setattr__(self, "platform", platform)
        names = [program.name for program in self.programs]
        if len(set(names)) != len(names):
            raise ValueError("two programs have the same name")
        if self.accuracy is not None and self.accuracy.program not in names:
            raise ValueError("the accuracy data names no program of this bundle")
        _require_roles(self.files, Role.WEIGHTS)
        if (self.accuracy is None) != (Role.ACCURACY not in self.files):
            raise ValueError("of accuracy and files.accuracy only one is given")
        if Role.SHADER_HEADER not in self.files and any(p.shaders for p in self.programs):
            raise ValueError("there are shaders, but no shader_header")
        found: dict[str, str] = {}
        for _, entry in self.uses():
            if (other := found.get(entry.path.lower())) is not None:
                fact = (
                    "is listed twice"
                    if other == entry.path
                    else f"and {other!r} differ only in case"
                )
                raise ValueError(f"files: {entry.path!r} {fact}")
            found[entry.path.lower()] = entry.path
        if len(found) > MAX_FILES:
            raise ValueError(f"lists more than {MAX_FILES:,} files")

    def uses(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield files with their manifest locations: `files.weights`, `programs.main.golden`."""
        for role, entry in self.files.items():
            yield f"files.{role}", entry
        for program in self.programs:
            for role, entry in program.files.items():
                yield f"programs.{program.name}.files.{role}", entry

    @cached_property
    def listed(self) -> dict[str, FileEntry]:
        """Every file by its path."""
        return {entry.path: entry for _, entry in self.uses()}

    @cached_property
    def of_proofs(self) -> frozenset[str]:
        """Paths of the files that only a proof reads; a pull may omit them."""
        roles = {Role.GOLDEN, Role.REFUTING, Role.ACCURACY, Role.HELD_OUT}
        return frozenset(e.path for use, e in self.uses() if use.rpartition(".")[2] in roles)

    @property
    def size(self) -> int:
        """The bytes of all files, which a pull downloads; tables call it the size."""
        return sum(entry.bytes for entry in self.listed.values())

    @property
    def weights(self) -> FileEntry:
        """The constants of all programs, in safetensors."""
        return self.files[Role.WEIGHTS]


def manifest_document(manifest: BundleManifest) -> bytes:
    """Return the bytes of manifest.json: sorted keys, one entry per line, one final newline.

    Entries without effect (rule 3 of FORMAT.md) are omitted.
    """
    return json_document(manifest, sparse=True)


def parse_manifest(document: bytes, place: str) -> BundleManifest:
    """Read manifest.json; raise ArtifactError at `place` if it breaks rules 1 to 4 of FORMAT.md."""
    if len(document) > MAX_MANIFEST_BYTES:
        fact = f"{len(document):,} bytes, above the {MAX_MANIFEST_BYTES:,} allowed"
        raise ArtifactError(place, fact, _DAMAGED)
    try:
        fields = load(document)
    except Malformed as error:
        fact = f"is not JSON as the format wants it: {error}"
        raise ArtifactError(place, fact, _DAMAGED) from None
    _check_version(fields, place)
    if fields.get("platform") in (None, ""):  # a draft may omit it
        raise ArtifactError(place, "platform: is missing", _DAMAGED)
    try:
        manifest: BundleManifest = check(BundleManifest, fields)
    except Malformed as error:
        raise ArtifactError(place, str(error), _DAMAGED) from None
    return manifest


def _check_version(fields: object, place: str) -> None:
    """Check the version first, because a later version may have other fields."""
    if not isinstance(fields, dict):
        raise ArtifactError(place, "is not a JSON object", _DAMAGED)
    if fields.get("format") != FORMAT_NAME:
        raise ArtifactError(place, f"its format is not {FORMAT_NAME!r}", _DAMAGED)
    version = fields.get("version")
    if type(version) is not int or version != FORMAT_VERSION:
        fact = f"format version {repr(version)[:40]}, but only {FORMAT_VERSION} is known here"
        raise ArtifactError(place, fact, "Upgrade Menagerie to read it")
