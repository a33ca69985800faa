"""Greedy decoders, which turn the scores of a model's heads into tokens with frames.

Whisper's rules are those of Radford et al., "Robust Speech Recognition via Large-Scale Weak
Supervision" (2022), as `transformers` applies them (`WhisperTimeStampLogitsProcessor`,
`WhisperGenerationMixin._retrieve_segment`); its times are counted in steps of 20 ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from menagerie.speech.recipe import AttentionHead, TransducerHead, WhisperHead

Floats = NDArray[np.float32]
Program = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
_STILL = 5  # frames: the length of a pause between words


class Emission(NamedTuple):
    """A token, its first frame, and the first frame after it."""

    token: int
    start: int
    end: int


def moved(emissions: Iterable[Emission], frames: int) -> list[Emission]:
    """Return the emissions with `frames` added to their starts and ends."""
    return [Emission(one.token, one.start + frames, one.end + frames) for one in emissions]


def greedy_ctc(logits: Floats, blank: int) -> list[Emission]:
    """Return the best token of each frame, with repetitions merged and blanks removed.

    `logits` is (frames, tokens) and has no padded frames.
    """
    best = logits.argmax(-1)
    bounds = np.flatnonzero(np.diff(best, prepend=-1, append=-1))
    return [
        Emission(int(best[start]), int(start), int(end))
        for start, end in pairwise(bounds)
        if best[start] != blank
    ]


def ctc_tokens(logits: Floats) -> list[int]:
    """Return the tokens decoded from `logits` (frames, tokens), where token 0 is blank."""
    return [emission.token for emission in greedy_ctc(logits, 0)]


@dataclass
class Prediction:
    """The prediction network's state after a token, and its best outputs for a window of frames."""

    hidden: Floats  # (layers, 1, width)
    cell: Floats
    first: int  # frame at which the window begins
    tokens: NDArray[np.int64]  # (window,) the best token at each frame
    durations: NDArray[np.int64]  # (window,) the index of the best duration at each frame


def greedy_transducer(
    encoded: Floats, head: TransducerHead, emit: Program, window: int, state: tuple[int, ...]
) -> list[Emission]:
    """Decode the frames greedily, as `transformers` does for its transducers.

    At each frame the joint network chooses a token or a blank. With TDT it also chooses how many
    frames to advance, at least one after a blank. An RNN-T advances by one frame after a blank, or
    after `most_symbols` tokens at one frame. A blank does not change the prediction network, so
    one call serves all frames of a window.

    `encoded` is (frames, width) without padding; the program `emit` takes `window` frames.
    """
    frames, emissions = len(encoded), list[Emission]()
    padded = np.concatenate([encoded, np.zeros((window, encoded.shape[1]), encoded.dtype)])

    def meet(token: int, hidden: Floats, cell: Floats, first: int) -> Prediction:
        results = emit(
            {
                "token": np.array([[token]], np.int64),
                "hidden": hidden,
                "cell": cell,
                "frames": padded[None, first : first + window],
            }
        )
        best = results["logits"][0].argmax(-1)
        durations = results["durations"][0].argmax(-1) if head.durations else best
        return Prediction(results["hidden"], results["cell"], first, best, durations)

    frame, at_frame, last = 0, 0, head.blank
    hidden = cell = np.zeros(state, np.float32)
    said = meet(last, hidden, cell, 0)
    # The step limit of transformers: a model may emit tokens of no duration for ever.
    for _ in range(head.most_symbols * frames - 1):
        if frame >= frames:
            break
        if frame >= said.first + window:  # evaluate the same token at the next frames
            said = meet(last, hidden, cell, frame)
        token = int(said.tokens[frame - said.first])
        if head.durations:
            advance = head.durations[int(said.durations[frame - said.first])]
            advance = max(advance, 1) if token == head.blank else advance
            end = frame + advance
        else:
            at_frame = 0 if token == head.blank else at_frame + 1
            advance = int(token == head.blank or at_frame >= head.most_symbols)
            at_frame = 0 if advance else at_frame
            end = frame + 1
        if token != head.blank:
            emissions.append(Emission(token, frame, end))
            last, hidden, cell = token, said.hidden, said.cell
            if frame + advance < frames:
                said = meet(last, hidden, cell, frame + advance)
        frame += advance
    return emissions


class Decoder:
    """The decoder of one window, with the number of tokens fed to it (`fed`).

    The keys and values are what program `listen` returned for the window.
    """

    def __init__(self, emit: Program, keys: Floats, values: Floats) -> None:
        self._emit = emit
        self._heard = {"keys": keys, "values": values}
        self.fed = 0

    def feed(self, token: int) -> Floats:
        """Feed `token` and return the scores (tokens,) of the next one."""
        step = {"token": np.array([[token]], np.int64), "position": np.array([self.fed], np.int64)}
        self.fed += 1
        scores: Floats = self._emit({**step, **self._heard})["logits"][0]
        return scores


