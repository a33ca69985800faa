"""A target: everything that is special to it, in one object.

Callers that convert, plan, place or check ask the object, and none asks which target it is. Modules
here can be imported without torch: methods that lower import what they need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from menagerie.format.bundle_manifest import Requirements, platform_name
from menagerie.numerics import Dtype, Tolerance
from transforms.lowering.result import LoweredProgram
from zoo.errors import Check, UsageError
from zoo.precision import FLOATS, Precision, WeightPrecision

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from transforms.graph.graph_pass import GraphPass
    from zoo.spec import PassChoice

# In a target's list: the position of the pass that a precision needs, if it needs one.
ROUND_WEIGHTS = "round_weights"


PassItem: TypeAlias = "str | PassChoice"


class Target(ABC):
    """A platform for artifacts, and the way to make them; each subclass has one instance."""

    name: ClassVar[str]  # in manifests, bundles and commands: lower-case letters, digits, `_`
    summary: ClassVar[str]  # one line for people
    runtime: ClassVar[str]  # library of the package menagerie that runs its bundles
    # The whole compiler before code generation, in order. A model that names passes replaces those
    # before `ROUND_WEIGHTS`; code generation relies on the passes after it.
    passes: ClassVar[tuple[PassItem, ...]]
    convert_pool: ClassVar[str]  # whose workers convert for it, unless the operator chooses another
    multiplies_integers: ClassVar[bool] = False  # supports the precisions `int8` and `int8-static`

    @abstractmethod
    def lower(
        self, program: ExportedProgram, bundle: Path, *, name: str = "main"
    ) -> LoweredProgram:
        """Compile one program; its files go to `programs/<name>/` in the bundle's folder.

        Raise UnsupportedKernels, with every kernel that the target's runtime lacks, or
        LoweringError if code generation or a compiler fails.
        """

    @abstractmethod
    def requirements(self) -> Requirements:
        """Return the requirements of a machine to run an artifact that is lowered here."""

    def refusal(self, precision: Precision) -> UsageError | None:
        """Return an error if the target's runtime cannot compute in the precision; else None."""
        if not precision.multiplies_integers or self.multiplies_integers:
            return None
        return UsageError(
            f"precision {precision}",
            f"the runtime of target {self.name} does not multiply integers",
            f"Take {Precision.INT8_WEIGHT_ONLY}: as small a file, computed in float32",
        )

    def lowering_passes(self) -> tuple[GraphPass, ...]:
        """Return the passes that `lower` runs after all others, usable in this process."""
        return ()

    def dispatches(self, program: ExportedProgram, name: str) -> Mapping[str, int]:  # noqa: ARG002
        """Count the kernels that a rewritten program launches on a device, by kind.

        Raise LoweringError if it cannot be lowered for the device.
        """
        return {}

    def shared_files(self, folder: Path) -> Mapping[str, str]:  # noqa: ARG002
        """Write the files that all programs of a bundle share, and return them by their role."""
        return {}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of tools that make its artifacts, besides torch and the compiler."""
        return {}

    def checks(self) -> Iterator[Check]:
        """Yield the checks of `zoo doctor` for this machine's fitness for the target."""
        yield from ()

    @property
    def _rounding(self) -> int:
        """The position of ROUND_WEIGHTS, or the end of a list without it."""
        passes = self.passes
        return passes.index(ROUND_WEIGHTS) if ROUND_WEIGHTS in passes else len(passes)

    @property
    def general_passes(self) -> tuple[PassItem, ...]:
        """The passes before `ROUND_WEIGHTS`, which a model may replace by its own."""
        return self.passes[: self._rounding]

    @property
    def device_passes(self) -> tuple[PassItem, ...]:
        """The passes after `ROUND_WEIGHTS`, on which code generation relies."""
        return self.passes[self._rounding + 1 :]

    @property
    def platform(self) -> str:
        """The platform of an artifact lowered here, e.g. `cpu-linux-x86_64`."""
        return platform_name(self.name, self.requirements())

    @property
    def emulated_here(self) -> bool:
        """Whether this machine lacks the device, and results come from an emulated one."""
        return False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings for converting a model's programs."""

    target: Target  # what they are lowered for
    # Replace the target's general passes; None keeps them
    passes: Sequence[PassItem] | None = None
    # How weights are stored if that is lossless; `transform` rounds them to make it so
    kept: WeightPrecision = FLOATS
    # Tolerances that differ from the usual ones, by dtype
    tolerances: Mapping[Dtype, Tolerance] = field(default_factory=dict)
    threads: int = 1  # for timing the artifact and eager
    seconds: float = 1.0  # to time each program, in turns with eager; 0: no timing


@dataclass(frozen=True)
class Identity:
    """The identity of a conversion, as its bundle and report state it."""

    model: str  # its name
    target: Target  # what it is lowered for
    build_key: str  # the hash of everything that determines the bundle
    source: str = ""  # where the weights come from
    random_weights: int | None = None  # the seed, if they are random
    licence: str = ""  # an SPDX identifier, or nothing
    summary: str = ""  # a line about the model
    parameters: int = 0  # the number of parameters in the model
