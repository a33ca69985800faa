"""Decoding: which tokens, and at which frames, the scores of a model's heads say."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from menagerie.speech.recipe import TransducerHead

    Floats = NDArray[np.float32]
    Program = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

__all__ = ["Emission", "Prediction", "greedy_ctc", "greedy_transducer"]


class Emission(NamedTuple):
    """A token, its first frame, and the first frame that is not its own any more."""

    token: int
    start: int
    end: int


def greedy_ctc(logits: Floats, blank: int) -> list[Emission]:
    """The best token of every frame, repetitions taken together and blanks left out.

    Args:
        logits: (frames, tokens), of real frames alone.
        blank: the token that says nothing.
    """
    best = logits.argmax(-1)
    bounds = np.flatnonzero(np.diff(best, prepend=-1, append=-1))
    return [
        Emission(int(best[start]), int(start), int(end))
        for start, end in pairwise(bounds)
        if best[start] != blank
    ]


@dataclass
class Prediction:
    """The prediction network after a token, and what it says of a window of frames."""

    hidden: Floats  # (layers, 1, width)
    cell: Floats
    first: int  # frame at which the window begins
    tokens: NDArray[np.int64]  # (window,) the best token at each of its frames
    durations: NDArray[np.int64]  # (window,) the best duration's index


def greedy_transducer(
    encoded: Floats, head: TransducerHead, emit: Program, window: int, state: tuple[int, ...]
) -> list[Emission]:
    """Walks through the frames as `transformers` does with its transducers.

    At each frame the joint network says a token, blank or not, and with TDT a duration, by which
    to go on; after a blank by one frame at least. An RNN-T goes on by one frame after a blank, or
    after `most_symbols` tokens at one frame. A blank leaves the prediction network as it is, so
    that the frames of a window need but one call.

    Args:
        encoded: (frames, width), of real frames alone.
        head: the tokens' meanings.
        emit: the program of that name.
        window: how many frames it takes.
        state: shape of the LSTM's states.
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
    # As many steps as transformers allows: a model may emit tokens of no duration for ever.
    for _ in range(head.most_symbols * frames - 1):
        if frame >= frames:
            break
        if frame >= said.first + window:  # the same token meets the next frames
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
