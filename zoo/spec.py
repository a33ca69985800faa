"""The types of the manifest: what a person may write about a model.

All are frozen Pydantic models that refuse unknown fields. Reading them from YAML, with file and
line in every complaint, is `zoo.manifest`'s work.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance
from zoo.base_models import Axis, Name, Sha256, SpecModel
from zoo.precision import Precision, WeightPrecision
from zoo.spec_sources import (
    CheckpointSource,
    FactorySource,
    SourceSpec,
    TorchvisionSource,
    TransformersSource,
)
from zoo.spec_speech import SpeechSpec, WordGate

__all__ = [
    "DEFAULT_TOLERANCES",
    "AccuracyGate",
    "CheckpointSource",
    "Dimension",
    "Dtype",
    "FactorySource",
    "InputSpec",
    "Licence",
    "ModelSpec",
    "Name",
    "PassChoice",
    "Precision",
    "ProgramSpec",
    "Sample",
    "SampleKind",
    "Sha256",
    "SourceSpec",
    "SpeechSpec",
    "Tolerance",
    "TorchvisionSource",
    "TransformersSource",
    "Variant",
    "usual_tolerances",
]


class Dimension(SpecModel):
    """The range of a named dynamic dimension, both ends included."""

    low: int = Field(ge=1)
    high: int = Field(ge=2, le=2**31)
    multiple_of: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high <= self.low:
            raise ValueError(f"high ({self.high}) must exceed low ({self.low})")
        if self.low % self.multiple_of or self.high % self.multiple_of:
            raise ValueError(f"low and high must be multiples of multiple_of ({self.multiple_of})")
        return self


class SampleKind(StrEnum):
    """How the elements of a sample input are drawn."""

    NORMAL = "normal"
    UNIFORM = "uniform"
    INTEGERS = "integers"
    PREFIX_MASK = "prefix_mask"
    ONES = "ones"


class Sample(SpecModel):
    """How golden inputs are made; always from the case's own seed.

    `normal` has mean `mean` and deviation `std`; `uniform` lies in [low, high); `integers` in
    [low, high); `prefix_mask` is true for a random, non-empty prefix of the last axis; `ones` is 1.
    """

    kind: SampleKind = SampleKind.NORMAL
    mean: float = 0.0
    std: float = Field(default=1.0, gt=0)
    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high <= self.low:
            raise ValueError(f"high ({self.high:g}) must exceed low ({self.low:g})")
        return self


# The whole numbers that a type holds, the upper end excluded as torch's generator has it.
_WHOLE_NUMBERS = {
    Dtype.INT32: (-(2**31), 2**31),
    Dtype.INT16: (-(2**15), 2**15),
    Dtype.INT8: (-(2**7), 2**7),
    Dtype.UINT8: (0, 2**8),
    Dtype.BOOL: (0, 2),
}
_MOST_WHOLE_NUMBERS = (-(2**63), 2**63 - 1)


class InputSpec(SpecModel):
    """One tensor a program takes: its shape's entries are sizes or names of dimensions."""

    name: Name = Field(description="as the parameter of forward is called")
    shape: tuple[Axis, ...]
    dtype: Dtype = Dtype.FLOAT32
    sample: Sample = Sample()

    @model_validator(mode="after")
    def _sampled_sensibly(self) -> Self:
        continuous = self.sample.kind in (SampleKind.NORMAL, SampleKind.UNIFORM)
        if continuous and not self.dtype.is_floating:
            raise ValueError(
                f"an input of {self.dtype} needs `sample: {{kind: integers, ...}}`, "
                "`prefix_mask` or `ones`"
            )
        if self.sample.kind is SampleKind.PREFIX_MASK and not self.shape:
            raise ValueError("`prefix_mask` needs an axis, and this input has none")
        return self

    @model_validator(mode="after")
    def _whole_numbers_there(self) -> Self:
        low, high = self.sample.low, self.sample.high
        if self.sample.kind is not SampleKind.INTEGERS:
            return self
        if not (low.is_integer() and high.is_integer()):
            raise ValueError(
                f"`integers` needs whole numbers as low and high, not {low:g} and {high:g}"
            )
        least, most = _WHOLE_NUMBERS.get(self.dtype, _MOST_WHOLE_NUMBERS)
        if low < least or high > most:
            raise ValueError(f"`integers` from {low:g} to {high:g} do not fit {self.dtype}")
        return self


