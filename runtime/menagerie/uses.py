"""Heads of a recipe: the uses of a bundle for a picture, a recording, a film or sentences.

An entry of the zoo names some of them directly, so this module imports little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from menagerie.format.bundle_manifest import Count, Name, Positive

_LARGEST_FACTOR = 0.95


class _Strict:
    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for an entry that names the use


@dataclass(frozen=True, kw_only=True)
class Listener(_Strict):
    """The common part of heads that turn a recording into text."""

    listen: Name = "listen"

    @property
    def programs(self) -> frozenset[str]:
        """The programs that the head calls."""
        return frozenset({self.listen, getattr(self, "emit", self.listen)})


@dataclass(frozen=True, kw_only=True)
class CtcHead(Listener):
    """Connectionist temporal classification: each frame has a token or is blank.

    Program `listen` takes `samples` (1, n) and gives `logits` (1, frames, tokens). Where it takes
    `lengths` (1,), too, samples are padded, and of the frames n / frame are real; else all are.
    """

    kind: Literal["ctc"]
    blank: Count


@dataclass(frozen=True, kw_only=True)
class TransducerHead(Listener):
    """A transducer: RNN-T without durations, TDT (token and duration) with them.

    Program `listen` takes `samples` and `lengths` and gives `encoded` (1, n / frame, width).
    Program `emit` takes `token` (1, 1), the LSTM's `hidden` and `cell` (layers, 1, width) and
    `frames` (1, window, width), and gives `logits` (1, window, tokens), `durations` (1, window,
    number of durations) where there are any, and the states after the token.
    """

    kind: Literal["transducer"]
    emit: Name = "emit"
    blank: Count
    durations: tuple[Count, ...] = ()
    most_symbols: Positive = 10  # per frame (RNN-T), or per frame on average (TDT)


@dataclass(frozen=True, kw_only=True)
class AttentionHead(Listener):
    """A decoder that attends to a window: each token that it says is fed, until the end.

    Program `listen` takes `samples` (1, n) and gives `keys` and `values`. Program `emit` takes
    these, a `token` (1, 1) and its `position` (1,), remembers what it was fed, and gives `logits`
    (1, tokens).
    """

    kind: Literal["attention"]
    emit: Name = "emit"
    start: Count  # fed first
    end: Count
    most_tokens: Positive  # of a window, the first included
    pace: float | None = None  # maximal tokens per second

    def __post_init__(self) -> None:
        if self.most_tokens < 2:  # noqa: PLR2004 - the first, and another one
            raise ValueError(f"most_tokens: is {self.most_tokens}, no more than the first")
        if self.pace is not None and not 0.0 < self.pace < math.inf:
            raise ValueError(f"pace: is {self.pace:g}, not above 0 tokens a second")


@dataclass(frozen=True, kw_only=True)
class WhisperHead(Listener):
    """Whisper's decoder: a prompt is fed, then each token that it says, until the end.

    Program `listen` takes a window of `samples` (1, n) and gives `keys` and `values`. Program
    `emit` takes these, a `token` (1, 1) and its `position` (1,), remembers what it was fed, and
    gives `logits` (1, tokens). Tokens below `end` are text, those behind `no_timestamps` are times
    in steps of 20 ms.
    """

    kind: Literal["whisper"]
    emit: Name = "emit"
    start: Count  # the prompt: this, a language where there are any, and the task
    languages: dict[str, Count] = field(default_factory=dict)  # by code
    language: str | None = None  # None: the likeliest in each window
    task: Count | None = None
    end: Count
    no_timestamps: Count
    timestamps: bool = True
    latest_start: Count | None = None  # the last step that may begin a window
    suppress: tuple[Count, ...] = ()  # never chosen
    begin_suppress: tuple[Count, ...] = ()  # never chosen first
    most_tokens: Positive = 448  # of a window, including the prompt

    def __post_init__(self) -> None:
        if self.no_timestamps < self.end:
            raise ValueError(f"no_timestamps: {self.no_timestamps} is a token of text")
        if self.language is not None and self.language not in self.languages:
            raise ValueError(f"language: there is no {self.language!r}")
        if self.most_tokens < 5:  # noqa: PLR2004 - four of a prompt, and another one
            raise ValueError(f"most_tokens: is {self.most_tokens}, no more than a prompt")


@dataclass(frozen=True, kw_only=True)
class _OneProgram(_Strict):
    """The common part of heads that call one program."""

    program: Name = "main"

    @property
    def programs(self) -> frozenset[str]:
        """The programs that the head calls."""
        return frozenset({self.program})


@dataclass(frozen=True, kw_only=True)
class LabelsHead(_OneProgram):
    """A program takes `picture` (1, height, width, 3) uint8 and gives a probability by label.

    One that sees its middle `square` alone is given that of a picture whose sides do not fit.
    """

    kind: Literal["labels"]
    square: bool = False


@dataclass(frozen=True, kw_only=True)
class SimilarityHead(_OneProgram):
    """A program takes `tokens` (1, n) of a sentence and gives an embedding (1, width) of length 1.

    The vocabulary has [CLS], [SEP] and [UNK]; a sentence has at most `most` tokens.
    """

    kind: Literal["similarity"]
    most: Positive

    def __post_init__(self) -> None:
        if self.most < 3:  # noqa: PLR2004 - [CLS], one, and [SEP]
            raise ValueError(f"most: is {self.most}, not 3 or more tokens")


@dataclass(frozen=True, kw_only=True)
class StretchesHead(_Strict):
    """Programs take blocks of `samples` (1, n), one after another, and give a probability (1, 1).

    A stretch begins where it reaches `threshold` and ends where it is below for `pause` seconds;
    one of less than `least` seconds is none.
    """

    kind: Literal["stretches"]
    programs: dict[Name, Positive]  # samples per second that each takes
    threshold: float = 0.5
    least: float = 0.25
    pause: float = 0.1


@dataclass(frozen=True, kw_only=True)
class _BlocksHead(_OneProgram):
    """A program takes blocks of `samples` (1, n) at `rate`, one every `hop` samples.

    Before a recording's first sample there are `margin` zeros.
    """

    rate: Positive = 16_000
    hop: Positive
    margin: Count = 0


@dataclass(frozen=True, kw_only=True)
class PitchHead(_BlocksHead):
    """It gives hertz and a confidence (1, frames), of which `frames` are in no other block."""

    kind: Literal["pitch"]
    frames: Positive
    least: float = 0.5  # least confidence that is shown


@dataclass(frozen=True, kw_only=True)
class VoicesHead(_BlocksHead):
    """It gives an embedding (1, width) of length 1; a recording's is the mean of its blocks'.

    A last block counts if `coverage` of it is recording, or if it is the only one.
    """

    kind: Literal["voices"]
    coverage: float = 0.75


@dataclass(frozen=True, kw_only=True)
class BordersHead(_OneProgram):
    """A program takes `frames` (1, n, high, wide, 3) uint8, and gives probabilities (1, n, 1).

    A shot ends where it exceeds `threshold`; of each window the middle half counts.
    """

    kind: Literal["borders"]
    threshold: float = 0.5


@dataclass(frozen=True, kw_only=True)
class TextHead(_OneProgram):
    """A program takes a line of text as `picture` (1, high, width, 3) uint8; token 0 is blank.

    It gives logits (1, frames, tokens).
    """

    kind: Literal["text"]


@dataclass(frozen=True, kw_only=True)
class BoxesHead(_Strict):
    """Programs that find boxes one after another, as `menagerie.boxes` calls them.

    Each takes `picture` (n, high, wide, 3) and gives `probability` and `offsets`. `proposals` takes
    pictures of any size, the others squares of 24 and 48 pixels.
    """

    kind: Literal["boxes"]
    proposals: Name = "proposals"
    refinement: Name = "refinement"
    output: Name = "output"
    smallest: float = 20.0  # side of the smallest box, in pixels
    factor: float = 0.709  # between successive scales
    thresholds: tuple[float, float, float] = (0.6, 0.7, 0.7)

    def __post_init__(self) -> None:
        if not 0.0 < self.factor <= _LARGEST_FACTOR:  # otherwise the scales would never end
            raise ValueError(f"factor: is {self.factor:g}, not above 0 and to {_LARGEST_FACTOR:g}")
        if not self.smallest >= 1.0:
            raise ValueError(f"smallest: is {self.smallest:g}, not a pixel or more")

    @property
    def programs(self) -> frozenset[str]:
        """The programs that the head calls."""
        return frozenset({self.proposals, self.refinement, self.output})


_OfPicture = LabelsHead | TextHead | BoxesHead
Use = _OfPicture | StretchesHead | PitchHead | VoicesHead | SimilarityHead | BordersHead
