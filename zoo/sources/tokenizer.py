"""What a transformers model's tokens mean, from the JSON files beside its weights."""

from __future__ import annotations

import json
import operator
from typing import TYPE_CHECKING, Any

from zoo.errors import SourceError
from zoo.sources.weights_folder import beside_weights
from zoo.spec_speech import AttentionHeadSpec, CtcHeadSpec, WhisperHeadSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zoo.sources.context import Context
    from zoo.spec import TransformersSource
    from zoo.spec_speech import SpeechSpec, VocabularySpec

    HeadSpec = CtcHeadSpec | AttentionHeadSpec | WhisperHeadSpec

__all__ = ["with_pieces"]

_FILE = "tokenizer.json"
_CHARACTERS = "vocab.json"  # of wav2vec 2.0 and its kin
_SETTINGS = "tokenizer_config.json"
_GENERATION = "generation_config.json"
_NAMES = {  # of a head, as transformers calls it
    "start": "decoder_start_token_id",
    "end": "eos_token_id",
    "most_tokens": "max_length",
    "no_timestamps": "no_timestamps_token_id",
    "latest_start": "max_initial_timestamp_index",
    "suppress": "suppress_tokens",
    "begin_suppress": "begin_suppress_tokens",
}
# What transformers' Wav2Vec2CTCTokenizer takes for granted; the delimiter is a space in the text.
_SPECIAL = {
    "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
}  # fmt: skip
_DELIMITER = {"word_delimiter_token": "|"}


def with_pieces(speech: SpeechSpec, source: TransformersSource, context: Context) -> SpeechSpec:
    """The entry's speech with the tokenizer's own pieces in the place of numbered ones.

    The tokens of a decoder's head are then those of its generation_config.json, and the blank of a
    CTC head over characters is what vocab.json says of `<pad>`.

    Args:
        speech: of an entry whose vocabulary says `tokenizer`.
        source: where its weights are from.
        context: where the entry stands.

    Raises:
        SourceError: there is no tokenizer, or not one of as many tokens as the entry says.
        SourceRefused: the source's folder leads out of the manifest's.
    """
    words = speech.vocabulary
    if words.kind == "plain":
        return _with_characters(speech, source, context)
    from tokenizers import Tokenizer

    path = beside_weights(_FILE, source, context)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # of Rust's: it has one type for all
        fact = f"{_FILE} cannot be read ({_first_line(error)})"
        raise SourceError(context.model, fact, "Mend the source's folder") from error
    pieces = {number: text for text, number in tokenizer.get_vocab().items()}
    special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    read = _read(words, _FILE, pieces, special, context)
    heads = {
        name: _as_generated(head, source, context)
        if isinstance(head, WhisperHeadSpec | AttentionHeadSpec)
        else head
        for name, head in speech.heads.items()
    }
    return speech.model_copy(update={"vocabulary": read, "heads": heads})


def _read(
    words: VocabularySpec,
    file: str,
    pieces: dict[int, str],
    special: Iterable[int],
    context: Context,
) -> VocabularySpec:
    """The vocabulary with a file's pieces.

    Raises:
        SourceError: they are not as many as the entry says.
    """
    if sorted(pieces) != list(range(words.numbered)):
        fact = f"{file} has {len(pieces)} tokens, not 0 to {words.numbered - 1}"
        raise SourceError(context.model, fact, "Mend `vocabulary.numbered`")
    return words.model_copy(
        update={
            "pieces": tuple(pieces[number] for number in range(words.numbered)),
            "numbered": 0,
            "special": tuple(sorted({*special, *words.special})),
        }
    )


def _with_characters(
    speech: SpeechSpec, source: TransformersSource, context: Context
) -> SpeechSpec:
    """As `with_pieces`, of a tokenizer of characters."""
    try:
        table = json.loads(beside_weights(_CHARACTERS, source, context).read_bytes())
        tokens = {token: operator.index(number) for token, number in table.items()}
        path = beside_weights(_SETTINGS, source, context)
        told = json.loads(path.read_bytes())
        named = {
            role: _content(told.get(role), token) for role, token in (_SPECIAL | _DELIMITER).items()
        }
        lower, blank = bool(told.get("do_lower_case")), tokens[named["pad_token"]]
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        fact = f"{_CHARACTERS} or {_SETTINGS} cannot be read ({_first_line(error)})"
        raise SourceError(context.model, fact, "Mend the source's folder") from error
    written = {named["word_delimiter_token"]: " "}
    pieces = {
        number: written.get(token, token.lower() if lower else token)
        for token, number in tokens.items()
    }
    special = {tokens[named[role]] for role in _SPECIAL if named[role] in tokens}
    heads = {
        name: head.model_copy(update={"blank": blank}) if isinstance(head, CtcHeadSpec) else head
        for name, head in speech.heads.items()
    }
    read = _read(speech.vocabulary, _CHARACTERS, pieces, special, context)
    return speech.model_copy(update={"vocabulary": read, "heads": heads})


def _content(told: Any, default: str) -> str:
    """A token that a setting names, in short or, as those of added tokens, with its properties."""
    return str(told["content"] if isinstance(told, dict) else told or default)


def _as_generated(
    head: WhisperHeadSpec | AttentionHeadSpec, source: TransformersSource, context: Context
) -> WhisperHeadSpec | AttentionHeadSpec:
    """A decoder's head with the tokens and lists of its own generation."""
    try:
        told = json.loads(beside_weights(_GENERATION, source, context).read_bytes())
        fields = {ours: told[theirs] for ours, theirs in _NAMES.items() if theirs in told}
        languages = told.get("lang_to_id") or {}
        fields["languages"] = {code.strip("<|>"): token for code, token in languages.items()}
        fields["tasks"] = told.get("task_to_id") or {}
        known = type(head).model_fields
        fields = {n: value for n, value in fields.items() if n in known and value is not None}
        return type(head).model_validate(head.model_dump() | fields)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        fact = f"{_GENERATION} cannot be read ({_first_line(error)})"
        raise SourceError(context.model, fact, "Mend the source's folder") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
