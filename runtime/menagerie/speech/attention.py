"""Decoders that attend to a window as a whole: a token is fed, and the next one is asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from menagerie.speech.greedy import Emission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from menagerie.speech.recipe import AttentionHead

    Floats = NDArray[np.float32]
    Program = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

__all__ = ["Decoder", "greedy_attention", "quietest", "spread"]

_STILL = 5  # frames: a pause between words


class Decoder:
    """A decoder's step and how far it went; it begins anew with every window.

    Args:
        emit: the program of that name.
        keys: what `listen` gave for the window.
        values: as `keys`.

    Attributes:
        fed: how many tokens it was given.
    """

    def __init__(self, emit: Program, keys: Floats, values: Floats) -> None:
        self._emit = emit
        self._heard = {"keys": keys, "values": values}
        self.fed = 0

    def feed(self, token: int) -> Floats:
        """The scores (tokens,) of what follows `token`."""
        step = {"token": np.array([[token]], np.int64), "position": np.array([self.fed], np.int64)}
        self.fed += 1
        scores: Floats = self._emit({**step, **self._heard})["logits"][0]
        return scores


def greedy_attention(head: AttentionHead, decoder: Decoder, seconds: float) -> list[int]:
    """The best token after each, to the end; without first and last.

    Args:
        head: the tokens' meanings.
        decoder: of a window.
        seconds: how long the window is.
    """
    most = head.most_tokens
    if head.pace is not None:
        most = min(most, 1 + math.ceil(seconds * head.pace))
    token, said = head.start, list[int]()
    while decoder.fed < most - 1 and (token := int(decoder.feed(token).argmax())) != head.end:
        said.append(token)
    return said


def spread(tokens: Sequence[int], start: int, end: int) -> list[Emission]:
    """Tokens evenly over the frames from `start` to `end`: of their own times nothing is known."""
    edges = [start + (end - start) * n // max(len(tokens), 1) for n in range(len(tokens) + 1)]
    return [Emission(token, edges[n], edges[n + 1]) for n, token in enumerate(tokens)]


def quietest(samples: Floats, frame: int) -> int:
    """Where to cut a window whose end may lie within a word: a pause in its last third.

    Args:
        samples: (n,), more than `frame`.
        frame: the cut is a multiple of it.
    """
    frames = len(samples) // frame
    power = np.square(samples[: frames * frame].reshape(frames, frame)).mean(1)
    around = np.convolve(power, np.ones(_STILL), "same")
    first = max(2 * frames // 3, 1)
    return int(first + around[first:].argmin()) * frame
