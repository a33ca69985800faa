"""The transcriber, which turns recordings of any length into text with a bundle's programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from menagerie.errors import SpeechError
from menagerie.format.bundle_manifest import BundleProgram, Role
from menagerie.session import Session, checked_manifest
from menagerie.speech.audio import Recording, at_rate, open_audio, require_rate, sound
from menagerie.speech.decoding import Emission
from menagerie.speech.recipe import Head, WhisperHead, read_recipe
from menagerie.speech.recogniser import Program, Recogniser
from menagerie.speech.transcript import Speller, Token, Transcript

Progress = Callable[[float, float | None], None]


class Transcriber:
    """A loaded bundle that understands speech. It takes one recording at a time.

    Args:
        bundle: the bundle's folder.
        head: name of the head that decodes; None: the bundle's first head.
        threads: number of threads of a run; None: `Session` chooses.
        chunk: seconds of a recording to process at once; None: as many as the model takes. Shorter
            chunks yield text sooner but give words less context. Whisper finds the start of
            its next window by timestamps, Moonshine by a pause; neither needs an overlap.
        language: code (`en`) of the spoken language, for a model that knows several; None: the
            bundle's default, or the likeliest language of each window.
        allow_unsigned: whether to accept a bundle that no trusted key has signed; None: the
            variable MENAGERIE_ALLOW_UNSIGNED decides.

    Raises:
        SpeechError: the bundle understands no speech, has no such head, knows no such language, or
            takes no such chunk.
        SessionError: the bundle cannot be loaded.
        Untrusted: no trusted key has signed the bundle.
    """

    def __init__(
        self,
        bundle: Path | str,
        *,
        head: str | None = None,
        threads: int | None = None,
        chunk: float | None = None,
        language: str | None = None,
        allow_unsigned: bool | None = None,
    ) -> None:
        self._sessions = ExitStack()
        self._allow_unsigned = allow_unsigned
        folder = Path(bundle)
        manifest = checked_manifest(folder, unsigned_too=True)  # each session checks the signature
        model = manifest.model
        if Role.SPEECH not in manifest.files:
            raise _without_speech(model)
        path = folder / manifest.files[Role.SPEECH].path
        self.recipe = read_recipe(path, [program.name for program in manifest.programs])
        heads = self.recipe.spoken
        if not heads:
            raise _without_speech(model)
        if head is not None and head not in heads:
            raise SpeechError(model, f"has no head {head!r}", f"It has: {', '.join(heads)}")
        chosen = _in_language(language, heads[head or next(iter(heads))], model)
        programs = {
            program.name: self._open(folder, program, threads)
            for program in manifest.programs
            if program.name in chosen.programs
        }
        self._recogniser = Recogniser(self.recipe, chosen, programs, str(path))
        self._longest, self._overlap = self._chunk_sizes(chunk, model)
        self._speller = Speller(self.recipe.vocabulary)

    def transcribe(self, samples: np.ndarray, rate: int) -> Transcript:
        """Return the text of a recording of any length.

        `samples` are (n,) or (n, channels), floats from -1 to 1 or integers; channels are averaged.
        A `rate` (samples per second) other than the model's needs soxr. Raise SpeechError if there
        is no sample, a sample is not finite, or the samples have a type that `sound` rejects.
        """
        place = "samples"
        require_rate(place, rate)
        mono = sound(place, np.asarray(samples), rate)
        return self.transcribe_recording(Recording(place, rate, len(mono) / rate, [mono]))

    def transcribe_file(self, path: Path | str, progress: Progress | None = None) -> Transcript:
        """Return the text of an audio file: WAV, FLAC, Ogg, MP3 or another format of libsndfile.

        Reading needs soundfile. `progress` is called with the seconds done and the total, which is
        None if the file does not state it. Raise SpeechError if the file cannot be read as audio or
        holds no sample.
        """
        with open_audio(Path(path)) as recording:
            return self.transcribe_recording(recording, progress)

    def transcribe_recording(
        self, recording: Recording, progress: Progress | None = None
    ) -> Transcript:
        """Return a recording's text, reading block by block; raise SpeechError if that fails."""
        tokens: list[Token] = []
        done = 0.0
        for found, done in self.listen(recording):
            tokens += found
            if progress is not None:
                progress(done, recording.seconds)
        return self.transcript(tokens, done)

    def listen(self, recording: Recording) -> Iterator[tuple[list[Token], float]]:
        """Yield each window's settled tokens and the seconds heard; raise SpeechError if empty."""
        heard, blocks = 0, at_rate(recording, self.recipe.rate)
        for found, heard in self._recogniser.listen(blocks, self._longest, self._overlap):
            yield self._tokens(found, heard), heard / self.recipe.rate
        if not heard:
            raise SpeechError(recording.place, "holds no sample", "Record it again")

    def written(self, tokens: Sequence[Token]) -> str:
        """Return the text of tokens, with a leading space if the first token begins a word."""
        return self._speller.written([token.id for token in tokens])

    def transcript(self, tokens: Sequence[Token], duration: float) -> Transcript:
        """Return the transcript of a recording of `duration` seconds from its tokens."""
        return Transcript(
            text=self.written(tokens).strip(),
            words=self._speller.words(tokens),
            tokens=tuple(tokens),
            duration=duration,
        )

    def close(self) -> None:
        """Unload the programs; a second call does nothing."""
        self._sessions.close()

    def __enter__(self) -> Transcriber:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, folder: Path, program: BundleProgram, threads: int | None) -> Program:
        opened = Session(folder, program.name, threads, allow_unsigned=self._allow_unsigned)
        session = self._sessions.enter_context(opened)
        return Program(session.run, program.inputs, program.dimensions)

    def _chunk_sizes(self, seconds: float | None, model: str) -> tuple[int, int]:
        """Return a chunk's and an overlap's samples, whole frames; decoders have no overlap."""
        rate, frame = self.recipe.rate, self.recipe.frame
        shared = self.recipe.overlap if self._recogniser.overlaps else 0.0
        overlap = round(shared * rate / frame) * frame
        longest = self._recogniser.sizes.high // frame * frame
        if seconds is not None:
            wanted = round(seconds * rate / frame) * frame
            if not 2 * overlap < wanted <= longest:
                fact = f"cannot listen to {seconds:g} s at once"
                most, least = longest / rate, 2 * overlap / rate
                raise SpeechError(model, fact, f"More than {least:g} s and at most {most:g}")
            longest = wanted
        return longest, min(overlap, (longest - 1) // frame // 2 * frame)

    def _tokens(self, emissions: list[Emission], heard: int) -> list[Token]:
        rate, frame = self.recipe.rate, self.recipe.frame
        return [
            Token(
                one.token,
                self._speller.piece(one.token),
                min(one.start * frame, heard) / rate,
                min(one.end * frame, heard) / rate,
            )
            for one in emissions
        ]


def _without_speech(model: str) -> SpeechError:
    fact = "does not understand speech: its bundle has no recipe for it"
    return SpeechError(model, fact, "Convert an entry that has `speech`")


def _in_language(code: str | None, head: Head, model: str) -> Head:
    if code is None:
        return head
    if isinstance(head, WhisperHead) and code in head.languages:
        return replace(head, language=code)
    known = sorted(head.languages) if isinstance(head, WhisperHead) else []
    step = f"It knows: {', '.join(known)}" if known else "Leave the language out"
    raise SpeechError(model, f"does not support language {code!r}", step)
