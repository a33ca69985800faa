"""Conversion of recordings to text with numpy: `Transcriber`. Files need the extra `speech`.

::

    from menagerie.speech import Transcriber

    with Transcriber("spoken_digits") as transcriber:
        print(transcriber.transcribe(samples, rate=16_000).text)
"""

from menagerie.speech.transcriber import Transcriber
from menagerie.speech.transcript import Token, Transcript, Word

__all__ = ["Token", "Transcriber", "Transcript", "Word"]
