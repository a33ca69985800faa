"""Train `spoken_digits`: `python tests/zoo/models/train_spoken_digits.py FOLDER --threads 1`.

Training starts from the committed weights (or `--start`) and writes new ones into FOLDER, which
also keeps the speech, made once, and a checkpoint from which an interrupted training goes on.
Lessons are scenes: utterances by several voices, each on its way through a room, a telephone, or
noise, at its own level, with pauses of up to 3 s. It takes `apt-get install espeak-ng flite` and
`pip install onnxruntime`.

The committed weights were made so from those of commit 0d82109c, in 1300 steps whose number, and so
the rate, was changed underway (2000; 1600 from step 500; 1300 from 700); the first 250 lacked
Kokoro. So a run makes others. 0d82109c has the script of the training before.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import soxr
import torch
from safetensors.torch import load_file, save_file
from scipy import fft
from torch import Tensor, nn
from torch.optim import swa_utils

from zoo.manifest import OUR_MODELS
from zoo.models.builders.parakeet import spoken_digits
from zoo.models.torchvision_operators import torchvision_operators

sys.path.insert(0, str(Path(__file__).parent))

import digit_espeak
import digit_networks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Signal = NDArray[np.float32]

with torchvision_operators():
    from transformers.loss.loss_tdt import tdt_loss

_COMMITTED = OUR_MODELS / "spoken_digits" / "spoken_digits.safetensors"
_RATE = 16_000
_BLANK, _DURATIONS = 10, [0, 1, 2, 3, 4]
_FRAME = 1280  # samples of a frame of the encoder
_STEPS, _PEAK, _WARM = 1300, 8e-4, 60  # of the learning rate, which falls linearly after the warmth
_AVERAGED, _EVERY = 0.25, 10  # the weights of every so manieth step of this last part are averaged
_SECONDS = 30.0  # of speech in a batch, at least
_SCENES = ((3.0, 0.3), (7.0, 0.3), (12.0, 0.18), (19.0, 0.22))  # seconds, and how often
_STRETCH = 1.25  # how much faster and higher, or slower and lower, a recording may be played
_WARP = 0.15  # how far the frequencies of a scene are moved, as a part
_BOTH = 3  # every third lesson teaches the TDT head, too, whose loss takes as long as the rest
_SPREADS = (0.0, 2.5, 4.5, 6.5)  # how far levels within a scene are apart: e to this power
_AUDIBLE = 6.9  # how far below full scale an utterance may be in a file of 16 bits, as a power of e
_SAVE_EVERY = 50
_NETWORKS = {"flite": 500, "hibari": 300, "joe": 200, "kokoro": 240}  # utterances
_ESPEAK = {7: 6000, 1: 2000}  # of at most so many digits

# How often what happens to speech on its way.
_ROOM, _TELEPHONE, _NOISE, _CLIPPED, _OFFSET, _NARROW, _FLOOR, _SILENT = (
    0.5, 0.15, 0.8, 0.1, 0.1, 0.3, 0.3, 0.08,
)  # fmt: skip


class Speech(NamedTuple):
    """A recording, (samples,) at 16 kHz, and the digits that it says."""

    samples: Signal
    digits: tuple[int, ...]


def gather(folder: Path) -> dict[str, list[Speech]]:
    """All utterances by what says them, made once and kept in `folder` as float16."""
    packages = folder / "packages"
    digit_networks.fetch(packages)
    networks = {name: functools.partial(_by_network, name, packages) for name in _NETWORKS}
    makers = {"espeak": _by_espeak, **networks}
    return {name: _kept(folder / f"{name}.npz", make) for name, make in makers.items()}


def _kept(file: Path, make: Callable[[], list[Speech]]) -> list[Speech]:
    if not file.exists():
        spoken = make()
        np.savez(
            file,
            samples=np.concatenate([one.samples for one in spoken]).astype(np.float16),
            lengths=np.array([len(one.samples) for one in spoken]),
            digits=np.array(["".join(map(str, one.digits)) for one in spoken]),
        )
    with np.load(file) as data:
        parts = np.split(data["samples"], np.cumsum(data["lengths"])[:-1])
        texts = [tuple(map(int, str(text))) for text in data["digits"]]
    return [Speech(*pair) for pair in zip(parts, texts, strict=True)]


def _by_espeak() -> list[Speech]:
    rng = np.random.default_rng([0, 0])
    wanted = [digit_espeak.utterance(rng, most) for most, n in _ESPEAK.items() for _ in range(n)]
    with ThreadPoolExecutor(2) as pool:
        spoken = list(pool.map(digit_espeak.say, wanted))
    return [Speech(sound, one.digits) for sound, one in zip(spoken, wanted, strict=True)]


def _by_network(speaker: str, packages: Path) -> list[Speech]:
    rng, made = np.random.default_rng(1), []
    for _ in range(_NETWORKS[speaker]):
        digits = tuple(int(digit) for digit in rng.integers(0, 10, rng.integers(1, 8)))
        sound = soxr.resample(*digit_networks.say(rng, digits, speaker, packages), _RATE)
        sound = _loudest(sound, 1.0)
        loud = np.flatnonzero(np.abs(sound) > 0.01)
        made.append(Speech(sound[max(0, loud[0] - 800) : loud[-1] + 1600], digits))
    return made


class Scenes:
    """What is heard, by chance.

    Args:
        rng: where chance comes from.
        speech: utterances by what says them.
    """

    def __init__(self, rng: np.random.Generator, speech: dict[str, list[Speech]]) -> None:
        self._rng, self._sets = rng, list(speech.values())
        # A network has few voices; espeak-ng as many as utterances.
        odds = [12.0 if name == "espeak" else len(one) ** 0.5 / 5 for name, one in speech.items()]
        self._odds = np.array(odds) / sum(odds)

    def lesson(self) -> tuple[Tensor, ...]:
        """Padded scenes, their lengths, digits, and numbers of digits."""
        sizes, odds = zip(*_SCENES, strict=True)
        seconds = float(self._rng.choice(sizes, p=odds))
        scenes = [self.scene(seconds) for _ in range(math.ceil(_SECONDS / seconds))]
        longest = max(len(one.samples) for one in scenes)
        samples = np.zeros((len(scenes), -(-longest // _FRAME) * _FRAME), np.float32)
        targets = np.zeros((len(scenes), max(1, *(len(one.digits) for one in scenes))), np.int64)
        for row, one in enumerate(scenes):
            samples[row, : len(one.samples)] = one.samples
            targets[row, : len(one.digits)] = one.digits
        lengths = torch.tensor([len(one.samples) for one in scenes])
        said = torch.tensor([len(one.digits) for one in scenes])
        return torch.from_numpy(samples), lengths, torch.from_numpy(targets), said

    def scene(self, seconds: float) -> Speech:
        """Utterances by several voices, at most about so long."""
        rng = self._rng
        if rng.random() < _SILENT:
            level = np.float32(np.exp(rng.uniform(np.log(1e-5), np.log(0.3))))
            return Speech(self._hiss(int(rng.uniform(0.2, 0.5) * seconds * _RATE)) * level, ())
        one_way, near, singles = rng.random() < 0.3, rng.random() < 0.5, rng.random() < 0.3
        longest = seconds * rng.uniform(0.6, 1.0) * _RATE
        # One noise over all of them would hide those that are far below it.
        spread, quietest = 1.0 if one_way else rng.choice(_SPREADS), 0.0
        parts: list[Signal] = []
        digits: list[int] = []
        length, kind = 0, self._kind()
        while length < longest:
            kind = self._kind() if rng.random() < 0.3 else kind
            one = self._sets[kind][rng.integers(len(self._sets[kind]))]
            if singles and len(one.digits) > 2 and rng.random() < 0.9:
                continue
            sound = self._stretched(one.samples.astype(np.float32))
            if length and length + len(sound) > (seconds + 0.9) * _RATE:
                break
            sound = sound if one_way else _loudest(self._heard(sound, 0.3), 1.0)
            gap = self._gap(seconds, near, first=not length)
            below = rng.uniform(0.0, spread)
            quietest = max(quietest, below)
            parts += [gap, sound * np.float32(np.exp(-below))]
            digits += one.digits
            length += len(gap) + len(sound)
        whole = np.concatenate(parts)
        heard = self._heard(whole, 0.2) if one_way else whole
        return Speech(self._recorded(heard, quietest), tuple(digits))

    def _kind(self) -> int:
        return int(self._rng.choice(len(self._sets), p=self._odds))

    def _gap(self, seconds: float, near: bool, *, first: bool) -> Signal:
        rng = self._rng
        pause = 0.0 if rng.random() < 0.3 else rng.uniform(0.0, 0.3 if near else 3.0)
        longest = rng.uniform(0.0, 0.08 if near else 0.4) if first else seconds / 4
        return np.zeros(int(min(pause, longest) * _RATE), np.float32)

    def _recorded(self, signal: Signal, quietest: float) -> Signal:
        """All of it through one microphone, to one file, where the quietest is audible, too."""
        rng = self._rng
        if rng.random() < _FLOOR:  # goes on through the pauses
            floor = np.exp(rng.uniform(-10.0, -4.5) - quietest)
            signal = signal + self._hiss(len(signal)) * np.float32(floor)
        if rng.random() < _NARROW:
            signal = _between(signal, 0.0, rng.uniform(3000, 7000))
        signal = _loudest(signal, np.exp(-rng.uniform(0.0, min(3.5, _AUDIBLE - quietest))))
        if rng.random() < 0.5:
            signal = np.round(signal * 32767) / 32768
        return signal.astype(np.float32)

    def _heard(self, signal: Signal, pause: float) -> Signal:
        """As a microphone may record it, with pauses of at most so many seconds around it."""
        rng = self._rng
        signal = np.pad(signal, [int(rng.uniform(0.0, pause) * _RATE) for _ in range(2)])
        if rng.random() < _ROOM:
            signal = self._in_a_room(signal)
        if rng.random() < _TELEPHONE:
            signal = _between(signal, 300, 3400)
        if rng.random() < _NOISE:
            noise = self._hiss(len(signal))
            ratio = np.linalg.norm(signal) / max(float(np.linalg.norm(noise)), 1e-9)
            signal = signal + noise * np.float32(ratio * 10 ** (-rng.uniform(5.0, 35.0) / 20))
        signal = _loudest(signal, 1.0)
        if rng.random() < _CLIPPED:
            signal = np.clip(signal * rng.uniform(1.5, 6.0), -1.0, 1.0)
        signal = signal * np.exp(rng.uniform(np.log(0.02), np.log(0.95)))
        if rng.random() < _OFFSET:
            signal = signal + rng.uniform(-0.05, 0.05)
        return np.asarray(signal, np.float32)

    def _in_a_room(self, signal: Signal) -> Signal:
        """With a decaying tail of noise after the direct sound."""
        rng = self._rng
        decay = rng.uniform(0.1, 0.6)  # seconds until the echo is 60 dB lower
        times = np.arange(int(decay * _RATE)) / _RATE
        echo = rng.standard_normal(len(times)) * np.exp(-6.9 * times / decay)
        echo *= 10 ** (-rng.uniform(0.0, 15.0) / 20) / np.linalg.norm(echo)
        echo[0] = 1.0
        size = fft.next_fast_len(len(signal) + len(echo), real=True)
        spectrum = fft.rfft(signal, size) * fft.rfft(echo.astype(np.float32), size)
        wet: Signal = fft.irfft(spectrum, size)[: len(signal)]
        return wet

    def _hiss(self, samples: int) -> Signal:
        """Noise, its power falling with frequency by 0 (white) to 2 (brown), of deviation 1."""
        size = fft.next_fast_len(samples, real=True)
        spectrum = fft.rfft(self._rng.standard_normal(size, np.float32))
        slope = np.float32(self._rng.uniform(0.0, 1.0))  # of amplitude; power falls twice as fast
        frequency = np.maximum(np.arange(len(spectrum), dtype=np.float32), 1.0)
        shaped: Signal = fft.irfft(spectrum * frequency**-slope, size)[:samples]
        return np.divide(shaped, max(float(shaped.std()), 1e-9), dtype=np.float32)

    def _stretched(self, samples: Signal) -> Signal:
        """Played faster and higher or slower and lower."""
        by = math.exp(self._rng.uniform(-1.0, 1.0) * math.log(_STRETCH))
        played: Signal = soxr.resample(samples, _RATE, _RATE * by, "LQ")
        return played


def _loudest(signal: Signal, level: float) -> Signal:
    return np.asarray(signal * (level / max(float(np.abs(signal).max()), 1e-6)), np.float32)


def _between(signal: Signal, low: float, high: float) -> Signal:
    """What is between two frequencies."""
    size = fft.next_fast_len(len(signal), real=True)
    spectrum, frequency = fft.rfft(signal, size), fft.rfftfreq(size, 1 / _RATE)
    spectrum[(frequency < low) | (frequency > high)] = 0
    narrow: Signal = fft.irfft(spectrum, size)[: len(signal)]
    return np.asarray(narrow, np.float32)


def _loss(
    model: nn.ModuleDict,
    samples: Tensor,
    lengths: Tensor,
    targets: Tensor,
    said: Tensor,
    *,
    both: bool,
) -> Tensor:
    """Of the CTC head, or of both, by digit."""
    listen, emit = model["listen"], model["emit"]
    with torch.no_grad():
        features, mask = listen.log_mel(samples, lengths)
        features = _with_gaps(_warped(features))
    hidden = listen.encoder(features, attention_mask=mask).last_hidden_state
    frames = -(-mask.sum(1) // 8)
    scores = listen.ctc_head(hidden).transpose(0, 1).log_softmax(-1)
    ctc = nn.functional.ctc_loss(scores, targets, frames, said, _BLANK, "none", zero_infinity=True)
    if not both:
        return (ctc / (said + 1)).mean()
    start = torch.full((len(frames), 1), _BLANK)
    spoken, _ = emit.decoder.lstm(emit.decoder.embedding(torch.cat([start, targets], dim=1)))
    predicted = emit.decoder.decoder_projector(spoken)
    joint = emit.joint(predicted[:, None], listen.projector(hidden)[:, :, None])
    tdt = tdt_loss(
        joint[..., : _BLANK + 1], joint[..., _BLANK + 1 :], targets, frames, said, _BLANK,
        _DURATIONS, reduction="none",
    )  # fmt: skip
    sums: Tensor = 0.4 * ctc + 0.6 * torch.where(torch.isfinite(tdt), tdt, 0.0)
    return (sums / (said + 1)).mean()


def _warped(features: Tensor) -> Tensor:
    """Each scene's frequencies moved up or down, as by a shorter or a longer throat."""
    rows, _, bins = features.shape
    by = 1.0 + (torch.rand(rows, 1) * 2 - 1) * _WARP
    place = (torch.arange(bins) * by).clamp(0, bins - 1.001)
    low, part = place.long()[:, None], place.frac()[:, None]
    index = low.expand(features.shape)
    return features.gather(2, index) * (1 - part) + features.gather(2, index + 1) * part


