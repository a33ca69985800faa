"""Long recordings in chunks: where to cut them, and how their transcripts become one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from menagerie.speech.greedy import Emission

    Samples = NDArray[np.float32]

__all__ = ["Chunk", "Seam", "chunks"]


class Chunk(NamedTuple):
    """A piece of a recording: `samples` from sample number `first` on."""

    first: int
    samples: Samples


def chunks(blocks: Iterable[Samples], longest: int, overlap: int) -> Iterator[Chunk]:
    """Cuts a stream into chunks of `longest` samples, each `overlap` before the last one's end.

    Only the last is shorter; one that nothing follows is not followed by its overlap alone. A
    stream without a sample has no chunk.

    Args:
        blocks: (samples,) each, of any sizes.
        longest: samples in a chunk.
        overlap: less than that.
    """
    held, first = np.empty(0, np.float32), 0
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) > longest:
            yield Chunk(first, held[:longest])
            held = held[longest - overlap :]
            first += longest - overlap
    if len(held):
        yield Chunk(first, held)


@dataclass
class Seam:
    """Makes one row of tokens of the rows of chunks that overlap.

    Both chunks heard what they share, each without what lies beyond its own end. So neither is
    believed near its end: the row goes over from one to the next in the overlap, as far from its
    ends, and from any token that either heard, as can be.
    """

    _held: list[Emission] = field(default_factory=list)
    _end: int = 0  # frame at which the last chunk ended

    def join(self, first: int, last: int, heard: list[Emission]) -> list[Emission]:
        """Adds a chunk from frame `first` to `last`; returns what is certain since.

        Args:
            first: its first frame, counted from the recording's beginning.
            last: the first frame after it.
            heard: what was emitted in it, frames counted from the recording's beginning.
        """
        cut = _cut(first, self._end, [*self._held, *heard]) if first < self._end else first
        certain = [one for one in self._held if one.start < cut]
        self._held = [one for one in heard if one.start >= cut]
        self._end = last
        return certain

    def rest(self) -> list[Emission]:
        """What the last chunk leaves."""
        held, self._held = self._held, []
        return held


def _cut(first: int, last: int, heard: list[Emission]) -> int:
    """The frame from `first` to `last` that is farthest from both and from all tokens."""
    frames = np.arange(first, last + 1)
    away = np.minimum(frames - first, last - frames)
    for one in heard:
        outside = np.maximum(one.start - frames, frames - max(one.end, one.start + 1) + 1)
        away = np.minimum(away, np.maximum(outside, 0))
    return int(frames[np.argmax(away)])
