"""What a transformers model's tokens mean, from the JSON files beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.home import home
from zoo.errors import SourceError
from zoo.sources.weights_folder import weights_folder
from zoo.spec_speech import WhisperHeadSpec

if TYPE_CHECKING:
    from zoo.sources.context import Context
    from zoo.spec import TransformersSource
    from zoo.spec_speech import SpeechSpec

__all__ = ["with_pieces"]

_FILE = "tokenizer.json"
_GENERATION = "generation_config.json"
_NAMES = {  # of a Whisper's head, as transformers calls it
    "start": "decoder_start_token_id",
    "end": "eos_token_id",
    "no_timestamps": "no_timestamps_token_id",
    "latest_start": "max_initial_timestamp_index",
    "suppress": "suppress_tokens",
    "begin_suppress": "begin_suppress_tokens",
}


def with_pieces(speech: SpeechSpec, source: TransformersSource, context: Context) -> SpeechSpec:
    """The entry's speech with the tokenizer's own pieces in the place of numbered ones.

    The tokens of a Whisper's head are then those of its generation_config.json.

    Args:
        speech: of an entry whose vocabulary says `tokenizer`.
        source: where its weights are from.
        context: where the entry stands.

    Raises:
        SourceError: there is no tokenizer, or not one of as many tokens as the entry says.
        SourceRefused: the source's folder leads out of the manifest's.
    """
    from tokenizers import Tokenizer

    words, path = speech.vocabulary, _path(_FILE, source, context)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # of Rust's: it has one type for all
        fact = f"{_FILE} cannot be read ({next(iter(str(error).splitlines()), error)})"
        raise SourceError(context.model, fact, "Mend the source's folder") from error
    pieces = {number: text for text, number in tokenizer.get_vocab().items()}
    if sorted(pieces) != list(range(words.numbered)):
        fact = f"{_FILE} has {len(pieces)} tokens, not 0 to {words.numbered - 1}"
        raise SourceError(context.model, fact, "Mend `vocabulary.numbered`")
    special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    read = words.model_copy(
        update={
            "pieces": tuple(pieces[number] for number in range(words.numbered)),
            "numbered": 0,
            "special": tuple(sorted(special.union(words.special))),
        }
    )
    heads = {
        name: _as_generated(head, source, context) if isinstance(head, WhisperHeadSpec) else head
        for name, head in speech.heads.items()
    }
    return speech.model_copy(update={"vocabulary": read, "heads": heads})


def _as_generated(
    head: WhisperHeadSpec, source: TransformersSource, context: Context
) -> WhisperHeadSpec:
    """A Whisper's head with the tokens and lists of its own generation."""
    try:
        told = json.loads(_path(_GENERATION, source, context).read_bytes())
        fields = {ours: told[theirs] for ours, theirs in _NAMES.items() if theirs in told}
        languages = told.get("lang_to_id") or {}
        fields["languages"] = {code.strip("<|>"): token for code, token in languages.items()}
        fields["tasks"] = told.get("task_to_id") or {}
        fields = {name: value for name, value in fields.items() if value is not None}
        return WhisperHeadSpec.model_validate(head.model_dump() | fields)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        fact = f"{_GENERATION} cannot be read ({next(iter(str(error).splitlines()), error)})"
        raise SourceError(context.model, fact, "Mend the source's folder") from error


def _path(file: str, source: TransformersSource, context: Context) -> Path:
    if source.folder is not None:
        return weights_folder(source.folder, context) / file
    from huggingface_hub import hf_hub_download

    try:
        found = hf_hub_download(
            str(source.id), file, revision=source.revision, cache_dir=home() / "huggingface"
        )
    except Exception as error:  # hub, network and file system: all mean that it cannot be had
        fact = f"{file} of {source.id} at {source.revision} cannot be had"
        raise SourceError(context.model, fact, "Check the network") from error
    return Path(found)
