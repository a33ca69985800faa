"""Uses of a model by meaning: a picture to labels, a recording to pitch, a film to shots.

A bundle's recipe (`menagerie.speech.recipe`) defines how; its programs do the arithmetic. This
module reads files and reports results: Pillow reads pictures (extra `pictures`), soundfile
recordings, PyAV films (extra `films`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from menagerie import uses
from menagerie.boxes import LEAST_SIDE, find_boxes
from menagerie.errors import ArtifactError, UsageError
from menagerie.format.bundle_manifest import Role
from menagerie.session import Session, checked_manifest
from menagerie.speech import Transcriber
from menagerie.speech.audio import at_rate, open_audio
from menagerie.speech.decoding import ctc_tokens
from menagerie.speech.recipe import HEADS, Recipe, read_recipe

_FEWEST = 0.05  # the least probability of a reported label
_MOST = 5  # labels per picture
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # recognised even in users' text


@dataclass(frozen=True)
class Answer:
    """A model's answer for a file: lines for people, and the same as JSON."""

    lines: tuple[str, ...]
    fields: dict[str, Any]


def answers(folder: Path, files: Sequence[str], threads: int | None = None) -> list[Answer]:
    """Use a bundle on files, by its recipe.

    Raise UsageError if the bundle has no recipe for files, or a file cannot be read as its input,
    SessionError if it cannot be loaded, SpeechError if a recording cannot be read.
    """
    manifest = checked_manifest(folder, unsigned_too=True)  # each session checks the signature
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
    head, pieces = next(iter(recipe.heads.values())), recipe.vocabulary.pieces
    if isinstance(head, HEADS):
        with Transcriber(folder, threads=threads) as transcriber:
            texts = [transcriber.transcribe_file(file).text for file in files]
        return [Answer((text,), {"text": text}) for text in texts]
    if isinstance(head, uses.StretchesHead):
        return [_stretches(folder, head, file, threads) for file in files]
    if isinstance(head, uses.BoxesHead):
        return _boxes(folder, head, files, threads)
    with Session(folder, head.program, threads) as session:
        match head:
            case uses.SimilarityHead():
                results = _compared(_sentences(session, head, pieces, files))
            case uses.VoicesHead():
                results = _compared([_voice(session, head, file) for file in files])
            case uses.PitchHead():
                results = [_pitch(session, head, file) for file in files]
            case uses.BordersHead():
                results = [_borders(session, head, file) for file in files]
            case uses.LabelsHead():
                results = [_labelled(session, head, pieces, file) for file in files]
            case _:
                results = [_line(session, pieces, file) for file in files]
    return results


def _labelled(session: Session, head: uses.LabelsHead, labels: Sequence[str], file: str) -> Answer:
    scores = _first(session.run({"picture": _picture(file, session, square=head.square)}))
    best = [int(n) for n in np.argsort(-scores)[:_MOST]]
    named = [(labels[n], float(scores[n])) for n in best if n == best[0] or scores[n] >= _FEWEST]
    rows = [{"label": label, "score": round(score, 6)} for label, score in named]
    return Answer(tuple(f"{label} {score:.2f}" for label, score in named), {"labels": rows})


