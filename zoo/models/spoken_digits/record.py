"""Makes the held-out recordings: `python -m zoo.models.spoken_digits.record [FOLDER]`.

Voices, and an accent, that the training never heard, in other rooms and noise; FLAC of 16 bits at
16 kHz, and transcripts.tsv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import soundfile

from zoo.models.spoken_digits.rooms import heard
from zoo.models.spoken_digits.speakers import RATE, say, utterance
from zoo.speech import TRANSCRIPTS

__all__ = ["record"]

_SEED = 2026
_RECORDINGS, _LONGEST = 80, 6


def record(folder: Path) -> None:
    """Write all recordings and their list into `folder`.

    Raises:
        SourceError: espeak-ng is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(_SEED)
    lines = []
    for number in range(_RECORDINGS):
        wanted = utterance(rng, _LONGEST, held_out=True)
        name = f"{number:02}.flac"
        samples = heard(rng, say(wanted), [], pause=0.4)
        soundfile.write(folder / name, samples, RATE, subtype="PCM_16")
        lines.append(f"{name}\t{' '.join(map(str, wanted.digits))}\n")
    (folder / TRANSCRIPTS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "held_out")
