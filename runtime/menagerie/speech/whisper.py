"""Whisper's greedy decoding: its prompt, what may not be said, and what its timestamps tell.

The rules are those of Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision"
(2022), as `transformers` applies them (`WhisperTimeStampLogitsProcessor`,
`WhisperGenerationMixin._retrieve_segment`). Time is counted in steps of 20 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from menagerie.speech.attention import Decoder, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from menagerie.speech.greedy import Emission
    from menagerie.speech.recipe import WhisperHead

    Floats = NDArray[np.float32]
    Program = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

__all__ = ["Rules", "Segment", "emissions", "greedy_whisper", "segments"]


class Segment(NamedTuple):
    """What is said from one step of a window to another: tokens, timestamps among them."""

    start: int
    end: int
    tokens: tuple[int, ...]


class Rules:
    """Which token follows, of those that may.

    Args:
        head: the tokens' meanings.
        tokens: how many there are.
    """

    def __init__(self, head: WhisperHead, tokens: int) -> None:
        self._head = head
        self._first_stamp = head.no_timestamps + 1
        self._never = [token for token in head.suppress if token < tokens]
        self._not_first = [token for token in head.begin_suppress if token < tokens]

    def choose(self, scores: Floats, said: Sequence[int]) -> int:
        """The best token after those that were said, the prompt left out.

        Args:
            scores: (tokens,).
            said: in this window.
        """
        scores = scores.copy()
        scores[self._never] = -np.inf
        if not said:
            scores[self._not_first] = -np.inf
        if self._head.timestamps:
            self._keep_time(scores, said)
        return int(scores.argmax())

    def _keep_time(self, scores: Floats, said: Sequence[int]) -> None:
        """Timestamps come in pairs, never go back, and one begins the window."""
        stamp, end = self._first_stamp, self._head.end
        scores[self._head.no_timestamps] = -np.inf
        if not said:
            scores[:stamp] = -np.inf
            if self._head.latest_start is not None:
                scores[stamp + self._head.latest_start + 1 :] = -np.inf
        elif said[-1] >= stamp and all(token >= stamp for token in said[-2:]):
            scores[stamp:] = -np.inf  # a pair is complete: text follows, or nothing
        elif said[-1] >= stamp:
            scores[:end] = -np.inf  # the second of the pair, or the end
        if stamps := [token for token in said if token >= stamp]:
            again = said[-1] >= stamp and any(token < stamp for token in said[-2:])
            scores[stamp : stamps[-1] + (not again)] = -np.inf
        if _log_sum(scores[stamp:]) > scores[:stamp].max():
            scores[:stamp] = -np.inf


def _log_sum(scores: Floats) -> float:
    """The logarithm of the sum of exponentials; of nothing possible minus infinity."""
    most = float(scores.max(initial=-np.inf))
    return most + float(np.log(np.exp(scores - most).sum())) if np.isfinite(most) else -np.inf


def greedy_whisper(head: WhisperHead, emit: Program, keys: Floats, values: Floats) -> list[int]:
    """The tokens of a window, timestamps among them, without prompt and end.

    Args:
        head: the tokens' meanings.
        emit: the program of that name.
        keys: what `listen` gave for the window.
        values: as `keys`.
    """
    decoder = Decoder(emit, keys, values)
    scores = decoder.feed(head.start)
    if head.languages:
        heard = max(head.languages.values(), key=lambda token: float(scores[token]))
        scores = decoder.feed(heard if head.language is None else head.languages[head.language])
    if head.task is not None:
        scores = decoder.feed(head.task)
    if not head.timestamps:
        scores = decoder.feed(head.no_timestamps)
    rules, said = Rules(head, len(scores)), list[int]()
    while (token := rules.choose(scores, said)) != head.end:
        said.append(token)
        if decoder.fed + 1 >= head.most_tokens:
            break
        scores = decoder.feed(token)
    return said


def segments(said: Sequence[int], head: WhisperHead, steps: int) -> tuple[list[Segment], int]:
    """What timestamps make of a window's tokens, and after how many steps the next window begins.

    Two timestamps in a row end a segment and begin the next. What follows the last such pair is cut
    by the window's end and left to the next window; unless a single timestamp closes it, behind
    which nothing is said.

    Args:
        said: of a window.
        head: the tokens' meanings.
        steps: how long the window is, of the recording.
    """
    stamp = head.no_timestamps + 1
    timed = [token >= stamp for token in said]
    cuts = [i + 1 for i in range(len(said) - 1) if timed[i] and timed[i + 1]]
    if not cuts:
        stamps = [token - stamp for token in said if token >= stamp]
        return [Segment(0, (stamps[-1] if stamps else 0) or steps, tuple(said))], steps
    closed = timed[-2:] == [False, True]
    if closed:
        cuts.append(len(said))
    found, begin = list[Segment](), 0
    for cut in cuts:
        tokens = tuple(said[begin:cut])
        found.append(Segment(tokens[0] - stamp, tokens[-1] - stamp, tokens))
        begin = cut
    if closed:
        return found, steps
    last = found[-1]  # it keeps the timestamp that begins what was cut
    found[-1] = last._replace(tokens=(*last.tokens, said[begin]))
    return found, last.end


def emissions(found: Sequence[Segment], head: WhisperHead, steps: int) -> list[Emission]:
    """The segments' text, spread evenly over each: of a token's own time Whisper tells nothing.

    Args:
        found: of a window.
        head: the tokens' meanings.
        steps: how long the window is, of the recording; nothing is said behind it.
    """
    made = []
    for segment in found:
        text = [token for token in segment.tokens if token < head.end]
        made += spread(text, min(segment.start, steps), min(segment.end, steps))
    return made
