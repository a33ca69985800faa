"""The text of a transformers model's tokens, from the tokenizer.json beside its weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.home import home
from zoo.errors import SourceError
from zoo.sources.weights_folder import weights_folder

if TYPE_CHECKING:
    from zoo.sources.context import Context
    from zoo.spec import TransformersSource
    from zoo.spec_speech import SpeechSpec

__all__ = ["with_pieces"]

_FILE = "tokenizer.json"


def with_pieces(speech: SpeechSpec, source: TransformersSource, context: Context) -> SpeechSpec:
    """The entry's speech with the tokenizer's own pieces in the place of numbered ones.

    Args:
        speech: of an entry whose vocabulary says `tokenizer`.
        source: where its weights are from.
        context: where the entry stands.

    Raises:
        SourceError: there is no tokenizer, or not one of as many tokens as the entry says.
        SourceRefused: the source's folder leads out of the manifest's.
    """
    from tokenizers import Tokenizer

    words, path = speech.vocabulary, _path(source, context)
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
    return speech.model_copy(update={"vocabulary": read})


def _path(source: TransformersSource, context: Context) -> Path:
    if source.folder is not None:
        return weights_folder(source.folder, context) / _FILE
    from huggingface_hub import hf_hub_download

    try:
        found = hf_hub_download(
            str(source.id), _FILE, revision=source.revision, cache_dir=home() / "huggingface"
        )
    except Exception as error:  # hub, network and file system: all mean that it cannot be had
        fact = f"{_FILE} of {source.id} at {source.revision} cannot be had"
        raise SourceError(context.model, fact, "Check the network") from error
    return Path(found)
