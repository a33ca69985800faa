"""Conversion to a peer's file: `python -m benchmarks.peers.conversions KIND MODEL FOLDER`.

It runs in the peer's environment. OpenVINO and MNN read the ONNX files made in ONNX Runtime's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.environments import Contender
from benchmarks.peers.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

ONNX, INT8 = "model.onnx", "model-int8.onnx"


def _onnx(task: Task) -> None:
    import torch

    module, given = task.module()
    torch.onnx.export(module, given, task.folder / ONNX, dynamo=True, external_data=True)


def _onnx_int8(task: Task) -> None:
    """Quantise weights by channel, and activations from the first convolution on."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, names: list[str]) -> None:
            with np.load(task.folder / "calibration.npz") as kept:
                each = zip(*kept.values(), strict=True)
                self._left = iter([dict(zip(names, values, strict=True)) for values in each])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    prepared = task.folder / "prepared.onnx"
    onnx.save(onnx.load(task.folder / ONNX), prepared)  # in one file, which the tool requires
    quant_pre_process(prepared, prepared, skip_symbolic_shape=True)
    graph = onnx.load(prepared, load_external_data=False).graph
    nodes = [node.name for node in graph.node]
    kinds = [node.op_type for node in graph.node]
    before = nodes[: kinds.index("Conv")] if "Conv" in kinds else []  # they resize pictures
    quantization.quantize_static(
        prepared, task.folder / INT8, Samples([each.name for each in graph.input]),
        per_channel=True, nodes_to_exclude=before,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip


def _mnn(task: Task) -> None:
    """Run MNN's converter, which prints its progress on standard output."""
    tool = Path(sys.executable).with_name("mnnconvert")
    files = ["--modelFile", str(task.folder / ONNX), "--MNNModel", str(task.folder / "model.mnn")]
    subprocess.run(
        [sys.executable, str(tool), "-f", "ONNX", *files, "--bizCode", "menagerie"], check=True
    )


def _litert(task: Task) -> None:
    import litert_torch

    module, given = task.module()
    litert_torch.convert(module, given).export(str(task.folder / "model.tflite"))


def _executorch(task: Task) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    module, given = task.module()
    lowered = to_edge_transform_and_lower(
        torch.export.export(module, given), partitioner=[XnnpackPartitioner()]
    )
    (task.folder / "model.pte").write_bytes(lowered.to_executorch().buffer)


CONVERSIONS: dict[Contender, Callable[[Task], None]] = {
    Contender.ONNXRUNTIME: _onnx,
    Contender.ONNXRUNTIME_INT8: _onnx_int8,
    Contender.MNN: _mnn,
    Contender.LITERT: _litert,
    Contender.EXECUTORCH: _executorch,
}

if __name__ == "__main__":
    kind, model, folder = sys.argv[1:]
    CONVERSIONS[Contender(kind)](Task(model, 1, Path(folder)))
