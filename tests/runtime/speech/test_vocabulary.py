"""Tokens to text, as the tokenizers library decodes them."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from menagerie.speech.recipe import Vocabulary
from menagerie.speech.transcript import Speller, Token, Word

_PIECES = ("<unk>", "\u2581the", "\u2581c", "at", "s", ".", "<0xE2>", "<0x82>", "<0xAC>", "\u2581")
_SENTENCE = [1, 2, 3, 4, 9, 6, 7, 8, 5]


def _speller(kind: str, pieces: tuple[str, ...], special: tuple[int, ...] = ()) -> Speller:
    return Speller(Vocabulary(kind=kind, pieces=pieces, special=special))  # type: ignore[arg-type]


def test_sentencepiece_is_written_as_tokenizers_does() -> None:
    """Spaces, and a character of three bytes that are tokens of their own."""
    ids = {piece: number for number, piece in enumerate(_PIECES)}
    library = Tokenizer(models.BPE(ids, [], byte_fallback=True))
    library.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]
    )

    wanted = library.decode(_SENTENCE)
    assert wanted.strip() == "the cats \N{EURO SIGN}."
    assert _speller("sentencepiece", _PIECES).written(_SENTENCE).strip() == wanted.strip()


def test_bytes_are_written_as_gpt2_does() -> None:
    """All 256 of them, and a character whose bytes are tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Tokenizer(models.BPE({piece: n for n, piece in enumerate(alphabet)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    text = "A caf\xe9, 5 \N{EURO SIGN}\n\t\x00\xad\xff \U0001f642"
    tokens = library.encode(text).ids

    assert len(tokens) == len(text.encode())
    assert _speller("bytes", tuple(alphabet)).written(tokens) == text == library.decode(tokens)
    assert {_speller("bytes", tuple(alphabet)).piece(n) for n in range(256)} > {"a", " ", "\ufffd"}


def test_words_begin_with_a_space_and_last_from_first_to_last_token() -> None:
    """A word's tokens are joined; punctuation stays with the word before it."""
    tokens = [
        Token(token, "", number, number + 0.5) for number, token in enumerate([1, 2, 3, 4, 5])
    ]

    words = _speller("sentencepiece", _PIECES).words(tokens)
    assert words == (Word("the", 0, 0.5), Word("cats.", 1, 4.5))


def test_a_space_of_its_own_is_between_words() -> None:
    """In a vocabulary of characters: a word's time is that of its characters."""
    said = [0, 1, 0, 1, 1, 1, 0]
    tokens = [Token(token, "", number, number + 0.5) for number, token in enumerate(said)]
    words = _speller("plain", (" ", "a")).words(tokens)
    assert words == (Word("a", 1, 1.5), Word("aaa", 3, 5.5))


def test_special_tokens_are_no_text() -> None:
    """Nor is a token that the vocabulary does not have."""
    speller = _speller("plain", ("a", "<end>"), special=(1,))

    assert speller.written([0, 1, 0, 7]) == "aa"
    assert speller.words([Token(1, "", 0.0, 1.0)]) == ()


@pytest.mark.parametrize(("pieces", "special"), [((), ()), (("a",), (1,))])
def test_a_vocabulary_without_its_pieces_is_refused(
    pieces: tuple[str, ...], special: tuple[int, ...]
) -> None:
    """No piece at all, or a special token beyond them."""
    with pytest.raises(ValueError, match="piece"):
        Vocabulary(kind="plain", pieces=pieces, special=special)
