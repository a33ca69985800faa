"""A model used by what it means: a picture to labels, a recording to stretches of speech.

A bundle's recipe (`menagerie.speech.recipe`) says how; arithmetic is in the programs. What is here
reads files and says results: Pillow reads pictures (extra `pictures`), soundfile recordings.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from menagerie.errors import ArtifactError, UsageError
from menagerie.format.bundle_manifest import Role
from menagerie.session import Session, checked_manifest
from menagerie.speech import Transcriber
from menagerie.speech.audio import at_rate, open_audio
from menagerie.speech.recipe import LabelsHead, SimilarityHead, StretchesHead, read_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from menagerie.speech.recipe import Recipe

_FEWEST = 0.05  # the least probability of a label that is named
_MOST = 5  # labels of a picture


@dataclass(frozen=True)
class Answer:
    """What a model says of a file: lines for people, and the same as JSON."""

    lines: tuple[str, ...]
    fields: dict[str, Any]


def answers(folder: Path, files: Sequence[str], threads: int | None = None) -> list[Answer]:
    """Use a bundle, by its recipe, on files.

    Raise UsageError if the bundle has no recipe for files, or a file cannot be read as what it
    takes, SessionError if it cannot be loaded, SpeechError if a recording cannot be read.
    """
    manifest = checked_manifest(folder, unsigned_too=True)  # each session checks
    if Role.SPEECH not in manifest.files:
        fact = "its bundle does not say what to make of files"
        raise UsageError(manifest.model, fact, "Give arrays by --input NAME=FILE.npy")
    path = folder / manifest.files[Role.SPEECH].path
    recipe = read_recipe(path, [program.name for program in manifest.programs])
    try:
        return _used(folder, recipe, files, threads)
    except (IndexError, KeyError, ValueError) as error:
        raise ArtifactError(str(path), f"does not fit the programs ({error!r})") from error


def _used(folder: Path, recipe: Recipe, files: Sequence[str], threads: int | None) -> list[Answer]:
    head = next(iter(recipe.heads.values()))
    if isinstance(head, LabelsHead):
        with Session(folder, head.program, threads) as session:
            return [_labelled(session, recipe.vocabulary.pieces, file) for file in files]
    if isinstance(head, StretchesHead):
        return [_stretches(folder, head, file, threads) for file in files]
    if isinstance(head, SimilarityHead):
        return _similarities(folder, head, recipe, files, threads)
    with Transcriber(folder, threads=threads) as transcriber:
        texts = [transcriber.transcribe_file(file).text for file in files]
    return [Answer((text,), {"text": text}) for text in texts]


def _labelled(session: Session, labels: Sequence[str], file: str) -> Answer:
    scores = _first(session.run({"picture": _picture(file, session)}))
    best = [int(n) for n in np.argsort(-scores)[:_MOST]]
    named = [(labels[n], float(scores[n])) for n in best if n == best[0] or scores[n] >= _FEWEST]
    rows = [{"label": label, "score": round(score, 6)} for label, score in named]
    return Answer(tuple(f"{label} {score:.2f}" for label, score in named), {"labels": rows})


def _first(results: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the first row of a program's first output."""
    return np.asarray(next(iter(results.values()))[0], np.float64)


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        step = f"Install the extra `{extra}` of menagerie"
        raise UsageError("run", f"{name} is missing, which reads {extra}", step) from error


def _picture(file: str, session: Session) -> NDArray[np.uint8]:
    """Read a picture as RGB (1, height, width, 3); one too large for the program is reduced."""
    image, operations = _library("PIL.Image", "pictures"), _library("PIL.ImageOps", "pictures")
    try:
        with image.open(file) as opened:
            picture = operations.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise UsageError(file, f"cannot be read as a picture ({error})", "Check it") from error
    if ranges := [*session.dimensions.values()]:
        low, high = max(r[0] for r in ranges), min(r[1] for r in ranges)
        factor = min(1.0, high / max(picture.size))
        size = [max(low, round(side * factor)) for side in picture.size]
        if tuple(size) != picture.size:
            picture = picture.resize(size, image.Resampling.LANCZOS)
    return np.asarray(picture)[None]


def _stretches(folder: Path, head: StretchesHead, file: str, threads: int | None) -> Answer:
    with open_audio(Path(file)) as recording:
        program, rate = _nearest(head, recording.rate)
        with Session(folder, program, threads) as session:
            size = int(session.inputs[0].shape[1])
            blocks = _blocks(at_rate(recording, rate), size)
            scores = [float(_first(session.run({"samples": block}))[0]) for block in blocks]
        last = recording.seconds or len(scores) * size / rate
    spans = stretches(scores, head, size / rate, last)
    rows = [{"start": round(low, 3), "end": round(high, 3)} for low, high in spans]
    shown = tuple(f"{low:.2f} to {high:.2f} s" for low, high in spans)
    return Answer(shown or ("nothing",), {"stretches": rows})


def _similarities(
    folder: Path, head: SimilarityHead, recipe: Recipe, texts: Sequence[str], threads: int | None
) -> list[Answer]:
    """Compute the cosine between the first text and each other one."""
    if len(texts) < 2:  # noqa: PLR2004 - one, and what it is compared with
        raise UsageError("run", "one sentence is like itself", "Give two sentences or more")
    pieces = {piece: number for number, piece in enumerate(recipe.vocabulary.pieces)}
    tokenizer = _tokenizer(pieces)
    found = []
    with Session(folder, head.program, threads) as session:
        for text in texts:
            inner = tokenizer.encode(text).ids[: head.most - 2]
            tokens = np.array([[pieces["[CLS]"], *inner, pieces["[SEP]"]]], np.int64)
            found.append(_first(session.run({"tokens": tokens})))
    cosines = [float(found[0] @ each) for each in found[1:]]
    return [Answer((), {}), *(Answer((f"{c:.2f}",), {"similarity": round(c, 6)}) for c in cosines)]


def _tokenizer(pieces: dict[str, int]) -> Any:
    library = _library("tokenizers", "text")
    tokenizer = library.Tokenizer(library.models.WordPiece(pieces, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _nearest(head: StretchesHead, rate: int) -> tuple[str, int]:
    """Return the program of the highest rate that the recording has, or of the lowest."""
    ordered = sorted(head.programs.items(), key=lambda pair: pair[1])
    return next((p for p in reversed(ordered) if p[1] <= rate), ordered[0])


def _blocks(pieces: Iterator[NDArray[np.float32]], size: int) -> Iterator[NDArray[np.float32]]:
    """Yield blocks (1, size); the last one is padded with zeros."""
    held = np.empty(0, np.float32)
    for piece in pieces:
        held = np.concatenate([held, piece])
        while len(held) >= size:
            yield held[None, :size]
            held = held[size:]
    if len(held):
        yield np.pad(held, (0, size - len(held)))[None]


def stretches(
    scores: Sequence[float], head: StretchesHead, seconds: float, last: float
) -> list[tuple[float, float]]:
    """Return beginnings and ends, `last` at most, from scores of blocks; see `StretchesHead`."""
    found: list[list[int]] = []
    for number, score in enumerate(scores):
        if score < head.threshold:
            continue
        if found and (number - found[-1][1]) * seconds < head.pause:
            found[-1][1] = number + 1
        else:
            found.append([number, number + 1])
    spans = [(low * seconds, min(high * seconds, last)) for low, high in found]
    return [(low, high) for low, high in spans if high - low >= head.least]
