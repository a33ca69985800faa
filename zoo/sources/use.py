"""Use of an entry: data of its accuracy gate, and labels or tokens for its bundle.

Labels and vocabularies go into the bundle's recipe (`menagerie.speech.recipe`), which `menagerie
run` follows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from menagerie.speech.audio import open_audio
from menagerie.speech.recipe import Recipe
from menagerie.steps import film_frames, line_of, read_picture
from menagerie.typed_json import Malformed, check, plain
from zoo.errors import SourceError
from zoo.sources.checkpoint import downloads, whole
from zoo.sources.context import Context, reading, resolve_inside
from zoo.sources.package import unpack
from zoo.sources.transformers import use_pieces
from zoo.spec import (
    AccuracyGate,
    FilmGate,
    LabelsUse,
    ModelSpec,
    PictureGate,
    RecordingGate,
    SimilarityUse,
    SourceSpec,
    TextUse,
    UseSpec,
)


def gate_data(gate: AccuracyGate, use: UseSpec | None, context: Context) -> Path:
    """Return the accuracy gate's safetensors, beside the manifest or made from packages' files.

    The alphabet of `use` maps texts of lines to numbers. Raise SourceError if a file cannot be
    fetched, read or written.
    """
    if gate.data is not None:
        return resolve_inside(gate.data, context)
    made = gate.pictures or gate.recording or gate.film
    alphabet = use.alphabet if isinstance(use, TextUse) else ""
    digest = hashlib.sha256(f"3 {made!r} {alphabet!r}".encode())
    if reference := getattr(made, "reference", None):
        digest.update(resolve_inside(reference, context).read_bytes())
    kept = downloads() / f"gate-{digest.hexdigest()[:24]}.safetensors"
    if not kept.exists():
        with reading("data of its accuracy gate", context.model, "Correct the entry's `accuracy`"):
            if gate.recording is not None:
                tensors = _recording(gate.recording, context)
            elif gate.film is not None:
                tensors = _film(gate.film, context)
            elif gate.pictures is not None:
                tensors = _pictures(gate.pictures, alphabet, context)
        with whole(kept, context.model) as part:
            part.write_bytes(save(tensors))
    return kept


def calibration_data(spec: ModelSpec, context: Context) -> Path:
    """Return the file of an entry's calibration samples; raise SourceError if it is missing."""
    if spec.calibrated_by_gate and spec.accuracy is not None:
        return gate_data(spec.accuracy, spec.use, context)
    return resolve_inside(spec.calibration, context)


def _pictures(gate: PictureGate, alphabet: str, context: Context) -> dict[str, Tensor]:
    from PIL import Image, ImageOps

    rows, labels = [], []
    for package, listed in ((p, listed) for p in gate.packages for listed in p.pictures):
        picture = read_picture(str(unpack(package, listed, context.model))).crop(listed.box)
        if gate.wide:
            rows.append(line_of(picture, gate.side, gate.wide, gate.wide))
            labels.append([alphabet.index(character) + 1 for character in listed.text])
        else:
            square = (gate.side, gate.side)
            rows.append(np.array(ImageOps.fit(picture, square, Image.Resampling.BOX)))
            labels.append([listed.label])
    longest = max(map(len, labels))
    filled = torch.tensor([row + [-1] * (longest - len(row)) for row in labels])
    pictures = torch.from_numpy(np.stack(rows)).to(getattr(torch, gate.dtype.value))
    return {"picture": pictures, "labels": filled if gate.wide else filled[:, 0]}


def _recording(gate: RecordingGate, context: Context) -> dict[str, Tensor]:
    """Cut a recording into blocks, with the labels that `RecordingGate` describes."""
    with open_audio(unpack(gate.package, gate.sound, context.model)) as recording:
        samples, rate = np.concatenate(list(recording.blocks)), recording.rate
    hop = gate.hop or gate.block
    starts = np.arange(0, len(samples) - gate.block + 1, hop)[: gate.most]
    if gate.speakers is None:
        labels: NDArray[Any] = _numbers(str(gate.reference), context)
        starts = starts[: len(labels)]
    else:
        path = unpack(gate.package, gate.speakers, context.model)
        fields = map(str.split, path.read_text("utf-8").splitlines())
        lines = [s for s in fields if s and s[0] == "SPEAKER"]
        middles = (starts + gate.block / 2) / rate
        talk = np.array([
            [float(s[3]) <= m < float(s[3]) + float(s[4]) for s in lines] for m in middles
        ])  # fmt: skip
        labels = np.asarray(talk.any(axis=1), np.int64)
        if gate.who:
            names = sorted({s[7] for s in lines})
            alone = talk.sum(axis=1) == 1
            numbers = np.array([names.index(s[7]) for s in lines])
            starts = starts[alone]
            labels = np.asarray(numbers[talk.argmax(axis=1)][alone], np.int64)
    blocks = np.stack([samples[start : start + gate.block] for start in starts])
    return {"samples": torch.from_numpy(blocks), "labels": torch.from_numpy(labels[: len(blocks)])}


def _film(gate: FilmGate, context: Context) -> dict[str, Tensor]:
    """Cut a film into windows; label 1 marks the frames at which shots end."""
    path = unpack(gate.package, gate.film, context.model)
    frames = np.stack([*islice(film_frames(path, *gate.size), gate.window * gate.most)])
    count = len(frames) // gate.window
    windows = frames[: count * gate.window].reshape(count, gate.window, *frames.shape[1:])
    labels = np.zeros(count * gate.window, np.int64)
    ends = _numbers(gate.reference, context).astype(np.int64).ravel()
    labels[ends[ends < len(labels)]] = 1
    by_window = torch.from_numpy(labels).view(count, gate.window)
    return {"frames": torch.from_numpy(windows), "labels": by_window}


def _numbers(reference: str, context: Context) -> NDArray[np.float32]:
    with reading(reference, context.model, "Give a line of numbers for each block"):
        return np.loadtxt(resolve_inside(reference, context), np.float32, ndmin=2)


def use_recipe(use: UseSpec, source: SourceSpec, context: Context) -> Recipe:
    """Return the bundle's recipe for an entry that names a use.

    Raise SourceError if labels or tokens cannot be read, or the runtime would refuse the recipe.
    """
    ours = {"labels", "numbered", "alphabet"}
    head = {name: value for name, value in plain(use).items() if name not in ours}
    pieces: Sequence[str] = [use.kind]
    if isinstance(use, SimilarityUse):
        pieces = use_pieces(use.numbered, source, context)
    if isinstance(use, LabelsUse):
        with reading(use.labels, context.model, "Give a text file in UTF-8, a label on each line"):
            pieces = resolve_inside(use.labels, context).read_text("utf-8").splitlines()
    if isinstance(use, TextUse):
        pieces = ["", *use.alphabet]
    kind = "wordpiece" if isinstance(use, SimilarityUse) else "plain"
    fields = {"heads": {use.kind: head}, "vocabulary": {"kind": kind, "pieces": [*pieces]}}
    try:
        found: Recipe = check(Recipe, json.loads(json.dumps(fields)))
    except Malformed as error:
        raise SourceError(context.model, str(error), "Correct the entry's `use`") from None
    return found
