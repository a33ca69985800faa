"""Reader of the tensors in CTranslate2's model.bin, in its `Model`'s format; runs no code.

The file is little-endian: a version, the specification's name and revision; the name, shape,
type and bytes of each tensor; then aliases of names.
"""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from zoo.errors import SourceRefused
from zoo.sources.context import reading

_VERSION, _SPECIFICATION = 6, "WhisperSpec"
_TYPES = ("<f4", "i1", "<i2", "<i4", "<f2")
_QUANTISED = ("i1", "<i2")
# Names of transformers' modules by the part of a layer; several modules share one tensor.
_LAYER = {
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
_OUTSIDE = {
    "embeddings/weight": "embed_tokens.weight",
    "position_encodings/encodings": "embed_positions.weight",
}
_ENDINGS = {"gamma": "weight", "beta": "bias"}


def is_model(path: Path) -> bool:
    """Return whether a file begins like CTranslate2's files of Whisper, in any version."""
    begin = struct.pack("<H", len(_SPECIFICATION) + 1) + _SPECIFICATION.encode()
    with path.open("rb") as stream:
        return stream.read(4 + len(begin))[4:] == begin


def whisper_tensors(path: Path, model: str) -> dict[str, Tensor]:
    """Return Whisper's tensors as float32, by the names of `builders.recognisers.parts`.

    Raise SourceRefused if they are quantised, SourceError if the file cannot be read.
    """
    found: dict[str, Tensor] = {}
    step = "Name safetensors or a state dict instead"
    with reading(path.name, model, step, " as CTranslate2's"), path.open("rb") as stream:
        for name, value in _read(stream).items():
            if value.dtype.str.lstrip("|") in _QUANTISED and value.ndim > 1:
                fact = f"{path.name} has integers for {name}: it is quantised"
                raise SourceRefused(model, fact, "Convert it with --quantization float16")
            if value.ndim and value.dtype.kind == "f":
                found |= _renamed(name, torch.from_numpy(value.astype(np.float32)))
    if (tokens := found.get("emit.decoder.embed_tokens.weight")) is not None:
        found["emit.head.weight"] = tokens
    return found


def _read(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """Return tensors by name; raise ValueError or struct.error if sizes do not agree."""

    def number(form: str) -> int:
        (value,) = struct.unpack(form, stream.read(struct.calcsize(form)))
        return int(value)

    def text() -> str:
        content = stream.read(size := number("<H"))
        if len(content) < size:
            raise ValueError("a name reaches beyond its end")
        return content[:-1].decode()

    if (version := number("<I")) != _VERSION:
        raise ValueError(f"its version is {version}, not {_VERSION}")
    text()
    number("<I")  # the specification's revision
    tensors = dict[str, np.ndarray]()
    for _ in range(number("<I")):
        name = text()
        shape = [number("<I") for _ in range(number("<B"))]
        dtype, size = np.dtype(_TYPES[number("<B")]), number("<I")
        if name in tensors or math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{name!r} occurs twice, or has {size} bytes for shape {shape}")
        tensors[name] = np.frombuffer(stream.read(size), dtype).reshape(shape)
    return tensors


def _renamed(name: str, value: Tensor) -> dict[str, Tensor]:
    """Return a tensor's counterparts in transformers, by the names of `parts`."""
    side, _, rest = name.partition("/")
    part = "listen.encoder" if side == "encoder" else "emit.decoder"
    layer = re.fullmatch(r"layer_(\d+)/(.+)/(\w+)", rest)
    if layer is None:
        stem, _, ending = rest.rpartition("/")
        known = _OUTSIDE.get(rest, f"{stem}.{_ENDINGS.get(ending, ending)}")
        return {f"{part}.{known}": value}
    number, ending = layer[1], _ENDINGS.get(layer[3], layer[3])
    modules = _LAYER[layer[2]] if layer[2] in _LAYER else (layer[2],)
    found = {}
    if len(value) % len(modules):
        raise ValueError(f"{name!r} has {len(value)} rows for {len(modules)} layers")
    for module, rows in zip(modules, value.chunk(len(modules)), strict=True):
        if module.endswith("k_proj") and ending == "bias":
            continue  # zeros: Whisper's keys have no bias
        found[f"{part}.layers.{number}.{module}.{ending}"] = rows
        if module in {"encoder_attn.k_proj", "encoder_attn.v_proj"}:
            own = "keys" if module.endswith("k_proj") else "values"
            found[f"listen.{own}.{number}.{ending}"] = rows
    return found
