"""Makes a peer's file of a model: `python -m benchmarks.peers.conversions KIND MODEL FOLDER`.

Runs in the peer's environment. OpenVINO and MNN read the ONNX file that ONNX Runtime's makes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.environments import Contender
from benchmarks.peers.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

ONNX = "model.onnx"


def _onnx(task: Task) -> None:
    import torch

    module, given = task.module()
    torch.onnx.export(module, given, task.folder / ONNX, dynamo=True, external_data=True)


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
    Contender.MNN: _mnn,
    Contender.LITERT: _litert,
    Contender.EXECUTORCH: _executorch,
}

if __name__ == "__main__":
    kind, model, folder = sys.argv[1:]
    CONVERSIONS[Contender(kind)](Task(model, 1, Path(folder)))
