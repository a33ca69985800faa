"""`menagerie transcribe` and `zoo transcribe`: files in, text out."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from menagerie.errors import MenagerieError, UsageError
from menagerie.speech.audio import open_audio, raw_audio
from menagerie.speech.transcript import FORMATS, as_json
from menagerie.terminal import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from menagerie.speech.audio import Recording
    from menagerie.speech.transcriber import Transcriber
    from menagerie.speech.transcript import Token, Transcript

STDIN = "-"
_LONG = 30.0  # seconds, from which on a recording's progress is shown


@dataclass(frozen=True)
class Order:
    """What a command line asks for.

    Attributes:
        audio: files, or `-` for raw samples on standard input.
        form: `txt`, `srt`, `vtt` or `json`.
        folder: where to write a file for each recording; None for standard output.
        rate: of raw samples, a second.
    """

    audio: Sequence[str]
    form: str = "txt"
    folder: Path | None = None
    rate: int = 16_000

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            known = ", ".join(FORMATS)
            raise UsageError("transcribe", f"there is no format {self.form!r}", f"One of {known}")
        if self.audio.count(STDIN) > 1:
            raise UsageError("transcribe", "standard input can be read once", "Name `-` once")
        if self.folder is None:
            return
        places = [self.place(audio) for audio in self.audio]
        for place in places:
            if places.count(place) > 1:
                fact = "two recordings would be written to it"
                raise UsageError(str(place), fact, "Transcribe them one after another")

    def place(self, audio: str) -> Path:
        """Where the transcript of a recording is written, if there is a folder."""
        stem = "stdin" if audio == STDIN else Path(audio).stem
        return (self.folder or Path()) / f"{stem}.{self.form}"


def transcribe(transcriber: Transcriber, order: Order) -> int:
    """Transcribes every recording; one that cannot be read does not keep the others from it.

    Text of standard input is written as it becomes certain.

    Returns:
        The exit code: 0, or 1 if a recording failed.
    """
    if order.folder is not None:
        order.folder.mkdir(parents=True, exist_ok=True)
    failed, told = False, []
    for audio in order.audio:
        try:
            transcript = _one(transcriber, order, audio)
        except (MenagerieError, OSError) as error:
            failed = True
            fact = f"{audio}: {error.strerror}" if isinstance(error, OSError) else str(error)
            sys.stderr.write(f"{fact}\n")
            told.append({"audio": audio, "error": fact})
            continue
        told.append({"audio": audio, **json.loads(as_json(transcript))})
        _write(order, audio, transcript)
    if order.form == "json" and order.folder is None:
        shown: Any = {"recordings": told}
        sys.stdout.write(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    return int(failed)


def _one(transcriber: Transcriber, order: Order, audio: str) -> Transcript:
    if audio == STDIN:
        return _heard(transcriber, order, raw_audio(sys.stdin.buffer, order.rate), audio)
    with open_audio(Path(audio)) as recording:
        return _heard(transcriber, order, recording, audio)


def _heard(transcriber: Transcriber, order: Order, recording: Recording, audio: str) -> Transcript:
    length = recording.seconds
    of = "" if length is None else f" of {length:.0f}"
    at_once = audio == STDIN and order.form == "txt" and order.folder is None
    tokens: list[Token] = []
    seconds = 0.0
    with Status() as status:
        for found, seconds in transcriber.listen(recording):
            if at_once:
                text = transcriber.written(found)
                sys.stdout.write(text if tokens else text.lstrip())
                sys.stdout.flush()
            tokens += found
            if length is None or length > _LONG:
                status.show(f"{audio}: {seconds:.0f}{of} s")
    if at_once:
        sys.stdout.write("\n")
    return transcriber.transcript(tokens, seconds)


def _write(order: Order, audio: str, transcript: Transcript) -> None:
    text = FORMATS[order.form](transcript)
    if order.folder is not None:
        order.place(audio).write_text(text, encoding="utf-8")
    elif order.form == "txt":
        if audio != STDIN:
            sys.stdout.write(f"{audio}: {text}" if len(order.audio) > 1 else text)
    elif order.form != "json":
        sys.stdout.write(text)