def _with_gaps(features: Tensor) -> Tensor:
    """Features with two bands of frequencies and a moment of time set to their mean, 0."""
    frames, bins = features.shape[1:]
    for row in features:
        for _ in range(2):
            band = int(torch.randint(14, ()))
            low = int(torch.randint(bins - band, ()))
            row[:, low : low + band] = 0
        moment = int(torch.randint(8, ()))
        start = int(torch.randint(frames - moment, ()))
        row[start : start + moment] = 0
    return features


def train(folder: Path, start: Path, steps: int, speech: dict[str, list[Speech]]) -> nn.Module:
    """Train from `start`, or from `folder`'s checkpoint, and return the last part's mean.

    Such a mean errs less than the weights of the last step.
    """
    model = spoken_digits().train()
    model.load_state_dict(load_file(start))
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=3e-2)
    mean = swa_utils.AveragedModel(model, use_buffers=True)
    kept, done = folder / "checkpoint.pt", 0
    if kept.exists():
        states = torch.load(kept, weights_only=True)
        model.load_state_dict(states["model"])
        optimiser.load_state_dict(states["optimiser"])
        mean.load_state_dict(states["mean"])
        done = states["step"]
    torch.manual_seed(done)
    scenes, losses = Scenes(np.random.default_rng([0, done]), speech), []
    for step in range(done, steps):
        for group in optimiser.param_groups:
            group["lr"] = _PEAK * min((step + 1) / _WARM, (steps - step) / steps)
        loss = _loss(model, *scenes.lesson(), both=step % _BOTH == 0)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
        if step >= (1 - _AVERAGED) * steps and step % _EVERY == 0:
            mean.update_parameters(model)
        if (step + 1) % _SAVE_EVERY == 0:
            _say(f"step {step + 1} of {steps}: loss {np.mean(losses[-_SAVE_EVERY:]):.3f}")
            states = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
            states |= {"mean": mean.state_dict(), "step": step + 1}
            torch.save(states, folder / "checkpoint.new")
            (folder / "checkpoint.new").rename(kept)
    return mean.module


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Make the speech, train, and write the weights into the folder named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", type=Path, default=_COMMITTED)
    parser.add_argument("--steps", type=int, default=_STEPS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    model = train(options.folder, options.start, options.steps, gather(options.folder))
    weights = options.folder / "spoken_digits.safetensors"
    save_file(model.state_dict(), weights)
    _say(f"sha256: {hashlib.sha256(weights.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
