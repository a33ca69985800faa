"""The types of a model's source: what an entry may say about where a model comes from.

Each tells whether weights can be had without `--random-weights` (`has_weights`), and whether a
seed stands in for them (`is_fetched`): that replaces going to the network, not files at hand.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from zoo.base_models import Name, Reference, Sha256, SpecModel

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
    """Whether a `module:callable` is this project's own, and so needs no permission to run."""
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
        "its name, which somebody with a day's computing can meet",
    )

    @property
    def has_weights(self) -> bool:
        """Whether weights can be had without `--random-weights`."""
        return self.weights is not None

    @property
    def is_fetched(self) -> bool:
        """Whether having the weights means going to the network."""
        return True


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

    @property
    def has_weights(self) -> bool:
        """Whether weights can be had without `--random-weights`."""
        return self.id is not None or self.folder is not None

    @property
    def is_fetched(self) -> bool:
        """Whether having the weights means going to the network."""
        return self.folder is None


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
    arguments: dict[str, object] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _encrypted(self) -> Self:
        if "://" in self.path and not self.path.startswith("https://"):
            raise ValueError("`path` is a path beside the manifest file or starts with https://")
        return self

    @property
    def has_weights(self) -> bool:
        """Whether weights can be had without `--random-weights`."""
        return True

    @property
    def is_fetched(self) -> bool:
        """Whether having the weights means going to the network."""
        return self.path.startswith("https://")


class FactorySource(SpecModel):
    """A callable of the manifest's owner that returns an nn.Module: code, so off by default.

    Callables under `zoo.models.builders.` are this project's own and always allowed.
    """

    kind: Literal["factory"]
    builder: Reference = Field(
        description="`module:callable`; the module is importable or lies beside the manifest file"
    )
    arguments: dict[str, object] = Field(default_factory=dict)
    has_weights: bool = Field(
        default=True,
        description="false: the callable gives the structure only, for --random-weights to fill",
    )

    @property
    def is_fetched(self) -> bool:
        """Whether `--random-weights` stands in for the callable's weights: it has none."""
        return not self.has_weights


SourceSpec = Annotated[
    TorchvisionSource | TransformersSource | CheckpointSource | FactorySource,
    Field(discriminator="kind"),
]