class ProgramSpec(SpecModel):
    """One callable of a model, exported on its own; a model's programs share its weights."""

    name: Name = "main"
    part: str = Field(
        default="", description="dotted path of the submodule to export; empty: the model itself"
    )
    inputs: tuple[InputSpec, ...] = Field(min_length=1)
    outputs: tuple[str, ...] = Field(
        default=(),
        description="fields or keys of the result to keep, in order; empty: all tensors returned",
    )
    arguments: dict[str, bool | int | float | str | None] = Field(
        default_factory=dict, description="constant keyword arguments of forward"
    )
    dimensions: dict[Name, Dimension] = Field(default_factory=dict)
    golden_cases: int = Field(default=3, ge=1, le=64, description="seeded cases at least")
    calls: int = Field(
        default=4,
        ge=1,
        le=64,
        description="of a program that keeps state: how many calls, one after another, each golden "
        "case is",
    )

    @model_validator(mode="after")
    def _dimensions_known(self) -> Self:
        used = {axis for i in self.inputs for axis in i.shape if isinstance(axis, str)}
        if missing := sorted(used - set(self.dimensions)):
            raise ValueError(f"dimension {missing[0]!r} is used in a shape but has no range")
        if spare := sorted(set(self.dimensions) - used):
            raise ValueError(f"dimension {spare[0]!r} has a range but no input uses it")
        names = [i.name for i in self.inputs]
        if len(set(names)) != len(names):
            raise ValueError("two inputs bear the same name")
        return self


def _known_target(name: str, info: ValidationInfo) -> str:
    """A target's name, if those who read the manifest say which there are; see `load_manifest`."""
    known = (info.context or {}).get("targets", ())
    if known and name not in known:
        raise PydanticCustomError("unknown_target", "is not a target", {"known": list(known)})
    return name


TargetName = Annotated[Name, AfterValidator(_known_target)]


class PassChoice(SpecModel):
    """A graph pass by name, with its options."""

    name: Name
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


# Of float32 outputs, against eager PyTorch with weights that nobody rounded. A weight of b bits has
# 6.02 dB a bit, less its crest (Widrow and Kollar, "Quantization Noise", 2008): some 40 with eight
# bits and 18 with four, of which layers upon layers leave less. With `int8` each layer's input has
# such a loss, too, and a larger one where its range was measured on other inputs.
_TOLERANCES = {
    Precision.FLOAT16: DEFAULT_TOLERANCES[Dtype.FLOAT16],
    Precision.BFLOAT16: DEFAULT_TOLERANCES[Dtype.BFLOAT16],
    Precision.INT8: Tolerance(absolute=5e-2, snr_db=25.0),
    Precision.INT8_STATIC: Tolerance(absolute=1e-1, snr_db=20.0),
    Precision.INT8_WEIGHT_ONLY: Tolerance(absolute=2e-2, snr_db=30.0),
    Precision.INT4_WEIGHT_ONLY: Tolerance(absolute=1e-1, snr_db=10.0),
}


def usual_tolerances(precision: Precision) -> dict[Dtype, Tolerance]:
    """Where they differ from float32's."""
    known = _TOLERANCES.get(precision)
    return {} if known is None else {Dtype.FLOAT32: known}


Group = Literal[32, 64, 128, 256]


class Variant(SpecModel):
    """A release of a model in another precision, proven against eager PyTorch in float32."""

    targets: tuple[TargetName, ...] | None = Field(
        default=None, description="left out: those of the entry that take the precision"
    )
    tolerances: dict[Dtype, Tolerance] = Field(
        default_factory=dict,
        description="left out: for float32 outputs, what is usual for outputs of the precision",
    )
    keep: tuple[str, ...] = Field(
        default=(),
        description="parameters, or layers by the beginning of their names, whose weights are not "
        "rounded to integers",
        examples=[["features.0", "classifier"]],
    )
    group: Group | None = Field(
        default=None,
        description="of weight-only precisions: how many integers of a row share a scale; left "
        "out: 128 of eight bits, 32 of four",
    )
    slack: int = Field(
        default=0, ge=0, description="images or words that its gate may judge otherwise than eager"
    )
    calibration: str = Field(
        default="",
        description="of `int8-static`: safetensors beside the manifest file with samples of the "
        "program's inputs, like those it will meet; `<program>/<input>` where there are several",
    )


class Licence(SpecModel):
    """Under what terms the weights may be used."""

    spdx: str = Field(description="SPDX identifier, e.g. `Apache-2.0`; `LicenseRef-...` if none")
    url: str = ""
    attribution: str = ""


class AccuracyGate(SpecModel):
    """Labelled data on which the artifact's top-1 accuracy must equal eager's."""

    data: str = Field(
        description="safetensors beside the manifest file: the program's inputs and `labels`"
    )
    program: Name = "main"
    output: str = ""
    batch: int = Field(default=64, ge=1)
    slack: int = Field(default=0, ge=0, description="samples that the count may differ by")


_Gate = TypeVar("_Gate", AccuracyGate, WordGate)


