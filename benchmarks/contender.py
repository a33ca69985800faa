"""One contender of `latency.py`, in a process of its own: `contender.py KIND MODEL THREADS BUNDLE`.

It runs the model on golden case 0 whenever its turn comes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from menagerie.format.tensors import read_tensors
from menagerie.validation.turns import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np


def _inputs(bundle: Path) -> dict[str, np.ndarray]:
    program = next((bundle / "programs").iterdir())
    tensors = read_tensors(program / "golden.safetensors")
    return {k.split("/")[2]: v for k, v in tensors.items() if k.startswith("0/input/")}


def _callable(model: str) -> tuple[Any, Any]:
    from transforms.export import CallableProgram
    from zoo import sources
    from zoo.manifest import load_manifest

    manifest = load_manifest()
    spec = manifest.spec(model)
    loaded = sources.load(
        model,
        spec,
        origin=manifest.origin(model).file,
        random_weights=0,
        allow_factories=False,
    )
    return CallableProgram(loaded.module, spec.programs[0]), spec.programs[0]


def _eager(model: str, threads: int, bundle: Path) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    module, program = _callable(model)
    inputs = _inputs(bundle)
    tensors = [torch.from_numpy(inputs[i.name]) for i in program.inputs]
    return lambda: module(*tensors)


def _onnxruntime(model: str, threads: int, bundle: Path) -> Callable[[], Any]:
    import onnxruntime
    import torch

    torch.set_grad_enabled(False)
    module, program = _callable(model)
    inputs = _inputs(bundle)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        tensors = tuple(torch.from_numpy(inputs[i.name]) for i in program.inputs)
        torch.onnx.export(module, tensors, path, dynamo=True, external_data=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    feed = {name: inputs[i.name] for name, i in zip(names, program.inputs, strict=True)}
    return lambda: session.run(None, feed)


_CONTENDERS = {"eager": _eager, "onnxruntime": _onnxruntime}

if __name__ == "__main__":
    kind, name, number, folder = sys.argv[1:]
    serve(lambda: _CONTENDERS[kind](name, int(number), Path(folder)))
