"""Models of the transformers library: safetensors at a pinned revision, or seeded."""

from __future__ import annotations

import fnmatch
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from menagerie.paths import home
from zoo.errors import SourceError
from zoo.nearest import advice
from zoo.sources.operators import torchvision_operators
from zoo.sources.weights_folder import beside_weights, weights_folder
from zoo.spec_sources import INSTEAD_OF_NEMO

if TYPE_CHECKING:
    from types import ModuleType

    from torch import nn

    from zoo.sources.context import Context
    from zoo.spec import TransformersSource

__all__ = ["library", "trained", "untrained"]

_PREPROCESSOR = "preprocessor_config.json"
# Experts as plain batches of products; what transformers chooses is a kernel that no target has.
_EXPERTS = "batched_mm"


def untrained(source: TransformersSource, context: Context) -> nn.Module:
    """The architecture with the entry's configuration, as transformers initialises it.

    Raises:
        SourceError: if there is no such architecture or it refuses the configuration.
    """
    architecture = _architecture(source, context)
    try:
        module: nn.Module = architecture(architecture.config_class(**source.config))
    except Exception as error:  # configurations validate themselves, each in its way
        fact = f"{source.architecture} refuses the entry's config ({_first_line(error)})"
        raise SourceError(context.model, fact, "Mend `config`") from error
    return _in_parts(module, source, context)


def trained(source: TransformersSource, context: Context) -> nn.Module:
    """The architecture with weights from the hub or from a folder beside the manifest.

    Raises:
        SourceError: if they cannot be had, or leave a parameter without a value.
        SourceRefused: if the folder leads out of the manifest's.
    """
    architecture = _architecture(source, context)
    local = source.folder is not None
    place = str(weights_folder(source.folder, context)) if source.folder else str(source.id)
    try:
        # What `may_lack` leaves to chance must not differ from run to run.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module, info = architecture.from_pretrained(
                place,
                revision=None if local else source.revision,
                cache_dir=home() / "huggingface",
                local_files_only=local,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:  # hub, file system and tensor errors all mean: no weights
        step = _mending(place) if local else "Check the network, or give --random-weights SEED"
        shown = source.folder if local else f"{source.id} at {source.revision}"
        fact = f"{shown} cannot be loaded ({_first_line(error)})"
        raise SourceError(context.model, fact, step) from error
    _require_complete(info, source, context)
    return _in_parts(module, source, context, as_trained=True)


@functools.cache
def library() -> ModuleType:
    """The library itself, with what all its models are made of."""
    with torchvision_operators():
        import transformers
        import transformers.modeling_utils

    # Its notes and bars would land in the middle of ours; what matters is raised or checked.
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    found: ModuleType = transformers
    return found


def _architecture(source: TransformersSource, context: Context) -> Any:
    known = library()
    found = getattr(known, source.architecture, None)
    if not isinstance(found, type) or not issubclass(found, known.PreTrainedModel):
        fact = f"transformers has no model class {source.architecture}"
        step = advice(source.architecture, dir(known), "Mend `architecture`")
        raise SourceError(context.model, fact, step)
    return found


def _require_complete(info: dict[str, Any], source: TransformersSource, context: Context) -> None:
    """Refuse what transformers only warns of: parameters it had no value for."""
    mismatched = {entry[0] for entry in info["mismatched_keys"]}
    lacking = sorted(
        key
        for key in {*info["missing_keys"], *mismatched}
        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in source.may_lack)
    )
    if lacking:
        raise SourceError(
            context.model,
            f"the weights have no value for {len(lacking)} parameter(s), first {lacking[0]}",
            "Mend `architecture`, or list under `may_lack` what no program uses",
        )


def _in_parts(
    module: Any, source: TransformersSource, context: Context, *, as_trained: bool = False
) -> nn.Module:
    """The model itself, or from samples on where the entry asks for that."""
    module.set_experts_implementation(_EXPERTS)
    whole: nn.Module = module
    if not source.from_samples:
        return whole
    from zoo.models.builders.moonshine import Moonshine
    from zoo.models.builders.parakeet import Parakeet
    from zoo.models.builders.wav2vec2 import Wav2Vec2
    from zoo.models.builders.whisper import Whisper

    for family in (Parakeet, Whisper):
        if family.takes(whole):
            return family(whole)
    for levelled in (Wav2Vec2, Moonshine):
        if levelled.takes(whole):
            told = _do_normalize(source, context) if as_trained else None
            return levelled(whole) if told is None else levelled(whole, told)
    fact = f"{source.architecture} has no parts from samples on"
    step = "Leave out `from_samples`, or name a Parakeet, Whisper, wav2vec 2.0, HuBERT or Moonshine"
    raise SourceError(context.model, fact, step)


def _do_normalize(source: TransformersSource, context: Context) -> bool | None:
    """What a Wav2Vec2FeatureExtractor's settings say of the samples; None if they say nothing."""
    path = beside_weights(_PREPROCESSOR, source, context)
    try:
        told = json.loads(path.read_bytes()).get("do_normalize")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        fact = f"{_PREPROCESSOR} cannot be read ({_first_line(error)})"
        raise SourceError(context.model, fact, "Mend the source's folder") from error
    return None if told is None else bool(told)


def _mending(folder: str) -> str:
    if any(Path(folder).glob("*.nemo")):
        return INSTEAD_OF_NEMO[0].upper() + INSTEAD_OF_NEMO[1:]
    return "Mend the folder"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
