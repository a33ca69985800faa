"""A model's programs, whatever runs them, and the loop that makes tokens of their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from menagerie.errors import SpeechError
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
from menagerie.speech.recipe import AttentionHead, CtcHead, WhisperHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from menagerie.format.bundle_manifest import TensorSpec
    from menagerie.speech.recipe import Head, Recipe, TransducerHead

_FEWEST = 320  # samples: two frames of features, without which there is no deviation

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


class Sizes(NamedTuple):
    """How many samples a program takes: from `low` to `high`, by `step`."""

    low: int
    high: int
    step: int


@dataclass(frozen=True)
class Program:
    """One program: what runs it, what it takes, and the ranges of its dynamic dimensions."""

    run: Run
    inputs: Sequence[TensorSpec]
    dimensions: Mapping[str, tuple[int, int, int]]

    def axis(self, name: str, axis: int, place: str) -> int | str:
        """A size, or the name of a dimension.

        Raises:
            SpeechError: there is no such input or axis.
        """
        for spec in self.inputs:
            if spec.name == name and len(spec.shape) > axis:
                return spec.shape[axis]
        raise SpeechError(place, f"a program takes no {name} with an axis {axis}")

    def size(self, name: str, axis: int, place: str) -> int:
        """As `axis`, where no dynamic dimension may be."""
        size = self.axis(name, axis, place)
        if isinstance(size, str):
            raise SpeechError(place, f"a program takes {name} with axis {axis} of any size")
        return size


class Recogniser:
    """One head of a model: a piece of sound in, tokens with their frames out.

    Args:
        recipe: how the programs work together.
        head: one of its heads.
        programs: those that the head names.
        place: for messages.

    Attributes:
        sizes: how many samples it takes at once; shorter pieces are padded.

    Raises:
        SpeechError: a program does not take what the recipe's kind of head gives it.
    """

    def __init__(
        self,
        recipe: Recipe,
        head: CtcHead | TransducerHead,
        programs: Mapping[str, Program],
        place: str,
    ) -> None:
        self._frame, self._hop = recipe.frame, recipe.hop
        self._head = head
        self._listen = programs[head.listen]
        self.sizes = _sizes(self._listen, place)
        self._told = any(spec.name == "lengths" for spec in self._listen.inputs)
        if isinstance(head, CtcHead):
            return
        self._emit = programs[head.emit]
        self._window = self._emit.size("frames", 1, place)
        self._state = tuple(self._emit.size("hidden", axis, place) for axis in range(3))

    def recognise(self, samples: NDArray[np.float32]) -> list[Emission]:
        """What is said.

        Args:
            samples: (n,) at the recipe's rate, at most `sizes.high`.
        """
        padded = _padded(samples, self.sizes)
        length, size = len(samples), padded.shape[1]
        real = max(length, min(_FEWEST, size)) if self._told else size
        lengths = {"lengths": np.array([real], np.int64)} if self._told else {}
        results = self._listen.run({"samples": padded, **lengths})
        frames = -(-(real // self._hop * self._hop) // self._frame)
        if isinstance(self._head, CtcHead):
            return greedy_ctc(results["logits"][0, :frames], self._head.blank)
        encoded = results["encoded"][0, :frames]
        return greedy_transducer(encoded, self._head, self._emit.run, self._window, self._state)


class WindowRecogniser(ABC):
    """A window of sound in, tokens with their frames and the next window's place out.

    Arguments and errors are those of `Recogniser`.

    Attributes:
        sizes: how many samples a window has; shorter pieces are padded.
    """

    def __init__(
        self,
        recipe: Recipe,
        head: AttentionHead | WhisperHead,
        programs: Mapping[str, Program],
        place: str,
    ) -> None:
        self._frame, self._rate, self._head = recipe.frame, recipe.rate, head
        self._listen, self._emit = programs[head.listen], programs[head.emit]
        self.sizes = _sizes(self._listen, place)
        self._emit.size("position", 0, place)

    @abstractmethod
    def window(self, samples: NDArray[np.float32], last: bool = True) -> tuple[list[Emission], int]:
        """What is said in a window, and how many samples further the next one begins.

        Args:
            samples: (n,) at the recipe's rate, at most `sizes.high`.
            last: whether they end the recording.
        """

    def recognise(self, samples: NDArray[np.float32]) -> list[Emission]:
        """What is said, window after window.

        Args:
            samples: (n,) at the recipe's rate, of any length.
        """
        found, first = list[Emission](), 0
        while first < len(samples):
            end = first + self.sizes.high
            heard, advance = self.window(samples[first:end], end >= len(samples))
            found += moved(heard, first // self._frame)
            first += advance
        return found


class AttentionRecogniser(WindowRecogniser):
    """A decoder without times: a long recording is cut at pauses."""

    _head: AttentionHead

    def window(self, samples: NDArray[np.float32], last: bool = True) -> tuple[list[Emission], int]:
        """See `WindowRecogniser`; of a window that goes on, what lies before its last pause."""
        if not last:
            samples = samples[: quietest(samples, self._frame)]
        length = len(samples)
        heard = self._listen.run({"samples": _padded(samples, self.sizes)})
        decoder = Decoder(self._emit.run, heard["keys"], heard["values"])
        said = greedy_attention(self._head, decoder, length / self._rate)
        return spread(said, 0, -(-length // self._frame)), length


class WhisperRecogniser(WindowRecogniser):
    """Whisper, whose timestamps say where the next window begins; a frame is a step of 20 ms.

    A window is scaled by its own loudest bin; `transformers` scales a long recording as a whole.
    """

    _head: WhisperHead

    def window(self, samples: NDArray[np.float32], last: bool = True) -> tuple[list[Emission], int]:
        """See `WindowRecogniser`."""
        del last  # a pair of timestamps says where the next window begins
        heard = self._listen.run({"samples": _padded(samples, self.sizes)})
        said = greedy_whisper(self._head, self._emit.run, heard["keys"], heard["values"])
        steps = -(-len(samples) // self._frame)
        found, advance = segments(said, self._head, steps)
        return emissions(found, self._head, steps), min(advance * self._frame, len(samples))


def recogniser_of(
    recipe: Recipe, head: Head, programs: Mapping[str, Program], place: str
) -> Recogniser | WindowRecogniser:
    """What decodes a head; arguments and errors are those of `Recogniser`."""
    if isinstance(head, WhisperHead):
        return WhisperRecogniser(recipe, head, programs, place)
    if isinstance(head, AttentionHead):
        return AttentionRecogniser(recipe, head, programs, place)
    return Recogniser(recipe, head, programs, place)


def _sizes(listen: Program, place: str) -> Sizes:
    """How many samples a program takes."""
    size = listen.axis("samples", 1, place)
    return Sizes(*((size,) * 3 if isinstance(size, int) else listen.dimensions[size]))


def _padded(samples: NDArray[np.float32], sizes: Sizes) -> NDArray[np.float32]:
    """(1, n), with zeros behind as many as are needed."""
    size = max(-(-len(samples) // sizes.step) * sizes.step, sizes.low)
    padded = np.zeros((1, size), np.float32)
    padded[0, : len(samples)] = samples
    return padded
