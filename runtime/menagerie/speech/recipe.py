"""speech.json: how a bundle's programs make text of a recording or answer otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import (  # noqa: TC001 - read at run time
    Count,
    Name,
    Positive,
)
from menagerie.typed_json import Malformed, from_json
from menagerie.uses import Use  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

SPEECH_FILE: Final = "speech.json"
HELD_OUT_FILE: Final = "held_out.safetensors"
_MOST_PIECES = 1_000_000
_MOST_BYTES = 64_000_000
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # samples a second, at which anything is recorded


@dataclass(frozen=True, kw_only=True)
class _Listener:
    """What every head has."""

    listen: Name

    @property
    def programs(self) -> frozenset[str]:
        """The programs that it calls."""
        return frozenset({self.listen, getattr(self, "emit", self.listen)})


@dataclass(frozen=True, kw_only=True)
class CtcHead(_Listener):
    """Connectionist temporal classification: each frame has a token or is blank.

    Program `listen` takes `samples` (1, n) and gives `logits` (1, frames, tokens). Where it takes
    `lengths` (1,), too, samples are padded, and of the frames n / frame are real; else all are.
    """

    kind: Literal["ctc"]
    blank: Count


@dataclass(frozen=True, kw_only=True)
class TransducerHead(_Listener):
    """A transducer: RNN-T without durations, TDT (token and duration) with them.

    Program `listen` takes `samples` and `lengths` and gives `encoded` (1, n / frame, width).
    Program `emit` takes `token` (1, 1), the LSTM's `hidden` and `cell` (layers, 1, width) and
    `frames` (1, window, width), and gives `logits` (1, window, tokens), `durations` (1, window,
    number of durations) where there are any, and the states after the token.
    """

    kind: Literal["transducer"]
    emit: Name
    blank: Count
    durations: tuple[Count, ...] = ()
    most_symbols: Positive = 10  # emitted at one frame (RNN-T), or a frame on average (TDT)


@dataclass(frozen=True, kw_only=True)
class AttentionHead(_Listener):
    """A decoder that attends to a window: each token that it says is fed, until the end.

    Program `listen` takes `samples` (1, n) and gives `keys` and `values`. Program `emit` takes
    these, a `token` (1, 1) and its `position` (1,), remembers what it was fed, and gives `logits`
    (1, tokens).
    """

    kind: Literal["attention"]
    emit: Name
    start: Count  # fed first
    end: Count
    most_tokens: Positive  # of a window, the first included
    pace: float | None = None  # tokens a second that are said at most

    def __post_init__(self) -> None:
        if self.most_tokens < 2:  # noqa: PLR2004 - the first, and one that is said
            raise ValueError(f"most_tokens: is {self.most_tokens}, no more than the first")
        if self.pace is not None and not 0.0 < self.pace < math.inf:
            raise ValueError(f"pace: is {self.pace:g}, not above 0 tokens a second")


@dataclass(frozen=True, kw_only=True)
class WhisperHead(_Listener):
    """Whisper's decoder: a prompt is fed, then each token that it says, until the end.

    Program `listen` takes a window of `samples` (1, n) and gives `keys` and `values`. Program
    `emit` takes these, a `token` (1, 1) and its `position` (1,), remembers what it was fed, and
    gives `logits` (1, tokens). Tokens below `end` are text, those behind `no_timestamps` are times
    in steps of 20 ms.
    """

    kind: Literal["whisper"]
    emit: Name
    start: Count  # the prompt: this, a language where there are any, and the task
    languages: dict[str, Count] = field(default_factory=dict)  # by code
    language: str | None = None  # None: the likeliest, window by window
    task: Count | None = None
    end: Count
    no_timestamps: Count
    timestamps: bool = True
    latest_start: Count | None = None  # the last step that may begin a window
    suppress: tuple[Count, ...] = ()  # never said
    begin_suppress: tuple[Count, ...] = ()  # not said first
    most_tokens: Positive = 448  # of a window, prompt included

    def __post_init__(self) -> None:
        if self.no_timestamps < self.end:
            raise ValueError(f"no_timestamps: {self.no_timestamps} is a token of text")
        if self.language is not None and self.language not in self.languages:
            raise ValueError(f"language: there is no {self.language!r}")
        if self.most_tokens < 5:  # noqa: PLR2004 - four of a prompt, and one that is said
            raise ValueError(f"most_tokens: is {self.most_tokens}, no more than a prompt")


Head = CtcHead | TransducerHead | AttentionHead | WhisperHead
HEADS = (CtcHead, TransducerHead, AttentionHead, WhisperHead)  # as `isinstance` takes them


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What the tokens are: `pieces[token]` is its text.

    - `sentencepiece`: U+2581 stands for a space, `<0x41>` for a byte;
    - `bytes`: every character stands for a byte, as GPT-2's tokenizers write them;
    - `plain`: texts as they are;
    - `wordpiece`: BERT's, `##` before what goes on a word.
    """

    kind: Literal["sentencepiece", "bytes", "plain", "wordpiece"]
    pieces: tuple[str, ...]
    special: tuple[Count, ...] = ()  # tokens that are no part of the text

    def __post_init__(self) -> None:
        if not 0 < len(self.pieces) <= _MOST_PIECES:
            raise ValueError(f"there are {len(self.pieces)} pieces, not 1 to {_MOST_PIECES:,}")
        if any(token >= len(self.pieces) for token in self.special):
            raise ValueError("a special token has no piece")


