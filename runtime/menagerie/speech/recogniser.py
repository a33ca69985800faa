"""The recogniser, which runs a model's programs over a recording window by window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from menagerie.errors import SpeechError
from menagerie.format.bundle_manifest import TensorSpec
from menagerie.speech.decoding import (
    Decoder,
    Emission,
    emissions,
    greedy_attention,
    greedy_ctc,
    greedy_transducer,
    greedy_whisper,
    moved,
    quietest,
    segments,
    spread,
)
from menagerie.speech.recipe import AttentionHead, CtcHead, Head, Recipe, TransducerHead

Samples = NDArray[np.float32]
_FEWEST = 320  # samples: two frames of features, the fewest with a standard deviation

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


class Sizes(NamedTuple):
    """The numbers of samples that a program takes: from `low` to `high` in steps of `step`."""

    low: int
    high: int
    step: int


@dataclass(frozen=True)
class Program:
    """One program with its runner, its inputs and the ranges of its dynamic dimensions."""

    run: Run
    inputs: Sequence[TensorSpec]
    dimensions: Mapping[str, tuple[int, int, int]]

    def axis(self, name: str, axis: int, place: str) -> int | str:
        """Return an axis's size or dimension name; raise SpeechError if there is none."""
        for spec in self.inputs:
            if spec.name == name and len(spec.shape) > axis:
                return spec.shape[axis]
        raise SpeechError(place, f"a program takes no {name} with an axis {axis}")

    def size(self, name: str, axis: int, place: str) -> int:
        """Return an axis's size as `axis` does; raise SpeechError if the dimension is dynamic."""
        size = self.axis(name, axis, place)
        if isinstance(size, str):
            raise SpeechError(place, f"a program takes {name} with axis {axis} of any size")
        return size


