"""`menagerie transcribe` and `zoo transcribe`: files in, text out."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from menagerie.errors import MenagerieError, UsageError
from menagerie.speech.audio import open_audio, raw_audio
from menagerie.speech.transcriber import Transcriber
from menagerie.speech.transcript import FORMATS, Token, Transcript
from menagerie.terminal import Status, write_json
from menagerie.typed_json import plain

STDIN = "-"
_LONG = 30.0  # seconds; longer recordings show their progress


@dataclass(frozen=True)
class Order:
    """The options of a command line."""

    audio: Sequence[str]  # files, or `-` for raw samples on standard input
    form: str = "txt"  # `txt`, `srt`, `vtt` or `json`
    folder: Path | None = None  # where to write a file per recording; None: standard output
    rate: int = 16_000  # samples per second of raw samples

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            known = ", ".join(FORMATS)
            raise UsageError("transcribe", f"there is no format {self.form!r}", f"One of {known}")
        if self.audio.count(STDIN) > 1:
            raise UsageError("transcribe", "standard input can be read once", "Name `-` once")
        if self.folder is None and self.form in {"srt", "vtt"} and len(self.audio) > 1:
            fact = f"{self.form} has a file for each recording"
            raise UsageError("transcribe", fact, "Name their folder by --output")
        places = [] if self.folder is None else [self.place(audio) for audio in self.audio]
        if twice := [place for place in places if places.count(place) > 1]:
            fact = "two recordings would be written to it"
            raise UsageError(str(twice[0]), fact, "Transcribe them one after another")

    def place(self, audio: str) -> Path:
        """Return the path of a recording's transcript in the folder."""
        stem = "stdin" if audio == STDIN else Path(audio).stem
        return (self.folder or Path()) / f"{stem}.{self.form}"


def transcribe(transcriber: Transcriber, order: Order) -> int:
    """Transcribe every recording, and return the exit code: 1 if one could not be read.

    Text from standard input is written as soon as it is settled. Characters that standard output
    cannot encode are escaped, so that no letter looks like another one.
    """
    if order.folder is not None:
        order.folder.mkdir(parents=True, exist_ok=True)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    failed, entries = False, []
    for audio in order.audio:
        try:
            transcript = _heard(transcriber, order, audio)
        except (MenagerieError, OSError) as error:
            failed = True
            fact = f"{audio}: {error.strerror}" if isinstance(error, OSError) else str(error)
            sys.stderr.write(f"{fact}\n")
            entries.append({"audio": audio, "error": fact})
            continue
        entries.append({"audio": audio, **plain(transcript)})
        _write(order, audio, transcript)
    if order.form == "json" and order.folder is None:
        write_json({"recordings": entries})
    return int(failed)


def _heard(transcriber: Transcriber, order: Order, audio: str) -> Transcript:
    raw = audio == STDIN
    tokens: list[Token] = []
    seconds = 0.0
    at_once = raw and order.form == "txt" and order.folder is None
    opened = (
        nullcontext(raw_audio(sys.stdin.buffer, order.rate)) if raw else open_audio(Path(audio))
    )
    with opened as recording, Status() as status:
        length = recording.seconds
        of = "" if length is None else f" of {length:.0f}"
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
    elif order.form in {"srt", "vtt"}:
        sys.stdout.write(text)
    elif order.form == "txt" and audio != STDIN:
        sys.stdout.write(f"{audio}: {text}" if len(order.audio) > 1 else text)
