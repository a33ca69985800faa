"""What an entry says about a model that understands speech; becomes the bundle's speech.json."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zoo.base_models import Name, SpecModel

_Token = Annotated[int, Field(ge=0)]


class CtcHeadSpec(SpecModel):
    """Greedy CTC: `listen` takes `samples`, and `lengths` if they are padded; gives `logits`."""

    kind: Literal["ctc"]
    listen: Name = "listen"
    blank: int = Field(ge=0, description="the token that says nothing")


class TransducerHeadSpec(SpecModel):
    """Greedy RNN-T, or TDT with durations: `listen` gives `encoded`, `emit` is a decoder step."""

    kind: Literal["transducer"]
    listen: Name = "listen"
    emit: Name = "emit"
    blank: int = Field(ge=0, description="the token that says nothing, and the first that is fed")
    durations: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(), description="in frames, as the joint network numbers them; none: an RNN-T"
    )
    most_symbols: int = Field(default=10, ge=1, description="tokens emitted at one frame at most")


class AttentionHeadSpec(SpecModel):
    """A greedy decoder that attends to what `listen` gives, `keys` and `values`, without times.

    With the vocabulary's `tokenizer`, generation_config.json beside the weights says the tokens and
    how many there may be.
    """

    kind: Literal["attention"]
    listen: Name = "listen"
    emit: Name = "emit"
    start: _Token = Field(description="the token that is fed first")
    end: _Token = Field(description="the token that ends a window")
    most_tokens: int = Field(ge=2, description="of a window, the first included")
    pace: float | None = Field(
        default=None, gt=0, description="tokens a second that are said at most; none: any number"
    )


class WhisperHeadSpec(SpecModel):
    """Whisper's greedy decoding: `listen` gives `keys` and `values`, `emit` is a decoder step.

    With the vocabulary's `tokenizer`, generation_config.json beside the weights says all tokens and
    lists; what stands here serves where weights are random.
    """

    kind: Literal["whisper"]
    listen: Name = "listen"
    emit: Name = "emit"
    start: _Token = Field(description="the first token of the prompt")
    languages: dict[str, _Token] = Field(
        default_factory=dict, description="by code; none: a model of English alone"
    )
    language: str | None = Field(
        default=None, description="that is spoken; left out: the likeliest, window by window"
    )
    tasks: dict[str, _Token] = Field(
        default_factory=dict, description="`transcribe`, and `translate`, which is into English"
    )
    task: str | None = Field(default=None, description="one of the tasks")
    end: _Token = Field(description="the token that ends a window; those below it are text")
    no_timestamps: _Token = Field(description="the token before the first timestamp")
    timestamps: bool = Field(
        default=True, description="whether times are told, and windows begin where one ended"
    )
    latest_start: _Token | None = Field(
        default=None, description="the latest first timestamp of a window, in steps of 20 ms"
    )
    suppress: tuple[_Token, ...] = Field(default=(), description="tokens that are never said")
    begin_suppress: tuple[_Token, ...] = Field(default=(), description="nor said first")
    most_tokens: int = Field(default=448, ge=5, description="of a window, its prompt included")

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name, known in (("language", self.languages), ("task", self.tasks)):
            wanted = getattr(self, name)
            if wanted is not None and wanted not in known:
                raise ValueError(f"there is no {name} {wanted!r}")
        return self


class VocabularySpec(SpecModel):
    """The text of every token."""

    kind: Literal["sentencepiece", "bytes", "plain"] = Field(
        description="how a piece is written: with U+2581 for a space, a character for a byte, or "
        "as it is; the first two in tokenizer.json, the last, with `|` for a space, in vocab.json"
    )
    pieces: tuple[str, ...] = Field(default=(), description="in the order of the tokens' numbers")
    numbered: int = Field(
        default=0, ge=0, description="instead of pieces, for a model without a tokenizer: how many"
    )
    tokenizer: bool = Field(
        default=False,
        description="read them from the file beside the source's weights; `numbered` stands in for "
        "them where weights are random",
    )
    special: tuple[int, ...] = Field(default=(), description="tokens that are no text")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.pieces) == bool(self.numbered):
            raise ValueError("give `pieces`, or `numbered`, and not both")
        if self.tokenizer and not self.numbered:
            raise ValueError("`tokenizer` needs `numbered`: how many tokens it has")
        return self


class WordGate(SpecModel):
    """Recordings on which the artifact's word errors must be eager's, and few enough."""

    folder: str = Field(
        description="beside the manifest file: audio files, and transcripts.tsv with a line for "
        "each: its name, a tab, what it says"
    )
    most: float = Field(default=0.05, gt=0, lt=1, description="the highest word error rate")
    slack: int = Field(default=0, ge=0, description="words that the count may differ by")


class SpeechSpec(SpecModel):
    """How the programs make text of a recording."""

    rate: int = Field(default=16_000, ge=1000, description="samples a second")
    frame: int = Field(ge=1, description="samples to a frame of the encoder's results")
    hop: int = Field(
        default=1, ge=1, description="samples to a frame of features; a rest shorter is not heard"
    )
    overlap: float = Field(
        default=2.0, ge=0, description="seconds that chunks of a long recording share"
    )
    heads: dict[Name, CtcHeadSpec | TransducerHeadSpec | AttentionHeadSpec | WhisperHeadSpec] = (
        Field(min_length=1, description="the first is used unless another is asked for")
    )
    vocabulary: VocabularySpec
    gate: WordGate | None = None
