"""Trains `spoken_digits`: `python -m zoo.models.spoken_digits.train [FOLDER]`.

Writes `spoken_digits.safetensors`, and a checkpoint after each part of the training, from which an
interrupted one goes on. The speech is espeak-ng's, made here and kept in the folder meanwhile, most
of it in voices made by chance. First the encoder learns with the CTC head alone, then with both
heads. Takes some 25 minutes of one processor, and 4 GB. Prints the word error rate on voices that
it never heard, and the sha256 for the entry.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import soxr
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from menagerie.speech.word_errors import distance
from zoo.models.builders.parakeet import BLANK, DURATIONS, SpokenDigits, spoken_digits
from zoo.models.spoken_digits.rooms import heard, noise
from zoo.models.spoken_digits.speakers import RATE, say, utterance
from zoo.models.torchvision_operators import torchvision_operators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

with torchvision_operators():
    from transformers.loss.loss_tdt import tdt_loss

__all__ = ["Speech", "train", "word_errors"]

_SEED = 0
_STEP = 1280  # samples of a frame of the encoder
_SHORT, _LONG = 10_000, 400  # strings of at most 7 and of at most 30 digits
_RATE = 1.2e-3  # the highest; from it the rate falls along a cosine that would reach 0 ...
_HORIZON = 8000  # ... in so many steps
_WARM, _TAIL = 160, 1500  # steps at the beginning and at the end: in a line from 0, and to 0
_STRETCH = 1.2  # how much faster and higher, or slower and lower, a recording may be played
_SAVE_EVERY = 100
_SILENCES = 0.5  # batches with a recording in which nothing is said


class Stage(NamedTuple):
    """A part of the training.

    Attributes:
        steps: how many.
        seconds: of speech in a batch.
        longest: strings of at most so many digits.
        quiet: whether nothing disturbs the speech.
        both: whether the TDT head learns too.
    """

    steps: int
    seconds: float
    longest: int
    quiet: bool
    both: bool


# Single digits first: with strings at once CTC says blank and nothing else for a long time.
_STAGES = (
    Stage(400, 16.0, 1, quiet=True, both=False),
    Stage(300, 16.0, 3, quiet=True, both=False),
    Stage(900, 28.0, 30, quiet=False, both=False),
    Stage(3400, 28.0, 30, quiet=False, both=True),
)


class Speech(NamedTuple):
    """A recording, (samples,) at 16 kHz, and the digits that it says."""

    samples: NDArray[np.float32]
    digits: tuple[int, ...]


class Batch(NamedTuple):
    """Padded recordings and their digits."""

    samples: Tensor
    lengths: Tensor
    targets: Tensor
    target_lengths: Tensor


def make_speech(folder: Path, short: int, long: int, *, held_out: bool = False) -> list[Speech]:
    """Clean speech, made once and kept in `folder` as float16."""
    kept = folder / f"{'held_out' if held_out else 'training'}_{short}_{long}.npz"
    if not kept.exists():
        rng = np.random.default_rng([_SEED, held_out])
        wanted = [utterance(rng, 7, held_out=held_out) for _ in range(short)]
        wanted += [utterance(rng, 30, held_out=held_out) for _ in range(long)]
        with ThreadPoolExecutor(2) as pool:
            spoken = list(pool.map(say, wanted))
        np.savez(
            kept,
            samples=np.concatenate(spoken).astype(np.float16),
            lengths=np.array([len(one) for one in spoken]),
            digits=np.array(["".join(map(str, one.digits)) for one in wanted]),
        )
    with np.load(kept) as data:
        parts = np.split(data["samples"].astype(np.float32), np.cumsum(data["lengths"])[:-1])
        texts = [tuple(int(digit) for digit in str(text)) for text in data["digits"]]
    return [Speech(*pair) for pair in zip(parts, texts, strict=True)]


def train(folder: Path, speech: list[Speech]) -> SpokenDigits:
    """Train from a fixed seed, going on from `folder`'s checkpoint if there is one."""
    torch.manual_seed(_SEED)
    model = spoken_digits().train()
    for layer in model.listen.encoder.modules():
        # transformers' deviation of 0.02 is for wide layers; here it would let nothing through.
        if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            layer.reset_parameters()
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=3e-2)
    total = sum(stage.steps for stage in _STAGES)
    kept, done = folder / "checkpoint.pt", 0
    if kept.exists():
        held = torch.load(kept, weights_only=True)
        model.load_state_dict(held["model"])
        optimiser.load_state_dict(held["optimiser"])
        done = held["step"]
    started, losses = time.monotonic(), []
    for step, batch, both in _lessons(np.random.default_rng([_SEED, done]), speech, done):
        for group in optimiser.param_groups:
            group["lr"] = _rate(step - 1, total)
        loss = _loss(model, batch, both=both)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
        if step % 20 == 0:
            seconds, busy = time.monotonic() - started, time.process_time()
            told = f"{np.median(losses[-20:]):.3f}, {seconds:.0f} s, processor {busy:.0f} s"
            _say(f"step {step} of {total}: loss {told}")
        if step % _SAVE_EVERY == 0:
            states = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
            torch.save({"step": step, **states}, kept)
    return model.eval()


