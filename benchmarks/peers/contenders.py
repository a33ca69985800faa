"""One contender in a process of its own, in its environment.

`python -m benchmarks.peers.contenders KIND MODEL THREADS FOLDER` takes a turn for each line that it
reads, and writes its first results to `KIND.npz`. With `--once` it computes them and ends: a fresh
start, to be timed from outside.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.environments import Contender
from benchmarks.peers.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.task import Run


def _artifact(task: Task) -> Run:
    from menagerie.session import Session

    session = Session(task.bundle, task.program(), task.threads, allow_unsigned=True)
    given = task.inputs()
    return lambda: [*session.run(given).values()]


def _eager(task: Task) -> Run:
    import torch

    torch.set_num_threads(task.threads)
    module, given = task.module()

    def run() -> list[np.ndarray]:
        found = module(*given)
        values = found.values() if isinstance(found, dict) else found
        return [value.numpy() for value in ([values] if torch.is_tensor(values) else values)]

    return run


def _onnxruntime(task: Task) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = task.threads, 1
    path = str(task.folder / "model.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feed = dict(zip(names, task.inputs().values(), strict=True))
    return lambda: list(session.run(None, feed))


def _openvino(task: Task) -> Run:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": task.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # or it computes in bfloat16 where the machine can
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(task.folder / "model.onnx"), "CPU", settings)
    request, given = compiled.create_infer_request(), [*task.inputs().values()]
    return lambda: list(request.infer(given, share_inputs=True).values())


def _mnn(task: Task) -> Run:
    import MNN

    settings = {"precision": "high", "backend": "CPU", "numThread": task.threads}
    manager = MNN.nn.create_runtime_manager((settings,))
    module = MNN.nn.load_module_from_file(
        str(task.folder / "model.mnn"), [], [], runtime_manager=manager
    )
    given = []
    for value in task.inputs().values():
        placed = MNN.expr.placeholder(list(value.shape), MNN.expr.NCHW)
        placed.write(np.ascontiguousarray(value))
        given.append(placed)

    def run() -> list[np.ndarray]:
        return [MNN.expr.convert(v, MNN.expr.NCHW).read() for v in module.forward(given)]

    return run


def _litert(task: Task) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    reader = Interpreter(str(task.folder / "model.tflite"), num_threads=task.threads)
    runner = reader.get_signature_runner()
    names = sorted(runner.get_input_details(), key=lambda name: int(name.rsplit("_", 1)[1]))
    feed = dict(zip(names, task.inputs().values(), strict=True))
    results = sorted(runner.get_output_details())
    return lambda: [runner(**feed)[name] for name in results]


def _executorch(task: Task) -> Run:
    import torch
    from executorch.runtime import Runtime

    torch.set_num_threads(task.threads)
    program = Runtime.get().load_program(task.folder / "model.pte")
    method = program.load_method("forward")
    given = [torch.from_numpy(value) for value in task.inputs().values()]
    return lambda: [value.numpy() for value in method.execute(given)]


CONTENDERS: dict[Contender, Callable[[Task], Run]] = {
    Contender.ARTIFACT: _artifact,
    Contender.EAGER: _eager,
    Contender.ONNXRUNTIME: _onnxruntime,
    Contender.OPENVINO: _openvino,
    Contender.MNN: _mnn,
    Contender.LITERT: _litert,
    Contender.EXECUTORCH: _executorch,
}


def _loaded(kind: Contender, task: Task) -> Run:
    run = CONTENDERS[kind](task)
    np.savez(task.folder / f"{kind}.npz", *run())
    return run


def main() -> None:
    """Serve turns, or compute once."""
    kind, model, threads, folder, *once = sys.argv[1:]
    task = Task(model, int(threads), Path(folder))
    if once:
        _loaded(Contender(kind), task)
        return
    from menagerie.timing import serve

    serve(lambda: _loaded(Contender(kind), task))


if __name__ == "__main__":
    main()
