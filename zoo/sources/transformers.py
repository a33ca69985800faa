"""Models and tokens of the transformers library: safetensors at a pinned revision, or seeded."""

from __future__ import annotations

import fnmatch
import functools
import json
import operator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import nn

from menagerie.paths import home
from menagerie.typed_json import plain
from menagerie.uses import AttentionHead, CtcHead
from zoo.errors import SourceError, advice
from zoo.models.torchvision_operators import torchvision_operators
from zoo.sources.context import Context, first_line, reading, weights_folder
from zoo.sources.package import unpack
from zoo.spec import (
    INSTEAD_OF_NEMO,
    HeadSpec,
    PackageSource,
    SourceSpec,
    SpeechSpec,
    TransformersSource,
    WhisperHeadSpec,
)

_Source = TransformersSource | PackageSource
_Tokens = tuple[dict[int, str], set[int], int | None]  # pieces, special tokens, CTC's blank
_PREPROCESSOR = "preprocessor_config.json"
# Experts as plain batched products; transformers' default is a kernel that no target has.
_EXPERTS = "batched_mm"
_FILE = "tokenizer.json"
_LINES = "vocabulary.txt"  # of CTranslate2
_CHARACTERS = "vocab.json"  # of wav2vec 2.0 and its kin
_SETTINGS = "tokenizer_config.json"
_GENERATION = "generation_config.json"


def untrained(source: TransformersSource, context: Context) -> nn.Module:
    """Return the architecture with the entry's configuration, as transformers initialises it.

    Raise SourceError if there is no such architecture or it refuses the configuration.
    """
    architecture = _architecture(source, context)
    try:
        module: nn.Module = architecture(architecture.config_class(**source.config))
    except Exception as error:  # each configuration has its own validation errors
        fact = f"{source.architecture} refuses the entry's config ({first_line(error)})"
        raise SourceError(context.model, fact, "Fix `config`") from error
    return _in_parts(module, source, context)


def trained(source: TransformersSource, context: Context) -> nn.Module:
    """Return the model with weights from the hub or from a folder beside the manifest.

    Raise SourceError if they cannot be loaded or leave a parameter without a value, SourceRefused
    if the folder leads out of the manifest's.
    """
    architecture = _architecture(source, context)
    local = source.folder is not None
    place = str(weights_folder(source.folder, context)) if source.folder else str(source.id)
    try:
        # Parameters that `may_lack` leaves random must not differ between runs.
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
        step = "Fix the folder" if local else "Check the network, or give --random-weights SEED"
        if local and any(Path(place).glob("*.nemo")):
            step = INSTEAD_OF_NEMO[0].upper() + INSTEAD_OF_NEMO[1:]
        shown = source.folder if local else f"{source.id} at {source.revision}"
        fact = f"{shown} cannot be loaded ({first_line(error)})"
        raise SourceError(context.model, fact, step) from error
    _require_complete(info, source, context)
    return _in_parts(module, source, context, as_trained=True)


@functools.cache
def library() -> ModuleType:
    """Import transformers, with the modules that all its models need, and return it."""
    with torchvision_operators():
        import transformers
        import transformers.modeling_utils

    # Its warnings and progress bars would mix with ours; what matters is raised or checked.
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    found: ModuleType = transformers
    return found


def _architecture(source: TransformersSource, context: Context) -> Any:
    known = library()
    found = getattr(known, source.architecture, None)
    if not isinstance(found, type) or not issubclass(found, known.PreTrainedModel):
        fact = f"transformers has no model class {source.architecture}"
        step = advice(source.architecture, dir(known), "Fix `architecture`")
        raise SourceError(context.model, fact, step)
    return found


