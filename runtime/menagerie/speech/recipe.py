"""The format of speech.json: how a bundle's programs turn a recording into text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import Count, Name, Positive
from menagerie.typed_json import Malformed, from_json
from menagerie.uses import AttentionHead, CtcHead, TransducerHead, Use, WhisperHead

__all__ = [
    "HEADS", "HELD_OUT_FILE", "HIGHEST_RATE", "LOWEST_RATE", "SPEECH_FILE", "AttentionHead",
    "CtcHead", "Head", "Recipe", "TransducerHead", "Vocabulary", "WhisperHead", "WordGate",
    "read_recipe",
]  # fmt: skip

SPEECH_FILE: Final = "speech.json"
HELD_OUT_FILE: Final = "held_out.safetensors"
_MOST_PIECES = 1_000_000
_MOST_BYTES = 64_000_000
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # samples per second, the plausible range


Head = CtcHead | TransducerHead | AttentionHead | WhisperHead
HEADS = (CtcHead, TransducerHead, AttentionHead, WhisperHead)  # for `isinstance`


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The vocabulary: `pieces[token]` is the text of a token.

    - `sentencepiece`: U+2581 stands for a space, `<0x41>` for a byte;
    - `bytes`: each character stands for a byte, as in GPT-2's tokenizers;
    - `plain`: the text itself;
    - `wordpiece`: BERT's pieces, where `##` marks the continuation of a word.
    """

    kind: Literal["sentencepiece", "bytes", "plain", "wordpiece"]
    pieces: tuple[str, ...]
    special: tuple[Count, ...] = ()  # tokens that are not text

    def __post_init__(self) -> None:
        if not 0 < len(self.pieces) <= _MOST_PIECES:
            raise ValueError(f"there are {len(self.pieces)} pieces, not 1 to {_MOST_PIECES:,}")
        if any(token >= len(self.pieces) for token in self.special):
            raise ValueError("a special token has no piece")


@dataclass(frozen=True, kw_only=True)
class WordGate:
    """Recordings on which the artifact must make the same word errors as eager PyTorch."""

    errors: dict[Name, Count]  # eager's word errors, by head
    most: float  # errors per word; a lower rate passes
    slack: Count | None = None  # errors by which the artifact may differ
    emulated: bool = True  # whether an emulated device counts them


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to transcribe with a bundle, or use it in another way (`menagerie.steps`).

    A recording longer than the programs take is cut into chunks that overlap by `overlap` seconds.
    """

    format: Literal["menagerie-speech"] = "menagerie-speech"
    version: Literal[1] = 1
    rate: Positive = 16_000  # samples per second of the programs' input
    frame: Positive = 1  # samples per frame of the programs' results
    hop: Positive = 1  # samples per frame of features; a shorter remainder is ignored
    overlap: float = 0.0  # seconds
    heads: dict[Name, Head | Use]  # the first is the default
    vocabulary: Vocabulary
    gate: WordGate | None = None

    @property
    def spoken(self) -> dict[Name, Head]:
        """The heads that turn a recording into text."""
        return {name: head for name, head in self.heads.items() if isinstance(head, HEADS)}

    def __post_init__(self) -> None:
        if not self.heads:
            raise ValueError("heads: is empty")
        if not LOWEST_RATE <= self.rate <= HIGHEST_RATE:
            raise ValueError(f"rate: is {self.rate}, not {LOWEST_RATE:,} to {HIGHEST_RATE:,} Hz")
        if self.frame % self.hop:
            raise ValueError(f"frame: is {self.frame}, no multiple of hop, {self.hop}")
        if not 0.0 <= self.overlap <= 3600.0:  # noqa: PLR2004 - an hour; NaN fails too
            raise ValueError(f"overlap: is {self.overlap:g}, not 0 to 3600 s")
        if self.gate is not None and (unknown := self.gate.errors.keys() - self.spoken.keys()):
            raise ValueError(f"gate.errors: there is no head {min(unknown)!r}")
        for name, head in self.spoken.items():
            role = "blank" if isinstance(head, (CtcHead, TransducerHead)) else "end"
            if (token := getattr(head, role)) > len(self.vocabulary.pieces):
                raise ValueError(f"heads.{name}.{role}: there is no token {token}")


def read_recipe(path: Path, programs: Collection[str]) -> Recipe:
    """Read the recipe of a bundle with these programs; raise ArtifactError if it does not fit."""
    if path.stat().st_size > _MOST_BYTES:
        raise ArtifactError(str(path), f"is larger than {_MOST_BYTES:,} bytes")
    try:
        recipe = from_json(Recipe, path.read_bytes())
    except Malformed as error:
        raise ArtifactError(str(path), str(error)) from None
    for name, head in recipe.heads.items():
        if absent := sorted(set(head.programs) - set(programs)):
            raise ArtifactError(str(path), f"heads.{name}: there is no program {absent[0]!r}")
    return recipe