class Recogniser:
    """One head of a model, which turns a recording into tokens with frames, window by window.

    Windows of a long recording overlap if the head labels each frame (`overlaps`). A decoder that
    is fed its own tokens decides where the next window begins: Whisper by its timestamps, in frames
    of 20 ms; the window of a decoder without times is cut at a pause. Whisper scales each window by
    its loudest bin, while `transformers` scales a long recording as a whole. A window has `sizes`
    samples; shorter ones are padded.

    Raises:
        SpeechError: a program does not take the inputs that this kind of head requires.
    """

    def __init__(
        self, recipe: Recipe, head: Head, programs: Mapping[str, Program], place: str
    ) -> None:
        self._recipe, self._frame, self._head = recipe, recipe.frame, head
        self._listen = programs[head.listen]
        size = self._listen.axis("samples", 1, place)
        sizes = (size,) * 3 if isinstance(size, int) else self._listen.dimensions[size]
        self.sizes = Sizes(*sizes)
        self.overlaps = isinstance(head, (CtcHead, TransducerHead))
        self._told = any(spec.name == "lengths" for spec in self._listen.inputs)
        if isinstance(head, CtcHead):
            return
        self._emit = programs[head.emit]
        if isinstance(head, TransducerHead):
            self._window = self._emit.size("frames", 1, place)
            self._state = tuple(self._emit.size("hidden", axis, place) for axis in range(3))
        else:
            self._emit.size("position", 0, place)

    def window(self, samples: Samples, last: bool = True) -> tuple[list[Emission], int]:
        """Return the tokens of a window, and the number of samples to the start of the next one.

        `samples` is (n,) at the recipe's rate, n at most `sizes.high`; `last`: the recording ends.
        """
        head, frame = self._head, self._frame
        if isinstance(head, (CtcHead, TransducerHead)):
            return self._by_frames(head, samples), len(samples)
        if isinstance(head, AttentionHead) and not last:
            samples = samples[: quietest(samples, frame)]
        length, frames = len(samples), -(-len(samples) // frame)
        heard = self._listen.run({"samples": _padded(samples, self.sizes)})
        decoder = Decoder(self._emit.run, heard["keys"], heard["values"])
        if isinstance(head, AttentionHead):
            said = greedy_attention(head, decoder, length / self._recipe.rate)
            return spread(said, 0, frames), length
        found, advance = segments(greedy_whisper(head, decoder), head, frames)
        return emissions(found, head, frames), min(advance * frame, length)

    def _by_frames(self, head: CtcHead | TransducerHead, samples: Samples) -> list[Emission]:
        padded, hop = _padded(samples, self.sizes), self._recipe.hop
        length, size = len(samples), padded.shape[1]
        real = max(length, min(_FEWEST, size)) if self._told else size
        lengths = {"lengths": np.array([real], np.int64)} if self._told else {}
        results = self._listen.run({"samples": padded, **lengths})
        frames = -(-(real // hop * hop) // self._frame)
        if isinstance(head, CtcHead):
            return greedy_ctc(results["logits"][0, :frames], head.blank)
        encoded = results["encoded"][0, :frames]
        return greedy_transducer(encoded, head, self._emit.run, self._window, self._state)

    def listen(
        self, blocks: Iterable[Samples], longest: int, overlap: int
    ) -> Iterator[tuple[list[Emission], int]]:
        """Yield the tokens that each further window settles, and the number of samples heard.

        Each block is (samples,), of any size; an empty recording yields nothing. A window of
        `longest` samples shares `overlap` samples with the previous one.
        """
        blocks, held, first, seam = iter(blocks), np.empty(0, np.float32), 0, Seam()
        while True:
            while len(held) <= longest and (block := next(blocks, None)) is not None:
                held = np.concatenate([held, block])
            if not len(held):
                return
            samples, last = held[:longest], len(held) <= longest
            found, advance = self.window(samples, last)
            start, heard = first // self._frame, first + len(samples)
            found = moved(found, start)
            if overlap:
                found = seam.join(start, -(-heard // self._frame), found)
                found += seam.rest() if last else []
                advance -= 0 if last else overlap
            held, first = held[advance:], first + advance
            yield found, heard

    def recognise(self, samples: Samples) -> list[Emission]:
        """Return the tokens of `samples` (n,), of any length, at the recipe's rate."""
        return [one for found, _ in self.listen([samples], self.sizes.high, 0) for one in found]


@dataclass
class Seam:
    """One sequence of tokens, joined from overlapping windows.

    Both windows heard the overlap, but neither heard beyond its own edge, so neither is trusted
    near it. The sequence changes from one window to the next within the overlap,
    as far as possible from both ends and from every token that either of them heard.
    """

    _held: list[Emission] = field(default_factory=list)
    _end: int = 0  # frame at which the last window ended

    def join(self, first: int, last: int, heard: list[Emission]) -> list[Emission]:
        """Add the window of frames `first` to `last`, exclusive; return the tokens that it settles.

        All frames are counted from the recording's beginning.
        """
        cut = _cut(first, self._end, [*self._held, *heard]) if first < self._end else first
        certain = [one for one in self._held if one.start < cut]
        self._held = [one for one in heard if one.start >= cut]
        self._end = last
        return certain

    def rest(self) -> list[Emission]:
        """Return the tokens that no window has settled yet."""
        held, self._held = self._held, []
        return held


def _cut(first: int, last: int, heard: list[Emission]) -> int:
    """Return the frame from `first` to `last` that is farthest from both and from all tokens."""
    frames = np.arange(first, last + 1)
    away = np.minimum(frames - first, last - frames)
    for one in heard:
        outside = np.maximum(one.start - frames, frames - max(one.end, one.start + 1) + 1)
        away = np.minimum(away, np.maximum(outside, 0))
    return int(frames[np.argmax(away)])


def _padded(samples: Samples, sizes: Sizes) -> NDArray[np.float32]:
    """Return the samples as (1, n), with trailing zeros up to a size that the program takes."""
    size = max(-(-len(samples) // sizes.step) * sizes.step, sizes.low)
    padded = np.zeros((1, size), np.float32)
    padded[0, : len(samples)] = samples
    return padded
