"""Speech from a recording to tokens: artifacts beside eager transformers, in turns.

    zoo convert parakeet_tdt_small whisper_tiny --random-weights 0
    python benchmarks/speech.py --models parakeet_tdt_small whisper_tiny --threads 1 2
    python benchmarks/speech.py --against onnxruntime   # pip install onnx onnxscript onnxruntime

Each contender sits in a process of its own and makes the tokens of one recording, features and
decoding loop included, when its turn comes: ours by the programs of the bundle, without torch;
transformers by its feature extractor and `generate`; ONNX Runtime by the same programs, exported
at the recording's very size, and our loop. A CTC entry that takes features is given them.

Of random weights a transcript means nothing, and Whisper's never ends: it is stopped after
`--tokens`, which is what half a minute of quick speech has. Where a contender says other tokens
than the artifact, its row says so. Memory is the most that its process held, loading included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from menagerie.figures import milliseconds, size
from menagerie.paths import home
from menagerie.timing import Partner, time_in_turns
from menagerie.validation.validate import clean_environment
from zoo.manifest import load_manifest
from zoo.store import open_store

if TYPE_CHECKING:
    from zoo.store import Store

_CONTENDER = Path(__file__).with_name("speech_contender.py")
_HELD_OUT = Path(__file__).parents[1] / "zoo/models/spoken_digits/held_out"
_RATE = 16_000
_FRAME = 1280  # samples of Parakeet's step; a recording is a multiple
_MODELS = ("parakeet_ctc_0_6b", "parakeet_tdt_0_6b_v3", "whisper_tiny", "whisper_base")


@dataclass(frozen=True)
class Row:
    """One contender with a number of threads."""

    model: str
    contender: str
    threads: int
    audio_seconds: float
    tokens: int
    as_artifact: bool  # whether its tokens equal the artifact's
    minimum_ms: float
    median_ms: float
    processor_ms: float | None
    real_time_factor: float  # median time over the recording's length
    of_eager: float  # by processor time with one thread, by medians with several
    peak_bytes: int


def measure(
    model: str, store: Store, threads: list[int], against: list[str], asked: argparse.Namespace
) -> list[Row]:
    """Return a row for each number of threads and contender, the artifact first.

    Raises:
        NotInStore: the model was not converted for the CPU.
        CalledProcessError: it cannot be exported as ONNX; what it printed says why.
    """
    kinds = ["artifact", "eager", *against]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store.pull(store.find(model, "cpu"), folder / "bundle")
        seconds = _prepare(model, folder, asked)
        if "onnxruntime" in kinds:
            subprocess.run(_command("onnx", model, 1, folder), check=True, stdout=sys.stderr)
        return [
            row
            for number in threads
            for row in _rows(_Case(model, number, folder, seconds), kinds, asked.seconds)
        ]


def _prepare(model: str, folder: Path, asked: argparse.Namespace) -> float:
    """Write the contenders' inputs; return the recording's length in seconds."""
    samples = _recording(asked.audio)
    np.save(folder / "samples.npy", samples)
    spec = load_manifest().spec(model)
    options = {"most_tokens": asked.tokens}
    if spec.speech is None:
        import torch

        from zoo.models.builders.parakeet import LogMel

        [bins] = [i.shape[2] for i in spec.programs[0].inputs if i.name == "input_features"]
        assert isinstance(bins, int)
        lengths = torch.tensor([len(samples)])
        features, mask = LogMel(bins)(torch.from_numpy(samples)[None], lengths)
        np.savez(folder / "features.npz", input_features=features, attention_mask=mask)
        options["blank"] = spec.source.config["vocab_size"] - 1
    (folder / "options.json").write_text(json.dumps(options))
    return len(samples) / _RATE


def _recording(seconds: float) -> np.ndarray:
    """Join spoken digits to a recording of whole frames, at most `seconds` long."""
    import soundfile

    wanted = int(seconds * _RATE) // _FRAME * _FRAME
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < wanted:
        parts += [soundfile.read(f, dtype="float32")[0] for f in sorted(_HELD_OUT.glob("*.flac"))]
    return np.concatenate(parts)[:wanted]


class _Case(NamedTuple):
    """The common settings of all contenders of a comparison."""

    model: str
    threads: int
    folder: Path
    audio: float  # seconds


def _rows(case: _Case, kinds: list[str], seconds: float) -> list[Row]:
    model, threads, folder, audio = case
    with contextlib.ExitStack() as stack:
        turns = []
        for kind in kinds:
            environment = clean_environment() if kind == "artifact" else None
            partner = Partner(kind, _command(kind, model, threads, folder), environment)
            stack.callback(partner.close)
            turns.append(partner.turn)
        times = dict(
            zip(kinds, time_in_turns(turns, seconds=seconds, threads=threads), strict=True)
        )
    notes = {kind: json.loads((folder / f"{kind}.json").read_text()) for kind in kinds}

    def cost(kind: str) -> float:
        found = times[kind]
        return (found.processor_ms if threads == 1 else None) or found.median_ms

    return [
        Row(
            model=model,
            contender=kind,
            threads=threads,
            audio_seconds=audio,
            tokens=len(notes[kind]["tokens"]),
            as_artifact=notes[kind]["tokens"] == notes["artifact"]["tokens"],
            minimum_ms=times[kind].minimum_ms,
            median_ms=times[kind].median_ms,
            processor_ms=times[kind].processor_ms,
            real_time_factor=times[kind].median_ms / 1e3 / audio,
            of_eager=cost(kind) / cost("eager"),
            peak_bytes=notes[kind]["peak_bytes"],
        )
        for kind in kinds
    ]


def _command(kind: str, model: str, threads: int, folder: Path) -> list[str]:
    arguments = [str(_CONTENDER), kind, model, str(threads), str(folder)]
    return [sys.executable, "-W", "ignore", *arguments]


def _line(row: Row) -> str:
    tokens = f"{row.tokens}" if row.as_artifact else f"{row.tokens}, others"
    times = f"{milliseconds(row.minimum_ms)} | {milliseconds(row.median_ms)}"
    shares = f"{row.real_time_factor:.3f} | {row.of_eager:.2f}"
    return (
        f"| `{row.model}` | {row.threads} | {row.contender} | {tokens} | {times} | {shares} "
        f"| {size(row.peak_bytes)} |"
    )


def main() -> None:
    """Print a table row by row, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=_MODELS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--audio", type=float, default=10.0, help="seconds of the recording (10)")
    parser.add_argument(
        "--tokens", type=int, default=100, help="of a Whisper, prompt included (100)"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of a model and threads (20)")
    parser.add_argument("--against", nargs="*", default=[], choices=["onnxruntime"])
    parser.add_argument("--store", default=str(home() / "store"))
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    asked = parser.parse_args()
    store, rows = open_store(asked.store), list[Row]()
    columns = "model threads contender tokens minimum median real-time_factor of_eager peak_memory"
    print("|", " | ".join(columns.split()).replace("_", " "), "|")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for model in asked.models:
        found = measure(model, store, asked.threads, asked.against, asked)
        rows += found
        print("\n".join(map(_line, found)), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