@dataclass(frozen=True, kw_only=True)
class WordGate:
    """Recordings on which the artifact must make as many word errors as eager PyTorch did."""

    errors: dict[Name, Count]  # eager's, by head
    most: float  # the highest rate that passes, errors by words
    slack: Count | None = None  # that it may make more, or fewer


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to transcribe with a bundle, or to use it otherwise (`menagerie.steps`).

    A recording longer than the programs take is cut into chunks that overlap by `overlap` seconds.
    """

    format: Literal["menagerie-speech"] = "menagerie-speech"
    version: Literal[1] = 1
    rate: Positive = 16_000  # samples a second that the programs take
    frame: Positive = 1  # samples to a frame of the programs' results
    hop: Positive = 1  # samples to a frame of features; a rest shorter than that is not heard
    overlap: float = 0.0  # seconds
    heads: dict[Name, Head | Use]  # the first is the one to use
    vocabulary: Vocabulary
    gate: WordGate | None = None

    @property
    def spoken(self) -> dict[Name, Head]:
        """The heads that make text of a recording."""
        return {name: head for name, head in self.heads.items() if isinstance(head, HEADS)}

    def __post_init__(self) -> None:
        if not self.heads:
            raise ValueError("heads: is empty")
        if not LOWEST_RATE <= self.rate <= HIGHEST_RATE:
            raise ValueError(f"rate: is {self.rate}, not {LOWEST_RATE:,} to {HIGHEST_RATE:,} Hz")
        if self.frame % self.hop:
            raise ValueError(f"frame: is {self.frame}, no multiple of hop, {self.hop}")
        if not 0.0 <= self.overlap <= 3600.0:  # noqa: PLR2004 - an hour, and a number at all
            raise ValueError(f"overlap: is {self.overlap:g}, not 0 to 3600 s")
        if self.gate is not None and (unknown := self.gate.errors.keys() - self.spoken.keys()):
            raise ValueError(f"gate.errors: there is no head {min(unknown)!r}")
        for name, head in self.spoken.items():
            role = "blank" if isinstance(head, (CtcHead, TransducerHead)) else "end"
            if (token := getattr(head, role)) > len(self.vocabulary.pieces):
                raise ValueError(f"heads.{name}.{role}: there is no token {token}")


def read_recipe(path: Path, programs: Collection[str]) -> Recipe:
    """Read the recipe for a bundle of these programs; ArtifactError if it does not fit them."""
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
