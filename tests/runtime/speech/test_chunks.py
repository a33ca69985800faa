"""Windows of long recordings, and the one row of tokens that theirs become."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from menagerie.speech.decoding import Emission
from menagerie.speech.recogniser import Recogniser, Seam


class _Listener(Recogniser):
    """Notes its windows, samples that count up; each says its first sample's number."""

    def __init__(self) -> None:
        self._frame = 1
        self.windows: list[list[int]] = []

    def window(self, samples: np.ndarray, last: bool = True) -> tuple[list[Emission], int]:
        self.windows.append([int(each) for each in samples])
        assert last or len(samples) == 10
        return [Emission(int(samples[0]), 0, 1)], len(samples)


@pytest.mark.parametrize("count", [1, 9, 10, 11, 17, 18, 100])
@pytest.mark.parametrize("sizes", [[], [1] * 99, [3, 30, 7]], ids=["whole", "single", "uneven"])
def test_windows_cover_a_recording_whatever_its_blocks(count: int, sizes: list[int]) -> None:
    """Every sample is heard, each window begins an overlap before the last one's end."""
    blocks = np.split(np.arange(count, dtype=np.float32), list(itertools.accumulate(sizes)))
    listener = _Listener()
    found = list(listener.listen(blocks, longest=10, overlap=4))

    windows = listener.windows
    assert windows[0][0] == 0
    for window in windows:
        assert window == list(range(window[0], window[-1] + 1))
        assert 0 < len(window) <= 10
    for one, following in itertools.pairwise(windows):
        assert len(one) == 10
        assert following[0] == one[0] + 10 - 4
        assert len(following) > 4, "it holds something new"
    assert windows[-1][-1] == count - 1
    assert [heard for _, heard in found] == [window[-1] + 1 for window in windows]


def test_nothing_has_no_window() -> None:
    """A stream without a sample is no recording."""
    assert list(_Listener().listen([np.empty(0, np.float32)], longest=10, overlap=4)) == []


@pytest.mark.parametrize("shift", [0, 1], ids=["same frames", "a frame apart"])
@pytest.mark.parametrize("spacing", [3, 4, 7])
def test_what_two_chunks_hear_alike_is_kept_once(spacing: int, shift: int) -> None:
    """Tokens in the overlap are neither lost nor doubled, though the chunks place them apart."""
    said = [Emission(number % 10, at, at + 1) for number, at in enumerate(range(2, 96, spacing))]
    seam, row = Seam(), []
    for number, first in enumerate(range(0, 80, 20)):
        last = first + 40
        heard = [
            Emission(one.token, one.start + shift * (number % 2), one.end + shift * (number % 2))
            for one in said
            if first <= one.start and one.end + shift <= last
        ]
        row += seam.join(first, last, heard)
    row += seam.rest()

    assert [one.token for one in row] == [one.token for one in said]


def test_a_chunk_is_not_believed_at_its_ends() -> None:
    """A word that an end cut in two, and was misheard for it, comes from the chunk that had it."""
    seam = Seam()
    assert seam.join(0, 40, [Emission(1, 5, 6), Emission(2, 30, 31), Emission(9, 39, 40)]) == []
    certain = seam.join(20, 60, [Emission(8, 20, 21), Emission(2, 30, 31), Emission(3, 38, 40)])

    assert [one.token for one in [*certain, *seam.rest()]] == [1, 2, 3]