def _require_complete(info: dict[str, Any], source: TransformersSource, context: Context) -> None:
    """Raise SourceError for parameters without a value, of which transformers only warns."""
    mismatched = {entry[0] for entry in info["mismatched_keys"]}
    lacking = sorted(
        key
        for key in {*info["missing_keys"], *mismatched}
        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in source.may_lack)
    )
    if lacking:
        fact = f"the weights have no value for {len(lacking)} parameter(s), first {lacking[0]}"
        step = "Fix `architecture`, or list under `may_lack` what no program uses"
        raise SourceError(context.model, fact, step)


def _in_parts(
    module: Any, source: TransformersSource, context: Context, *, as_trained: bool = False
) -> nn.Module:
    """Return the model, or its parts that take samples if the entry asks for them."""
    module.set_experts_implementation(_EXPERTS)
    whole: nn.Module = module
    if not source.from_samples:
        return whole
    from zoo.models.builders import parakeet, recognisers

    def given() -> bool | None:
        return _do_normalize(source, context) if as_trained else None

    if parts := parakeet.parts(whole) or recognisers.parts(whole, given):
        return parts
    fact = f"{source.architecture} has no parts from samples on"
    step = "Leave out `from_samples`, or name a Parakeet, Whisper, wav2vec 2.0, HuBERT or Moonshine"
    raise SourceError(context.model, fact, step)


def _do_normalize(source: TransformersSource, context: Context) -> bool | None:
    """Return whether a Wav2Vec2FeatureExtractor normalises samples; None if unspecified."""
    path = beside_weights(_PREPROCESSOR, source, context)
    if not path.exists():
        return None
    with reading(_PREPROCESSOR, context.model):
        given = json.loads(path.read_bytes()).get("do_normalize")
    return None if given is None else bool(given)


def beside_weights(file: str, source: _Source, context: Context) -> Path:
    """Return the path of a file beside a source's weights; in a folder the file may be missing.

    Raise SourceError if the hub or the package does not have it, SourceRefused if the source's
    folder leads out of the manifest's.
    """
    if isinstance(source, PackageSource):
        part = next((part for part in source.beside if Path(part.file).name == file), None)
        if part is None:
            fact = f"its source names no {file}"
            raise SourceError(context.model, fact, "Name it under `beside`")
        return unpack(source, part, context.model)
    if source.folder is not None:
        return weights_folder(source.folder, context) / file
    from huggingface_hub import hf_hub_download

    try:
        found = hf_hub_download(
            str(source.id), file, revision=source.revision, cache_dir=home() / "huggingface"
        )
    except Exception as error:  # any error of hub, network or file system means that it is missing
        fact = f"{file} of {source.id} at {source.revision} cannot be had"
        raise SourceError(context.model, fact, "Check the network") from error
    return Path(found)


_NAMES = {  # transformers' names of a head
    "start": "decoder_start_token_id",
    "end": "eos_token_id",
    "most_tokens": "max_length",
    "no_timestamps": "no_timestamps_token_id",
    "latest_start": "max_initial_timestamp_index",
    "suppress": "suppress_tokens",
    "begin_suppress": "begin_suppress_tokens",
}


def with_pieces(speech: SpeechSpec, source: SourceSpec, context: Context) -> SpeechSpec:
    """Return the entry's speech with the pieces of the tokenizer, if its vocabulary names one.

    A decoder's head then takes its tokens from generation_config.json, and a CTC head over
    characters takes its blank from `<pad>` in vocab.json. Raise SourceError if the tokenizer is
    missing or has another number of tokens than the entry, SourceRefused if the source's folder
    leads out of the manifest's.
    """
    words = speech.vocabulary
    if not words.tokenizer or not isinstance(source, TransformersSource | PackageSource):
        return speech
    file, read = (_CHARACTERS, _characters) if words.kind == "plain" else (_FILE, _tokens)
    if isinstance(source, PackageSource):
        named = {Path(part.file).name for part in source.beside}
        file, read = (_LINES, _lines) if _LINES in named else (file, read)
    pieces, special, blank = read(source, context)
    known = {
        "pieces": _numbered(pieces, words.numbered, file, "vocabulary", context),
        "numbered": 0,
        "special": tuple(sorted({*special, *words.special})),
    }
    heads = {name: _as_trained(head, blank, source, context) for name, head in speech.heads.items()}
    vocabulary = words.model_copy(update=known)
    return speech.model_copy(update={"vocabulary": vocabulary, "heads": heads})


