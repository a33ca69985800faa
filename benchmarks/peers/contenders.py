"""One contender in its own process and environment.

`python -m benchmarks.peers.contenders KIND MODEL THREADS FOLDER` takes a turn for each line that it
reads, and writes its first results to `KIND.npz`. With `--once` it computes them and ends: a fresh
start, which is timed from outside. With `--samples` it writes the first result for each value of
the first input in `samples.npz` to `KIND-samples.npy`, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.conversions import INT8, ONNX
from benchmarks.peers.environments import Contender
from benchmarks.peers.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.peers.task import Run


def _artifact(task: Task) -> Run:
    from menagerie.session import Session

    session = Session(task.bundle, task.program(), task.threads, allow_unsigned=True)
    return lambda given: [*session.run(dict(given)).values()]


def _eager(task: Task) -> Run:
    import torch

    torch.set_num_threads(task.threads)
    module, _ = task.module()

    def run(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        found = module(*map(torch.from_numpy, given.values()))
        values = found.values() if isinstance(found, dict) else found
        return [value.numpy() for value in ([values] if torch.is_tensor(values) else values)]

    return run


def _onnxruntime(task: Task, file: str = ONNX) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = task.threads, 1
    path = str(task.folder / file)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda given: list(session.run(None, dict(zip(names, given.values(), strict=True))))


def _openvino(task: Task, file: str = ONNX) -> Run:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": task.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # otherwise it uses bfloat16 if the machine can
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(task.folder / file), "CPU", settings)
    request = compiled.create_infer_request()

    def run(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.array(v) for v in request.infer([*given.values()], share_inputs=True).values()]

    return run


def _mnn(task: Task) -> Run:
    import MNN

    settings = {"precision": "high", "backend": "CPU", "numThread": task.threads}
    manager = MNN.nn.create_runtime_manager((settings,))
    module = MNN.nn.load_module_from_file(
        str(task.folder / "model.mnn"), [], [], runtime_manager=manager
    )
    placed = [MNN.expr.placeholder([*v.shape], MNN.expr.NCHW) for v in task.inputs().values()]

    def run(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for place, value in zip(placed, given.values(), strict=True):
            place.write(np.ascontiguousarray(value))
        return [MNN.expr.convert(v, MNN.expr.NCHW).read() for v in module.forward(placed)]

    return run


def _litert(task: Task) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    reader = Interpreter(str(task.folder / "model.tflite"), num_threads=task.threads)
    runner = reader.get_signature_runner()
    names = sorted(runner.get_input_details(), key=lambda name: int(name.rsplit("_", 1)[1]))
    results = sorted(runner.get_output_details())

    def run(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        made = runner(**dict(zip(names, given.values(), strict=True)))
        return [made[name] for name in results]

    return run


def _executorch(task: Task) -> Run:
    import torch
    from executorch.runtime import Runtime

    torch.set_num_threads(task.threads)
    program = Runtime.get().load_program(task.folder / "model.pte")
    method = program.load_method("forward")

    def run(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [value.numpy() for value in method.execute([*map(torch.from_numpy, given.values())])]

    return run


CONTENDERS: dict[Contender, Callable[[Task], Run]] = {
    Contender.ARTIFACT: _artifact,
    Contender.EAGER: _eager,
    Contender.ONNXRUNTIME: _onnxruntime,
    Contender.ONNXRUNTIME_INT8: lambda task: _onnxruntime(task, INT8),
    Contender.OPENVINO: _openvino,
    Contender.OPENVINO_INT8: lambda task: _openvino(task, INT8),
    Contender.MNN: _mnn,
    Contender.LITERT: _litert,
    Contender.EXECUTORCH: _executorch,
}


def _loaded(kind: Contender, task: Task) -> Callable[[], object]:
    run, given = CONTENDERS[kind](task), task.inputs()
    np.savez(task.folder / f"{kind}.npz", *run(given))
    return lambda: run(given)


def _sampled(kind: Contender, task: Task) -> None:
    run = CONTENDERS[kind](task)
    with np.load(task.folder / "samples.npz") as samples:
        [(name, values)] = samples.items()
    made = np.stack([run({name: value})[0] for value in values])
    np.save(task.folder / f"{kind}-samples.npy", made)


def main() -> None:
    """Serve turns, compute once, or compute samples."""
    kind, model, threads, folder, *how = sys.argv[1:]
    task = Task(model, int(threads), Path(folder))
    if how == ["--samples"]:
        _sampled(Contender(kind), task)
    elif how == ["--once"]:
        _loaded(Contender(kind), task)
    else:
        from menagerie.timing import serve

        serve(lambda: _loaded(Contender(kind), task))


if __name__ == "__main__":
    main()
