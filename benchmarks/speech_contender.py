"""A contender of `speech.py` in its own process.

`speech_contender.py KIND MODEL THREADS FOLDER`: the folder holds the release's `bundle`,
`samples.npy`, `options.json` and, for a program that takes features, `features.npz`. In each turn
it computes the recording's tokens, and writes its peak memory in bytes and the tokens to
`KIND.json`. KIND `onnx` exports for `onnxruntime` and ends.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from menagerie.format.bundle_manifest import MANIFEST, parse_manifest
from menagerie.format.folder import read_manifest
from menagerie.process import peak_memory_bytes
from menagerie.session import Session
from menagerie.speech.decoding import Decoder, greedy_ctc, greedy_whisper
from menagerie.speech.recipe import CtcHead, WhisperHead, read_recipe
from menagerie.speech.recogniser import Program, Recogniser
from menagerie.timing import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from menagerie.format.bundle_manifest import BundleManifest
    from menagerie.speech.recogniser import Run

    Transcribe = Callable[[], list[int]]

RATE = 16_000
_STATE = ("keys_", "values_")  # prefixes of the names of a program's buffers


class Task:
    """The task of every contender.

    Args:
        model: the model's name in the manifest.
        threads: number of threads of each contender.
        folder: the folder described above.
    """

    def __init__(self, model: str, threads: int, folder: Path) -> None:
        self.model, self.threads, self.folder = model, threads, folder
        self.bundle = folder / "bundle"
        self.samples: np.ndarray = np.load(folder / "samples.npy")
        path = self.bundle / MANIFEST
        self.manifest: BundleManifest = parse_manifest(read_manifest(path), str(path))
        self.options = json.loads((folder / "options.json").read_text())
        speech = next(
            (self.bundle / f.path for r, f in self.manifest.files.items() if r == "speech"), None
        )
        self.recipe = (
            None
            if speech is None
            else read_recipe(speech, [p.name for p in self.manifest.programs])
        )

    def head(self) -> Any:
        """Return the release's first head; a Whisper's with the language and the most tokens."""
        assert self.recipe is not None
        head = next(iter(self.recipe.heads.values()))
        if isinstance(head, WhisperHead):
            language = "en" if "en" in head.languages else None
            return replace(head, language=language, most_tokens=self.options["most_tokens"])
        return head

    def features(self) -> dict[str, np.ndarray]:
        """Return the inputs of a program that takes features instead of samples."""
        with np.load(self.folder / "features.npz") as kept:
            return dict(kept)

    def transcribe(self, runs: Mapping[str, Run]) -> Transcribe:
        """Return our decoding loop over the programs of any contender."""
        if self.recipe is None:
            [run], features, blank = runs.values(), self.features(), self.options["blank"]
            return lambda: [e.token for e in greedy_ctc(run(features)["logits"][0], blank)]
        head = self.head()
        programs = {
            p.name: Program(runs[p.name], p.inputs, p.dimensions) for p in self.manifest.programs
        }
        if isinstance(head, WhisperHead):
            listen = self.manifest.programs
            [size] = [i.shape[1] for p in listen for i in p.inputs if i.name == "samples"]
            assert isinstance(size, int)
            window = np.zeros((1, size), np.float32)
            window[0, : len(self.samples)] = self.samples

            def say() -> list[int]:
                gave = runs[head.listen]({"samples": window})
                return greedy_whisper(head, Decoder(runs[head.emit], gave["keys"], gave["values"]))

            return say
        recogniser = Recogniser(self.recipe, head, programs, self.model)
        return lambda: [emission.token for emission in recogniser.recognise(self.samples)]


def _artifact(task: Task) -> Transcribe:
    """Return our contender, which runs without torch."""
    return task.transcribe(
        {
            program.name: Session(task.bundle, program.name, task.threads, allow_unsigned=True).run
            for program in task.manifest.programs
        }
    )


def _loaded(model: str) -> tuple[Any, Any]:
    from zoo import sources
    from zoo.manifest import load_manifest

    manifest = load_manifest()
    spec = manifest.spec(model)
    origin = manifest.origins[model].file
    loaded = sources.load(model, spec, origin=origin, random_weights=0, allow_factories=False)
    return loaded.module, spec


def _eager(task: Task) -> Transcribe:
    """Return Transformers' own features and `generate`."""
    import torch

    torch.set_num_threads(task.threads)
    torch.set_grad_enabled(False)
    module, spec = _loaded(task.model)
    import transformers

    if task.recipe is None:
        given = {name: torch.from_numpy(value) for name, value in task.features().items()}
        return lambda: _folded(module.generate(**given)[0].tolist(), task.options["blank"])
    # Rebuild the library's class around the parts that the entry took from it.
    architecture = getattr(transformers, spec.source.architecture)
    with torch.device("meta"):
        model = architecture(architecture.config_class(**spec.source.config)).eval()
    head = task.head()
    if isinstance(head, WhisperHead):
        model.model.encoder, model.model.decoder = module.listen.encoder, module.emit.decoder
        model.proj_out = module.emit.head
        return _whisper(task, model, head)
    model.encoder = module.listen.encoder
    bins = model.config.encoder_config.num_mel_bins
    extract = transformers.ParakeetFeatureExtractor(feature_size=bins)
    if isinstance(head, CtcHead):
        model.ctc_head = module.listen.ctc_head

        def name() -> list[int]:
            features = extract(task.samples, sampling_rate=RATE, return_tensors="pt")
            return _folded(model.generate(**features)[0].tolist(), head.blank)

        return name
    model.encoder_projector = module.listen.projector
    model.decoder, model.joint = module.emit.decoder, module.emit.joint
    model.generation_config.decoder_start_token_id = head.blank
    most = 10 * -(-(len(task.samples) // 160) // 8) - 1

    def say() -> list[int]:
        features = extract(task.samples, sampling_rate=RATE, return_tensors="pt")
        said = model.generate(**features, max_new_tokens=most).sequences[0, 1:].tolist()
        return [token for token in said if token not in (head.blank, model.config.pad_token_id)]

    return say


def _folded(best: list[int], blank: int) -> list[int]:
    """Return CTC's tokens from the best token of each frame."""
    return [t for t, before in zip(best, [blank, *best], strict=False) if t not in (before, blank)]


def _whisper(task: Task, model: Any, head: WhisperHead) -> Transcribe:
    import transformers

    settings = model.generation_config
    settings.decoder_start_token_id = head.start
    settings.eos_token_id = settings.pad_token_id = settings.bos_token_id = head.end
    settings.is_multilingual = bool(head.languages)
    settings.lang_to_id = {f"<|{code}|>": token for code, token in head.languages.items()}
    settings.task_to_id = {"transcribe": head.task}
    settings.no_timestamps_token_id = head.no_timestamps
    settings.max_initial_timestamp_index = head.latest_start
    settings.suppress_tokens = [*head.suppress] or None
    settings.begin_suppress_tokens = [*head.begin_suppress] or None
    extract = transformers.WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    prompt = 1 + (head.language is not None) + (head.task is not None)
    settings.max_length = head.most_tokens - prompt  # here `generate` counts only emitted tokens

    def say() -> list[int]:
        features = extract(task.samples, sampling_rate=RATE, return_tensors="pt").input_features
        said = model.generate(
            features, language=head.language, task="transcribe", return_timestamps=head.timestamps,
            force_unique_generate_call=True,
        )[0].tolist()  # fmt: skip
        said = said[prompt:] if said[0] == head.start else said
        return said[: said.index(head.end)] if head.end in said else said

    return say


def _export(task: Task) -> None:
    """Export each program as ONNX at the recording's size; state becomes inputs and outputs."""
    import torch

    torch.set_grad_enabled(False)
    module, spec = _loaded(task.model)
    first: dict[str, np.ndarray] = {}
    if task.recipe is None:
        first = task.features()
    for program in spec.programs:
        part = module.get_submodule(program.part)
        names = [i.name for i in program.inputs]
        state = {
            name: value.clone()
            for name, value in part.named_buffers(recurse=False)
            if name.startswith(_STATE)
        }
        given = _example(task, program, first)
        step = _stateful(part, [*state], program)
        place = task.folder / f"{program.name}.onnx"
        # An ONNX graph has one namespace for inputs and outputs.
        results = [f"next_{name}" for name in (*program.outputs, *state)]
        torch.onnx.export(
            step, (*given, *state.values()), place, dynamo=True, external_data=True,
            input_names=[*names, *state], output_names=results,
            custom_translation_table={torch.ops.aten.amax.default: _largest},
        )  # fmt: skip
        result = step(*given, *state.values())
        first |= {name: value.numpy() for name, value in zip(program.outputs, result, strict=False)}


def _largest(values: Any) -> Any:
    """Return `amax` over all axes, because torch's exporter requires axes."""
    from onnxscript import opset18

    return opset18.ReduceMax(values, keepdims=0)


def _stateful(part: Any, state: list[str], program: Any) -> Any:
    """Return a part as a function from inputs and state to outputs and the next state."""
    import torch

    names = [spec.name for spec in program.inputs]

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = part

        def forward(self, *given: Any) -> tuple[Any, ...]:
            after = {n: v.clone() for n, v in zip(state, given[len(names) :], strict=True)}
            inputs = dict(zip(names, given, strict=False)) | program.arguments
            found = torch.func.functional_call(self.part, after, (), inputs)
            return (*(found[name] for name in program.outputs), *after.values())

    return Step()


def _example(task: Task, program: Any, known: dict[str, np.ndarray]) -> list[Any]:
    """Return example inputs for the recording's size."""
    import torch

    given = []
    for spec in program.inputs:
        sizes = [size if isinstance(size, int) else 0 for size in spec.shape]
        if spec.name in known and (0 in sizes or spec.name in ("keys", "values")):
            value = torch.from_numpy(known[spec.name])
        elif spec.name == "samples":
            size = sizes[1] or -(-len(task.samples) // 1280) * 1280
            value = torch.zeros(1, size)
            value[0, : len(task.samples)] = torch.from_numpy(task.samples)
        elif spec.name == "lengths":
            value = torch.tensor([len(task.samples)])
        else:
            value = torch.zeros(sizes, dtype=getattr(torch, spec.dtype or "float32"))
        given.append(value)
    return given


def _onnxruntime(task: Task) -> Transcribe:
    """Return ONNX Runtime in our decoding loop."""
    import onnxruntime

    def runner(name: str) -> Run:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = task.threads
        options.inter_op_num_threads = 1
        path = str(task.folder / f"{name}.onnx")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs, outputs = (
            session.get_inputs(),
            [o.name.removeprefix("next_") for o in session.get_outputs()],
        )
        state = {
            i.name: np.zeros(i.shape, np.float32)
            for i in inputs
            if i.name in outputs and i.name.startswith(_STATE)
        }
        taken = {i.name for i in inputs}

        def run(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            feed = {name: value for name, value in given.items() if name in taken}
            found = dict(zip(outputs, session.run(None, feed | state), strict=True))
            for kept in state:
                state[kept] = found.pop(kept)
            return found

        return run

    return task.transcribe({p.name: runner(p.name) for p in task.manifest.programs})


_CONTENDERS = {"artifact": _artifact, "eager": _eager, "onnxruntime": _onnxruntime}


def _noted(transcribe: Transcribe, notes: Path) -> Transcribe:
    def run() -> list[int]:
        tokens = transcribe()
        notes.write_text(json.dumps({"peak_bytes": peak_memory_bytes(), "tokens": tokens}))
        return tokens

    return run


def main() -> None:
    """Serve turns or export."""
    kind, model, threads, folder = sys.argv[1:]
    task = Task(model, int(threads), Path(folder))
    if kind == "onnx":
        _export(task)
        return
    serve(lambda: _noted(_CONTENDERS[kind](task), Path(folder) / f"{kind}.json"))


if __name__ == "__main__":
    main()