def _rate(done: int, total: int) -> float:
    """The learning rate after so many of all steps."""
    if done < _WARM:
        return _RATE * (done + 1) / _WARM
    fallen = 0.5 + 0.5 * math.cos(math.pi * (done - _WARM) / (_HORIZON - _WARM))
    return _RATE * fallen * min(1.0, (total - done) / _TAIL)


def _lessons(
    rng: np.random.Generator, speech: list[Speech], done: int
) -> Iterator[tuple[int, Batch, bool]]:
    """The number of each step from `done` on, its batch, and whether both heads learn."""
    before = 0
    for stage in _STAGES:
        chosen = [one for one in speech if len(one.digits) <= stage.longest]
        batches = _batches(rng, chosen, stage)
        for step in range(max(done, before) + 1, before + stage.steps + 1):
            yield step, next(batches), stage.both
        before += stage.steps


def word_errors(model: SpokenDigits, speech: list[Speech]) -> tuple[float, float]:
    """Word error rates of the CTC head and of the TDT head."""
    model.eval()
    wrong, said = [0, 0], 0
    with torch.inference_mode():
        for one in speech:
            batch = _batch([one])
            results = model.listen(batch.samples, batch.lengths)
            frames = int(batch.lengths[0]) // _STEP + 1
            best = results["logits"][0, :frames].argmax(-1).tolist()
            ctc = [token for token, _ in itertools.groupby(best) if token != BLANK]
            tdt = _greedy(model, results["encoded"][0, :frames])
            for head, answer in enumerate((ctc, tdt)):
                wrong[head] += distance(answer, one.digits)
            said += len(one.digits)
    return wrong[0] / said, wrong[1] / said


def _batches(rng: np.random.Generator, speech: list[Speech], stage: Stage) -> Iterator[Batch]:
    """Batches of recordings of about one length, for ever, each time disturbed differently."""
    clean = [one.samples for one in speech]
    while True:
        jitter = rng.uniform(0.8, 1.25, len(speech))
        order = np.argsort([len(one.samples) * by for one, by in zip(speech, jitter, strict=True)])
        groups: list[list[int]] = [[]]
        for index in order:
            longest = max([len(speech[one].samples) for one in [*groups[-1], index]]) + 0.6 * RATE
            if (len(groups[-1]) + 1) * longest > stage.seconds * RATE:
                groups.append([])
            groups[-1].append(int(index))
        for chosen in rng.permutation(len(groups)):
            recordings = [speech[index] for index in groups[chosen]]
            if stage.quiet:
                yield _batch(recordings)
                continue
            recordings = [
                Speech(heard(rng, _stretched(rng, one.samples), clean), one.digits)
                for one in recordings
            ]
            if rng.random() < _SILENCES:
                silent = int(rng.uniform(0.2, 2.0) * RATE)
                level = np.exp(rng.uniform(np.log(1e-5), np.log(0.3)))
                recordings.append(Speech(noise(rng, silent) * np.float32(level), ()))
            yield _batch(recordings)