def _with_slack(gate: _Gate | None, slack: int) -> _Gate | None:
    """The same gate, less strict; None for none."""
    return gate and gate.model_copy(update={"slack": slack})


class ModelSpec(SpecModel):
    """A model of the zoo: where it comes from, what of it is exported, and what counts as equal."""

    summary: str
    source: SourceSpec
    programs: tuple[ProgramSpec, ...] = Field(min_length=1)
    dtype: Dtype = Dtype.FLOAT32
    precision: Precision = Field(
        default=Precision.FLOAT32, description="what the weights are kept in; see `precisions`"
    )
    precisions: dict[Precision, Variant] = Field(
        default_factory=dict,
        description="what else it is published in, as <name>_<precision> with `_` for `-`; see "
        "`--precision`",
        examples=[{"float16": {}}],
    )
    keep: tuple[str, ...] = Field(
        default=(), description="weights that the precision does not round; see `precisions`"
    )
    group: Group | None = Field(
        default=None, description="integers that share a scale; see `precisions`"
    )
    calibration: str = Field(
        default="", description="samples for the precision `int8-static`; see `precisions`"
    )
    targets: tuple[TargetName, ...] = Field(default=("cpu",), examples=[["cpu", "metal"]])
    passes: tuple[PassChoice, ...] | None = Field(
        default=None, description="graph passes in order; left out: the target's default list"
    )
    tolerances: dict[Dtype, Tolerance] = Field(default_factory=dict)
    accuracy: AccuracyGate | None = None
    speech: SpeechSpec | None = Field(
        default=None, description="for `zoo transcribe`: how its programs make text of a recording"
    )
    licence: Licence
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _programs_named_once(self) -> Self:
        names = [p.name for p in self.programs]
        if len(set(names)) != len(names):
            raise ValueError("two programs bear the same name")
        if self.accuracy is not None and self.accuracy.program not in names:
            raise ValueError(f"the accuracy gate names no program of this model: {names}")
        for head, spec in (self.speech.heads if self.speech else {}).items():
            for program in {spec.listen, getattr(spec, "emit", spec.listen)} - set(names):
                raise ValueError(f"speech head {head} names no program of this model: {program}")
        return self

    @model_validator(mode="after")
    def _precise(self) -> Self:
        if {self.precision, *self.precisions} == {Precision.FLOAT32}:
            return self
        if self.dtype is not Dtype.FLOAT32:
            raise ValueError(f"a model of {self.dtype} is kept in that: leave out its precision")
        if self.precision in self.precisions:
            raise ValueError(f"its precision is {self.precision}: leave it out of `precisions`")
        given = {precision: of.calibration for precision, of in self.precisions.items()}
        for precision, calibration in {self.precision: self.calibration, **given}.items():
            if bool(calibration) != (precision is Precision.INT8_STATIC):
                raise ValueError(f"{precision}: `calibration` is for int8-static, which needs it")
        groups = {precision: of.group for precision, of in self.precisions.items()}
        for precision, group in {self.precision: self.group, **groups}.items():
            if group is not None and not precision.has_groups:
                raise ValueError(f"{precision}: `group` is for the weight-only precisions")
        for precision, variant in self.precisions.items():
            if spare := sorted(set(variant.targets or ()) - set(self.targets)):
                raise ValueError(f"{precision} is for target {spare[0]!r}, which the entry is not")
        return self

    def variants(self) -> dict[Precision, ModelSpec]:
        """The entry in each of its other precisions; neither is taken by a tag."""
        return {
            precision: self.model_copy(
                update={
                    "precision": precision,
                    "precisions": {},
                    "keep": of.keep,
                    "group": of.group,
                    "calibration": of.calibration,
                    "accuracy": _with_slack(self.accuracy, of.slack),
                    "speech": self.speech
                    and self.speech.model_copy(
                        update={"gate": _with_slack(self.speech.gate, of.slack)}
                    ),
                    "targets": self.targets if of.targets is None else of.targets,
                    "tolerances": {
                        **{t: v for t, v in self.tolerances.items() if t is not Dtype.FLOAT32},
                        **of.tolerances,
                    },
                    "tags": (),
                }
            )
            for precision, of in self.precisions.items()
        }

    @property
    def kept(self) -> WeightPrecision:
        """How its weights are kept."""
        return WeightPrecision(self.precision, self.keep, self.group)

    @property
    def own_tolerances(self) -> dict[Dtype, Tolerance]:
        """Those that differ from the usual ones of float32."""
        return {**usual_tolerances(self.precision), **self.tolerances}

    def tolerance(self, dtype: Dtype) -> Tolerance | None:
        """The tolerance for outputs of `dtype`; None means bit for bit: integers and booleans."""
        return self.own_tolerances.get(dtype) or DEFAULT_TOLERANCES.get(dtype)
