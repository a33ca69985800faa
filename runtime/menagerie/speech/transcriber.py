"""From samples to text, by the programs of a bundle; long recordings are cut into chunks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from menagerie.errors import MenagerieError, SpeechError
from menagerie.format.bundle_manifest import MANIFEST, Role, parse_manifest
from menagerie.format.folder import read_manifest
from menagerie.session import Session
from menagerie.speech.audio import Recording, at_rate, open_audio, require_rate, sound
from menagerie.speech.decoding import Emission, moved
from menagerie.speech.recipe import WhisperHead, read_recipe
from menagerie.speech.recogniser import Program, WindowRecogniser, recogniser_of
from menagerie.speech.transcript import Speller, Token, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from menagerie.format.bundle_manifest import BundleManifest, BundleProgram
    from menagerie.speech.recipe import Head

    Samples = NDArray[np.float32]
    Progress = Callable[[float, float | None], None]


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


class Transcriber:
    """A bundle that understands speech, loaded. One recording at a time.

    Args:
        bundle: the bundle's folder.
        head: which of its heads decodes; None for the one that its maker put first.
        threads: how many threads a run uses; None: as `Session` chooses.
        chunk: seconds of a recording to listen to at once; None for as many as the model takes.
            Shorter chunks answer sooner and know less of what is around a word. A Whisper takes its
            next window's beginning from its timestamps, a Moonshine a pause; they need no overlap.
        language: that is spoken, by its code (`en`), of a model that knows several; None: the one
            that its maker chose, or the likeliest in each window.
        allow_unsigned: also take a bundle that no trusted key has signed; None: the variable
            MENAGERIE_ALLOW_UNSIGNED decides.

    Raises:
        SpeechError: the bundle understands no speech, has no such head, knows no such language, or
            takes no such chunk.
        SessionError: it cannot be loaded.
        Untrusted: no trusted key has signed it.
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
        manifest = _manifest(folder)
        model = manifest.model
        if Role.SPEECH not in manifest.files:
            fact = f"{model} does not understand speech: the bundle has no recipe for it"
            raise SpeechError(str(folder), fact, "Convert an entry that has `speech`")
        path = folder / manifest.files[Role.SPEECH].path
        self.recipe = read_recipe(path, [program.name for program in manifest.programs])
        heads = self.recipe.heads
        if head is not None and head not in heads:
            raise SpeechError(model, f"has no head {head!r}", f"It has: {', '.join(heads)}")
        chosen = _in_language(language, heads[head or next(iter(heads))], model)
        programs = {
            program.name: self._open(folder, program, threads)
            for program in manifest.programs
            if program.name in chosen.programs
        }
        self._recogniser = recogniser_of(self.recipe, chosen, programs, str(path))
        self._longest, self._overlap = self._chunk_sizes(chunk, model)
        self._speller = Speller(self.recipe.vocabulary)

    def transcribe(self, samples: np.ndarray, rate: int) -> Transcript:
        """The text of a recording, of whatever length.

        Args:
            samples: (n,) or (n, channels), which are averaged: floats from -1 to 1, or integers.
            rate: samples a second; another than the model's takes soxr.

        Raises:
            SpeechError: there is no sample, one is not finite, or of no type that sound has.
        """
        place = "samples"
        require_rate(place, rate)
        mono = sound(place, np.asarray(samples), rate)
        return self.transcribe_recording(Recording(place, rate, len(mono) / rate, [mono]))

    def transcribe_file(self, path: Path | str, progress: Progress | None = None) -> Transcript:
        """The text of an audio file; it takes soundfile to read it.

        Args:
            path: WAV, FLAC, Ogg, MP3 or another format of libsndfile's.
            progress: takes how many seconds are done, and of how many, where the file says that.

        Raises:
            SpeechError: the file cannot be read as audio, or holds none.
        """
        with open_audio(Path(path)) as recording:
            return self.transcribe_recording(recording, progress)

    def transcribe_recording(
        self, recording: Recording, progress: Progress | None = None
    ) -> Transcript:
        """The text of a recording that is read block by block.

        Raises:
            SpeechError: it cannot be read, or holds no sample.
        """
        tokens: list[Token] = []
        done = 0.0
        for found, done in self.listen(recording):
            tokens += found
            if progress is not None:
                progress(done, recording.seconds)
        return self.transcript(tokens, done)

    def listen(self, recording: Recording) -> Iterator[tuple[list[Token], float]]:
        """The tokens that each further chunk makes certain, and how many seconds were heard.

        Raises:
            SpeechError: the recording cannot be read, or holds no sample.
        """
        if isinstance(self._recogniser, WindowRecogniser):
            yield from self._by_windows(self._recogniser, recording)
            return
        seam, frame, heard = Seam(), self.recipe.frame, 0
        blocks = at_rate(recording, self.recipe.rate)
        for chunk in chunks(blocks, self._longest, self._overlap):
            heard = chunk.first + len(chunk.samples)
            start, end = chunk.first // frame, -(-heard // frame)
            emissions = self._recogniser.recognise(chunk.samples)
            certain = seam.join(start, end, moved(emissions, start))
            yield self._tokens(certain, heard), heard / self.recipe.rate
        if not heard:
            raise _nothing(recording)
        yield self._tokens(seam.rest(), heard), heard / self.recipe.rate

    def _by_windows(
        self, recogniser: WindowRecogniser, recording: Recording
    ) -> Iterator[tuple[list[Token], float]]:
        """As `listen`, of a recogniser that says where its next window begins."""
        blocks = iter(at_rate(recording, self.recipe.rate))
        held, first = np.empty(0, np.float32), 0
        block: np.ndarray | None = held
        while True:
            while len(held) <= self._longest and (block := next(blocks, None)) is not None:
                held = np.concatenate([held, block])
            if not len(held):
                break
            last = block is None and len(held) <= self._longest
            found, advance = recogniser.window(held[: self._longest], last)
            found = moved(found, first // self.recipe.frame)
            held, first = held[advance:], first + advance
            yield self._tokens(found, first + len(held)), first / self.recipe.rate
        if not first:
            raise _nothing(recording)

    def written(self, tokens: Sequence[Token]) -> str:
        """The text of some tokens, with a space at its beginning where a word begins."""
        return self._speller.written([token.id for token in tokens])

    def transcript(self, tokens: Sequence[Token], duration: float) -> Transcript:
        """The transcript that tokens make of a recording of `duration` seconds."""
        return Transcript(
            text=self.written(tokens).strip(),
            words=self._speller.words(tokens),
            tokens=tuple(tokens),
            duration=duration,
        )

    def close(self) -> None:
        """Unloads the programs; a second call does nothing."""
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
        """Samples of a chunk and of an overlap, both whole frames."""
        rate, frame = self.recipe.rate, self.recipe.frame
        overlap = round(self.recipe.overlap * rate / frame) * frame
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


def _nothing(recording: Recording) -> SpeechError:
    return SpeechError(recording.place, "holds no sample", "Record it again")


def _manifest(folder: Path) -> BundleManifest:
    path = folder / MANIFEST
    try:
        return parse_manifest(read_manifest(path), str(path))
    except MenagerieError as error:
        raise SpeechError(error.place, error.fact, error.next_step) from error


def _in_language(code: str | None, head: Head, model: str) -> Head:
    """The head with another language in its prompt."""
    if code is None:
        return head
    if isinstance(head, WhisperHead) and code in head.languages:
        return replace(head, language=code)
    known = sorted(head.languages) if isinstance(head, WhisperHead) else []
    step = f"It knows: {', '.join(known)}" if known else "Leave the language out"
    raise SpeechError(model, f"does not support language {code!r}", step)