def _stretched(rng: np.random.Generator, samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Played faster and higher or slower and lower, by chance."""
    by = math.exp(rng.uniform(-1.0, 1.0) * math.log(_STRETCH))
    played: NDArray[np.float32] = soxr.resample(samples, RATE, RATE * by, "LQ")
    return played


def _batch(recordings: list[Speech]) -> Batch:
    longest = max(len(one.samples) for one in recordings)
    samples = np.zeros((len(recordings), -(-longest // _STEP) * _STEP), np.float32)
    targets = np.zeros((len(recordings), max(len(one.digits) for one in recordings)), np.int64)
    for row, one in enumerate(recordings):
        samples[row, : len(one.samples)] = one.samples
        targets[row, : len(one.digits)] = one.digits
    return Batch(
        torch.from_numpy(samples),
        torch.tensor([len(one.samples) for one in recordings]),
        torch.from_numpy(targets),
        torch.tensor([len(one.digits) for one in recordings]),
    )


def _loss(model: SpokenDigits, batch: Batch, *, both: bool) -> Tensor:
    listen = model.listen
    with torch.no_grad():
        features, mask = listen.log_mel(batch.samples, batch.lengths)
        features = _with_gaps(features)
    heads = listen.heads(listen.encoder(features, attention_mask=mask).last_hidden_state)
    frames = -(-mask.sum(1) // 8)
    scores = heads["logits"].transpose(0, 1).log_softmax(-1)
    loss: Tensor = nn.functional.ctc_loss(
        scores, batch.targets, frames, batch.target_lengths, BLANK, "none", zero_infinity=True
    )
    weights = 1.0 / (batch.target_lengths + 1)
    ctc = (loss * weights).mean()
    if not both:
        return ctc
    start = torch.full((len(frames), 1), BLANK)
    said, _ = model.emit.decoder.lstm(
        model.emit.decoder.embedding(torch.cat([start, batch.targets], dim=1))
    )
    predicted = model.emit.decoder.decoder_projector(said)
    joint = model.emit.joint(predicted[:, None], heads["encoded"][:, :, None])
    tdt = tdt_loss(
        joint[..., : BLANK + 1], joint[..., BLANK + 1 :], batch.targets, frames,
        batch.target_lengths, BLANK, list(DURATIONS), reduction="none",
    )  # fmt: skip
    possible = torch.isfinite(tdt)
    return 0.4 * ctc + 0.6 * (torch.where(possible, tdt, 0.0) * weights).mean()


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


def _greedy(model: SpokenDigits, encoded: Tensor) -> list[int]:
    """The TDT head's tokens, by the loop of `transformers.ParakeetForTDT.generate`."""
    layers, width = model.emit.decoder.lstm.num_layers, model.emit.decoder.lstm.hidden_size
    hidden = cell = torch.zeros(layers, 1, width)
    tokens: list[int] = []
    frame, last = 0, BLANK
    step = model.emit(torch.tensor([[last]]), hidden, cell, encoded[None])
    while frame < len(encoded) and len(tokens) < 10 * len(encoded):
        token = int(step["logits"][0, frame].argmax())
        duration = DURATIONS[int(step["durations"][0, frame].argmax())]
        frame += max(duration, 1) if token == BLANK else duration
        if token != BLANK:
            tokens.append(token)
            step = model.emit(torch.tensor([[token]]), step["hidden"], step["cell"], encoded[None])
    return tokens


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Train and write the weights beside this file, or into the folder named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    model = train(options.folder, make_speech(options.folder, _SHORT, _LONG))
    weights = options.folder / "spoken_digits.safetensors"
    save_file(model.state_dict(), weights)
    rng = np.random.default_rng([_SEED, 2])
    unheard = make_speech(options.folder, 150, 10, held_out=True)
    unheard = [Speech(heard(rng, one.samples, []), one.digits) for one in unheard]
    ctc, tdt = word_errors(model, unheard)
    _say(f"word error rate: CTC {ctc:.2%}, TDT {tdt:.2%}")
    _say(f"sha256: {hashlib.sha256(weights.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
