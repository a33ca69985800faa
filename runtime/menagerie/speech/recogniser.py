"""A model's programs, whoever runs them, and the loop that makes tokens of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from menagerie.errors import SpeechError
from menagerie.speech.greedy import Emission, greedy_ctc, greedy_transducer
from menagerie.speech.recipe import CtcHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from menagerie.format.bundle_manifest import TensorSpec
    from menagerie.speech.recipe import Recipe, TransducerHead

__all__ = ["Program", "Recogniser", "Sizes"]

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
        size = self._listen.axis("samples", 1, place)
        self.sizes = Sizes(
            *((size,) * 3 if isinstance(size, int) else self._listen.dimensions[size])
        )
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
        length = len(samples)
        size = max(-(-length // self.sizes.step) * self.sizes.step, self.sizes.low)
        padded = np.zeros((1, size), np.float32)
        padded[0, :length] = samples
        real = max(length, min(_FEWEST, size))
        results = self._listen.run({"samples": padded, "lengths": np.array([real], np.int64)})
        frames = -(-(real // self._hop * self._hop) // self._frame)
        if isinstance(self._head, CtcHead):
            return greedy_ctc(results["logits"][0, :frames], self._head.blank)
        encoded = results["encoded"][0, :frames]
        return greedy_transducer(encoded, self._head, self._emit.run, self._window, self._state)