def use_pieces(count: int, source: SourceSpec, context: Context) -> tuple[str, ...]:
    """Return the `count` pieces of a package's tokenizer.json; SourceError for another number."""
    if not isinstance(source, PackageSource):
        raise SourceError(context.model, "its tokenizer is not in a package", "Use kind: package")
    return _numbered(_tokens(source, context)[0], count, _FILE, "use", context)


def _numbered(
    pieces: dict[int, str], count: int, file: str, field: str, context: Context
) -> tuple[str, ...]:
    if len(pieces) != count or any(number not in pieces for number in range(count)):
        fact = f"{file} has {len(pieces)} tokens, not 0 to {count - 1}"
        raise SourceError(context.model, fact, f"Correct `{field}.numbered`, or the tokenizer")
    return tuple(pieces[number] for number in range(count))


def _tokens(source: _Source, context: Context) -> _Tokens:
    from tokenizers import Tokenizer

    path = beside_weights(_FILE, source, context)
    with reading(_FILE, context.model):
        tokenizer = Tokenizer.from_file(str(path))
    pieces = {number: text for text, number in tokenizer.get_vocab().items()}
    special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    return pieces, special, None


def _lines(source: _Source, context: Context) -> _Tokens:
    """Read the tokens of CTranslate2's vocabulary.txt, one per line; `<|...|>` are special."""
    with reading(_LINES, context.model):
        text = beside_weights(_LINES, source, context).read_text("utf-8")
    pieces = dict(enumerate(text.removesuffix("\n").split("\n")))
    return pieces, {n for n, piece in pieces.items() if piece.startswith("<|")}, None


def _characters(source: _Source, context: Context) -> _Tokens:
    """Read the tokens of vocab.json, in which `<pad>` is the blank."""
    with reading(f"{_CHARACTERS} or {_SETTINGS}", context.model):
        for file in (_CHARACTERS, _SETTINGS):
            path = beside_weights(file, source, context)
            path.stat()  # transformers would accept its absence
        known = library().Wav2Vec2CTCTokenizer.from_pretrained(path.parent, local_files_only=True)
        tokens = {token: operator.index(number) for token, number in known.encoder.items()}
        blank = tokens[known.pad_token]
    space = known.word_delimiter_token
    pieces = {
        number: " " if token == space else token.lower() if known.do_lower_case else token
        for token, number in tokens.items()
    }
    special = {tokens[token] for token in known.all_special_tokens if token in tokens}
    return pieces, special - {tokens.get(space, -1)}, blank


def _as_trained(head: HeadSpec, blank: int | None, source: _Source, context: Context) -> HeadSpec:
    """Return a head with its tokenizer's blank, or with generation_config.json's tokens."""
    if isinstance(head, CtcHead) and blank is not None:
        return replace(head, blank=blank)
    if isinstance(source, PackageSource) or not isinstance(head, WhisperHeadSpec | AttentionHead):
        return head
    with reading(_GENERATION, context.model):
        given = json.loads(beside_weights(_GENERATION, source, context).read_bytes())
        fields = {ours: given[theirs] for ours, theirs in _NAMES.items() if theirs in given}
        languages = given.get("lang_to_id") or {}
        fields["languages"] = {code.strip("<|>"): token for code, token in languages.items()}
        fields["tasks"] = given.get("task_to_id") or {}
        written = plain(head)
        fields = {n: v for n, v in fields.items() if n in written and v is not None}
        made: HeadSpec = TypeAdapter(HeadSpec).validate_python(written | fields)
        return made