def _first(results: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    return np.asarray(next(iter(results.values()))[0], np.float64)


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        step = f"Install the extra `{extra}` of menagerie"
        raise UsageError("run", f"{name} is missing, which reads {extra}", step) from error


def read_picture(file: str) -> Any:
    """Read a picture as RGB, upright; raise UsageError if it is not a picture."""
    image, operations = _library("PIL.Image", "pictures"), _library("PIL.ImageOps", "pictures")
    try:
        with catch_warnings():
            simplefilter("ignore", image.DecompressionBombWarning)  # larger ones are an error
            with image.open(file) as opened:
                kind = opened.format, opened.mode
                picture = operations.exif_transpose(opened)
        if kind == ("PPM", "I") or kind[1].startswith("I;16"):  # Pillow would clip at 255
            picture = image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
        if picture.mode in {"I", "F"}:
            raise ValueError(f"pixels of mode {picture.mode} have no known range")  # noqa: TRY301
        return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        why = (getattr(error, "strerror", None) or str(error)).partition(", could be")[0]
        step = "Give a PNG, a JPEG or the like, of at most 16 bits a channel and 178 megapixels"
        raise UsageError(file, f"cannot be read as a picture: {why}", step) from error


def _reduced(picture: Any, most: float, least: int = 1) -> tuple[Any, float]:
    """Return a picture with sides of at most `most` pixels, and its scale factor.

    One with a side below `least` is enlarged as far as possible: a linear filter adds little.
    """
    longest, filters = max(picture.size), _library("PIL.Image", "pictures").Resampling
    factor = most / longest if longest > most or min(picture.size) < least else 1.0
    size = tuple(max(1, round(side * factor)) for side in picture.size)
    if size != picture.size:
        picture = picture.resize(size, filters.BILINEAR if factor > 1.0 else filters.LANCZOS)
    return picture, factor


def _picture(file: str, session: Session, *, square: bool) -> NDArray[np.uint8]:
    """Read a picture as RGB (1, height, width, 3), in a size that the program takes."""
    picture = read_picture(file)
    if ranges := [*session.dimensions.values()]:
        low, high = max(r[0] for r in ranges), min(r[1] for r in ranges)
        if square and not all(low <= side <= high for side in picture.size):
            left, top = ((side - min(picture.size)) // 2 for side in picture.size)
            picture = picture.crop((left, top, picture.width - left, picture.height - top))
        picture, _ = _reduced(picture, high, low)
        if min(picture.size) < low:
            raise UsageError(file, "is too narrow for its length", "Cut it, or pad it")
    return np.asarray(picture)[None]


def line_of(picture: Any, high: int, most: int, least: int = 0, multiple: int = 1) -> Any:
    """Resize a picture of a line of text to (high, width, 3), keeping its proportions.

    It is cut off at `most` columns, or its last column is repeated up to `least` and a multiple.
    """
    wide = max(1, math.ceil(high * picture.width / picture.height))
    bicubic = _library("PIL.Image", "pictures").Resampling.BICUBIC
    line = np.asarray(picture.resize((wide, high), bicubic))[:, :most]
    spare = max(least, -(-line.shape[1] // multiple) * multiple) - line.shape[1]
    return np.pad(line, ((0, 0), (0, spare), (0, 0)), "edge")


def _line(session: Session, pieces: Sequence[str], file: str) -> Answer:
    [(low, high, multiple)] = session.dimensions.values()
    picture, rows = read_picture(file), int(session.inputs[0].shape[1])
    if rows * picture.width > high * picture.height:
        fact = f"is over {high / rows:g} times as wide as high, more than the model reads"
        raise UsageError(file, fact, "Cut the line into parts")
    line = line_of(picture, rows, high, low, multiple)
    logits = next(iter(session.run({"picture": line[None]}).values()))[0]
    text = "".join(pieces[token] for token in ctc_tokens(logits))
    return Answer((text,), {"text": text})


def _boxes(
    folder: Path, head: uses.BoxesHead, files: Sequence[str], threads: int | None
) -> list[Answer]:
    """Find boxes; reduce a picture whose scales are too large for the first program."""
    results = []
    with ExitStack() as stack:
        sessions = {n: stack.enter_context(Session(folder, n, threads)) for n in head.programs}
        sides = min(high for _, high, _ in sessions[head.proposals].dimensions.values())
        calls = {name: session.run for name, session in sessions.items()}
        for file in files:
            most = (sides - 1) * head.smallest / LEAST_SIDE
            picture, factor = _reduced(read_picture(file), most)
            found = find_boxes(np.asarray(picture), head, calls).tolist()
            rows = [
                {"box": [round(n / factor, 1) for n in box], "score": score}
                for *box, score in found
            ]
            lines = [f"{', '.join(f'{n:.0f}' for n in r['box'])} {r['score']:.2f}" for r in rows]
            results.append(Answer(tuple(lines) or ("nothing",), {"boxes": rows}))
    return results


def draw(file: str, answer: Answer, target: Path) -> None:
    """Write a picture with the boxes of an answer; raise UsageError if it has none."""
    if "boxes" not in answer.fields:
        raise UsageError("run", "--picture is for models that find boxes", "Leave it out")
    picture, pencil = read_picture(file), _library("PIL.ImageDraw", "pictures")
    lines = pencil.Draw(picture)
    for row in answer.fields["boxes"]:
        lines.rectangle(row["box"], outline=(255, 0, 0), width=max(2, max(picture.size) // 200))
    try:
        picture.save(target)
    except ValueError as error:
        fact = f"cannot be written as a picture ({error})"
        raise UsageError(str(target), fact, "Name it .png or .jpg") from error


def _stretches(folder: Path, head: uses.StretchesHead, file: str, threads: int | None) -> Answer:
    with open_audio(Path(file)) as recording:
        program, rate = _nearest(head, recording.rate)
        with Session(folder, program, threads) as session:
            size = int(session.inputs[0].shape[1])
            parts = blocks(at_rate(recording, rate), size, size)
            scores = [float(_first(session.run({"samples": part}))[0]) for part, _ in parts]
        last = recording.seconds or len(scores) * size / rate
    spans = stretches(scores, head, size / rate, last)
    rows = [{"start": round(low, 3), "end": round(high, 3)} for low, high in spans]
    shown = tuple(f"{low:.2f} to {high:.2f} s" for low, high in spans)
    return Answer(shown or ("nothing",), {"stretches": rows})


def _sentences(
    session: Session, head: uses.SimilarityHead, words: Sequence[str], texts: Sequence[str]
) -> list[NDArray[np.float64]]:
    pieces = {piece: number for number, piece in enumerate(words)}
    tokenizer, results = _tokenizer(pieces), []
    for text in texts:
        if any("\ud800" <= letter <= "\udfff" for letter in text):  # from bytes that are not UTF-8
            raise UsageError(repr(text), "is not text in UTF-8", "Give it in UTF-8")
        inner = tokenizer.encode(text).ids[: head.most - 2]
        if not inner:
            raise UsageError(repr(text), "has no word", "Give a sentence")
        tokens = np.array([[pieces["[CLS]"], *inner, pieces["[SEP]"]]], np.int64)
        results.append(_first(session.run({"tokens": tokens})))
    return results


def _compared(embeddings: Sequence[NDArray[np.float64]]) -> list[Answer]:
    """Return the cosines between the first of embeddings of length 1 and each of the others."""
    if len(embeddings) < 2:  # noqa: PLR2004 - one, and another to compare
        raise UsageError("run", "one input is like itself", "Give two, or more")
    cosines = [float(embeddings[0] @ other) for other in embeddings[1:]]
    return [Answer((), {}), *(Answer((f"{c:.2f}",), {"similarity": round(c, 6)}) for c in cosines)]


def _voice(session: Session, head: uses.VoicesHead, file: str) -> NDArray[np.float64]:
    results = list["NDArray[np.float64]"]()
    for block, count in _overlapping(session, head, file):
        if not results or count >= head.coverage * block.size:
            results.append(_first(session.run({"samples": block})))
    mean = np.mean(results, axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def _pitch(session: Session, head: uses.PitchHead, file: str) -> Answer:
    """Return hertz and confidence of every frame, and lines for the confident ones."""
    frames = list[tuple[float, float]]()
    for block, count in _overlapping(session, head, file):
        hertz, confidence = (v[0] for v in session.run({"samples": block}).values())
        last = (count - head.margin) * head.frames // head.hop + 1
        last = max(0, min(last, head.frames))
        frames += zip(hertz[:last].tolist(), confidence[:last].tolist(), strict=True)
    step = head.hop / head.frames / head.rate
    rows = [
        {"start": round(n * step, 4), "hertz": round(hertz, 2), "confidence": round(sure, 4)}
        for n, (hertz, sure) in enumerate(frames)
    ]
    shown = [
        f"{r['start']:.2f} s {r['hertz']:.1f} Hz" for r in rows if r["confidence"] > head.least
    ]
    return Answer(tuple(shown) or ("nothing",), {"pitch": rows})


def _overlapping(
    session: Session, head: uses.PitchHead | uses.VoicesHead, file: str
) -> Iterator[tuple[NDArray[np.float32], int]]:
    with open_audio(Path(file)) as recording:
        pieces = at_rate(recording, head.rate)
        yield from blocks(pieces, int(session.inputs[0].shape[1]), head.hop, head.margin)


def blocks(
    pieces: Iterable[NDArray[np.float32]], size: int, hop: int, margin: int = 0
) -> Iterator[tuple[NDArray[np.float32], int]]:
    """Yield blocks (1, size), one every `hop` samples, with the number of samples in each.

    The first begins with `margin` zeros, and short blocks are padded with zeros. Every later block
    begins at least `margin` samples, and at least one, before the end.
    """
    held, first = np.zeros(margin, np.float32), True
    for piece in pieces:
        held = np.concatenate([held, piece])
        while len(held) >= max(size, hop):
            yield held[None, :size], size
            held, first = held[hop:], False
    while first or len(held) >= max(margin, 1):
        block = held[:size]
        yield np.pad(block, (0, size - len(block)))[None], len(block)
        held, first = held[hop:], False


def _borders(session: Session, head: uses.BordersHead, file: str) -> Answer:
    count, high, wide = (int(n) for n in session.inputs[0].shape[1:4])
    frames = np.stack([*film_frames(Path(file), high, wide)])
    half, quarter = (count + 1) // 2, count // 4
    padding = (quarter, count - half - quarter + -len(frames) % half)
    padded = np.pad(frames, (padding, (0, 0), (0, 0), (0, 0)), "edge")
    scores = list[float]()
    for start in range(0, len(padded) - count + 1, half):
        found = session.run({"frames": padded[None, start : start + count]})
        scores += _first(found)[quarter : quarter + half, 0].tolist()
    ends, start = [score > head.threshold for score in scores[: len(frames)]], 0
    shots = list[tuple[int, int]]()
    for number, (before, now) in enumerate(zip([False, *ends], ends, strict=False)):
        if now and not before:
            shots.append((start, number))
        if before and not now:
            start = number
    if not ends[-1]:
        shots.append((start, len(ends) - 1))
    rows = [{"first": a, "last": b} for a, b in shots]
    return Answer(tuple(f"frames {r['first']} to {r['last']}" for r in rows), {"shots": rows})


def film_frames(file: Path, high: int, wide: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of a film as RGB (high, wide, 3); UsageError if PyAV cannot read any."""
    library, frame = _library("av", "films"), None
    try:
        with library.open(str(file)) as film:
            for frame in film.decode(video=0):
                small = frame.reformat(wide, high, "rgb24", interpolation="BICUBIC")
                yield small.to_ndarray()
        if frame is None:
            raise IndexError("it has no frames")  # noqa: TRY301
    except (OSError, IndexError, library.FFmpegError) as error:
        raise UsageError(str(file), f"cannot be read as a film ({error})", "Check it") from error


def _tokenizer(pieces: dict[str, int]) -> Any:
    library = _library("tokenizers", "text")
    tokenizer = library.Tokenizer(library.models.WordPiece(pieces, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([name for name in _SPECIAL if name in pieces])
    return tokenizer


def _nearest(head: uses.StretchesHead, rate: int) -> tuple[str, int]:
    """Return the program with the highest rate up to the recording's, or with the lowest."""
    ordered = sorted(head.programs.items(), key=lambda pair: pair[1])
    return next((p for p in reversed(ordered) if p[1] <= rate), ordered[0])


def stretches(
    scores: Sequence[float], head: uses.StretchesHead, seconds: float, last: float
) -> list[tuple[float, float]]:
    """Return starts and ends, at most `last`, from scores of blocks; see `StretchesHead`."""
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
