"""Tokens to text: what a tokenizer's decoder does, for the few kinds that speech models have."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from menagerie.speech.transcript import Token, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from menagerie.speech.recipe import Vocabulary

__all__ = ["Speller"]

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"


class Speller:
    """Writes tokens out.

    Args:
        vocabulary: of the model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = vocabulary.pieces
        self._kind = vocabulary.kind
        self._special = frozenset(vocabulary.special)

    def piece(self, token: int) -> str:
        """The text of a token alone; a part of a character that takes several is U+FFFD."""
        return self._bytes(token).decode("utf-8", "replace")

    def written(self, tokens: Sequence[int]) -> str:
        """The text of a sequence of tokens, with a space where the first begins a word."""
        return b"".join(map(self._bytes, tokens)).decode("utf-8", "replace")

    def words(self, tokens: Sequence[Token]) -> tuple[Word, ...]:
        """The words that tokens spell: from one that begins with a space to the next such.

        A token that is no more than a space, as of vocabularies of characters, is between words.
        """
        groups: list[list[Token]] = [[]]
        for token in tokens:
            written = self._bytes(token.id)
            if written[:1].isspace():
                groups.append([])
            if written.strip():
                groups[-1].append(token)
        return tuple(
            Word(self.written([token.id for token in group]).strip(), group[0].start, group[-1].end)
            for group in groups
            if group
        )

    def _bytes(self, token: int) -> bytes:
        """A token as UTF-8, which a character may share with the tokens beside it."""
        if token in self._special or not 0 <= token < len(self._pieces):
            return b""
        piece = self._pieces[token]
        if self._kind == "bytes":
            return bytes(_byte_alphabet()[character] for character in piece)
        if self._kind == "sentencepiece":
            if byte := _BYTE.fullmatch(piece):
                return bytes([int(byte.group(1), 16)])
            piece = piece.replace(_SPACE, " ")
        return piece.encode()


@cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character for every byte: its own where Latin-1 has one, else from 256."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in shown)
    return {chr(byte): byte for byte in shown} | {
        chr(256 + count): byte for count, byte in enumerate(others)
    }