def greedy_attention(head: AttentionHead, decoder: Decoder, seconds: float) -> list[int]:
    """Return the best tokens of a window, without the start token and the end token."""
    most = head.most_tokens
    if head.pace is not None:
        most = min(most, 1 + math.ceil(seconds * head.pace))
    token, said = head.start, list[int]()
    while decoder.fed < most - 1 and (token := int(decoder.feed(token).argmax())) != head.end:
        said.append(token)
    return said


def spread(tokens: Sequence[int], start: int, end: int) -> list[Emission]:
    """Spread tokens that have no times evenly over the frames from `start` to `end`."""
    edges = [start + (end - start) * n // max(len(tokens), 1) for n in range(len(tokens) + 1)]
    return [Emission(token, edges[n], edges[n + 1]) for n, token in enumerate(tokens)]


def quietest(samples: Floats, frame: int) -> int:
    """Return a cut at a pause in a window's last third, because its end may lie within a word.

    `samples` is (n,) with n > `frame`; the cut is a multiple of `frame`.
    """
    frames = len(samples) // frame
    power = np.square(samples[: frames * frame].reshape(frames, frame)).mean(1)
    around = np.convolve(power, np.ones(_STILL), "same")
    first = max(2 * frames // 3, 1)
    return int(first + around[first:].argmin()) * frame


class Segment(NamedTuple):
    """The tokens between two steps of a window, including timestamps."""

    start: int
    end: int
    tokens: tuple[int, ...]


class Rules:
    """Whisper's rules, by which the next token of a window is chosen."""

    def __init__(self, head: WhisperHead, tokens: int) -> None:
        self._head = head
        self._first_stamp = head.no_timestamps + 1
        self._never = [token for token in head.suppress if token < tokens]
        self._not_first = [token for token in head.begin_suppress if token < tokens]

    def choose(self, scores: Floats, said: Sequence[int]) -> int:
        """Return the best allowed token after `said`, the window's tokens without the prompt."""
        scores = scores.copy()
        scores[self._never] = -np.inf
        if not said:
            scores[self._not_first] = -np.inf
        if self._head.timestamps:
            self._keep_time(scores, said)
        return int(scores.argmax())

    def _keep_time(self, scores: Floats, said: Sequence[int]) -> None:
        """Mask `scores` so that timestamps come in ascending pairs and one begins the window."""
        stamp, end = self._first_stamp, self._head.end
        scores[self._head.no_timestamps] = -np.inf
        if not said:
            scores[:stamp] = -np.inf
            if self._head.latest_start is not None:
                scores[stamp + self._head.latest_start + 1 :] = -np.inf
        elif said[-1] >= stamp and all(token >= stamp for token in said[-2:]):
            scores[stamp:] = -np.inf  # the pair is complete: text or the end follows
        elif said[-1] >= stamp:
            scores[:end] = -np.inf  # the pair's second timestamp or the end follows
        if stamps := [token for token in said if token >= stamp]:
            again = said[-1] >= stamp and any(token < stamp for token in said[-2:])
            scores[stamp : stamps[-1] + (not again)] = -np.inf
        if _log_sum(scores[stamp:]) > scores[:stamp].max():
            scores[:stamp] = -np.inf


def _log_sum(scores: Floats) -> float:
    most = float(scores.max(initial=-np.inf))
    return most + float(np.log(np.exp(scores - most).sum())) if np.isfinite(most) else -np.inf


def greedy_whisper(head: WhisperHead, decoder: Decoder) -> list[int]:
    """Return the tokens of a window as `greedy_attention` does, including timestamps."""
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
    """Split a window's tokens by timestamps; also return the step at which the next window begins.

    Two timestamps in a row end one segment and begin the next. Tokens after the last such pair were
    cut off by the window's end, at `steps`, so the next window decodes them again. If a single
    timestamp closes them, the rest of the window is silent instead.
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
    last = found[-1]  # also keep the timestamp that begins the tokens cut off
    found[-1] = last._replace(tokens=(*last.tokens, said[begin]))
    return found, last.end


def emissions(found: Sequence[Segment], head: WhisperHead, steps: int) -> list[Emission]:
    """Spread each segment's tokens evenly over its time: Whisper gives no time for a single token.

    No token extends beyond `steps`, the length of the window within the recording.
    """
    made = []
    for segment in found:
        text = [token for token in segment.tokens if token < head.end]
        made += spread(text, min(segment.start, steps), min(segment.end, steps))
    return made
