"""What a target is: all that is special to it, in one object.

Callers that convert, plan, place or check ask the object; none asks which target it is. Modules
here are imported where torch is not: what lowers is imported by the method that lowers.
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

# In a target's list: the place of the pass that a precision asks for, if it asks for one.
ROUND_WEIGHTS = "round_weights"


PassItem: TypeAlias = "str | PassChoice"


class Target(ABC):
    """Where an artifact runs, and how one is made for it: a subclass with one instance a target."""

    name: ClassVar[str]  # in manifests, bundles and commands: lower-case letters, digits, `_`
    summary: ClassVar[str]  # one line for people
    runtime: ClassVar[str]  # library of the package menagerie that runs its bundles
    # The whole compiler before code generation, in order. A model that names passes gets those up
    # to `ROUND_WEIGHTS`; what follows is what code generation counts on.
    passes: ClassVar[tuple[PassItem, ...]]
    convert_pool: ClassVar[str]  # whose workers convert for it, unless the operator says else
    multiplies_integers: ClassVar[bool] = False  # takes the precisions `int8` and `int8-static`

    @abstractmethod
    def lower(
        self, program: ExportedProgram, bundle: Path, *, name: str = "main"
    ) -> LoweredProgram:
        """Compile one program; its files go to `programs/<name>/` of the bundle's folder.

        Raise UnsupportedKernels, with every kernel that the target's runtime lacks, or
        LoweringError if code generation or a compiler fails.
        """

    @abstractmethod
    def requirements(self) -> Requirements:
        """Return what a machine must be to run an artifact that is lowered here."""

    def refusal(self, precision: Precision) -> UsageError | None:
        """Return why the target's runtime does not compute in the precision; None if it does."""
        if not precision.multiplies_integers or self.multiplies_integers:
            return None
        return UsageError(
            f"precision {precision}",
            f"the runtime of target {self.name} does not multiply integers",
            f"Take {Precision.INT8_WEIGHT_ONLY}: as small a file, computed in float32",
        )

    def lowering_passes(self) -> tuple[GraphPass, ...]:
        """Return passes that `lower` runs after all others, able to run in this process."""
        return ()

    def dispatches(self, program: ExportedProgram, name: str) -> Mapping[str, int]:  # noqa: ARG002
        """Count the kernels that a rewritten program launches on a device, by kind.

        Raise LoweringError if it cannot be lowered for the device.
        """
        return {}

    def shared_files(self, folder: Path) -> Mapping[str, str]:  # noqa: ARG002
        """Write what all programs in the bundle's folder share; return the files by their role."""
        return {}

    def versions(self) -> Mapping[str, str]:
        """Return versions of what makes its artifacts, besides torch and the C++ compiler."""
        return {}

    def checks(self) -> Iterator[Check]:
        """Yield what `zoo doctor` is to say of this machine's fitness for the target."""
        yield from ()

    @property
    def _rounding(self) -> int:
        """The place of ROUND_WEIGHTS; a list without it ends there."""
        passes = self.passes
        return passes.index(ROUND_WEIGHTS) if ROUND_WEIGHTS in passes else len(passes)

    @property
    def general_passes(self) -> tuple[PassItem, ...]:
        """Those that a model may replace by its own: up to `ROUND_WEIGHTS`."""
        return self.passes[: self._rounding]

    @property
    def device_passes(self) -> tuple[PassItem, ...]:
        """Those that code generation counts on: behind `ROUND_WEIGHTS`."""
        return self.passes[self._rounding + 1 :]

    @property
    def platform(self) -> str:
        """What an artifact lowered here runs on, e.g. `cpu-linux-x86_64`."""
        return platform_name(self.name, self.requirements())

    @property
    def emulated_here(self) -> bool:
        """Whether this machine lacks the device, and results come from an emulated one."""
        return False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the programs of a model are converted."""

    target: Target  # what they are lowered for
    # In place of the target's general ones; None for these
    passes: Sequence[PassItem] | None = None
    # How weights are kept, where that loses nothing; `transform` rounds them
    kept: WeightPrecision = FLOATS
    # Those that differ from the usual ones, by dtype
    tolerances: Mapping[Dtype, Tolerance] = field(default_factory=dict)
    threads: int = 1  # that the artifact and eager are timed with
    seconds: float = 1.0  # that each program is timed for, in turns with eager; 0: none is


@dataclass(frozen=True)
class Identity:
    """Which conversion this is, as its bundle and its report say it."""

    model: str  # its name
    target: Target  # what it is lowered for
    build_key: str  # the hash of all that makes the bundle
    source: str = ""  # where the weights are from
    random_weights: int | None = None  # the seed, where they are random
    licence: str = ""  # an SPDX identifier, or nothing
    summary: str = ""  # a line about the model
    parameters: int = 0  # how many numbers the model has
