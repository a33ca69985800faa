"""Other runtimes of PyTorch models on a CPU, each in its own virtual environment.

Such an environment has only the peer's packages; torch and all others come from this project's.
"""

from __future__ import annotations

import enum
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "build" / "peers"
_ONNX = ("onnx==1.23.2", "onnxscript==0.7.2", "onnx-ir==1.0.0", "ml-dtypes==0.6.0")


class Contender(enum.StrEnum):
    """A runtime that is timed."""

    ARTIFACT = "artifact"  # ours
    EAGER = "eager"
    ONNXRUNTIME = "onnxruntime"
    ONNXRUNTIME_INT8 = "int8-onnxruntime"
    OPENVINO = "openvino"
    OPENVINO_INT8 = "int8-openvino"
    MNN = "mnn"
    LITERT = "litert"
    EXECUTORCH = "executorch"


OWN = (Contender.ARTIFACT, Contender.EAGER)  # the others are peers
IN_INT8 = (Contender.ONNXRUNTIME_INT8, Contender.OPENVINO_INT8)  # of the float32 weights


@dataclass(frozen=True)
class Environment:
    """The packages that pip installs for a peer.

    Attributes:
        packages: pinned packages.
        alone: whether their dependencies are not installed, because this project has them.
    """

    packages: tuple[str, ...]
    alone: bool = True


_ONNXRUNTIME = Environment((*_ONNX, "onnxruntime==1.32.0", "protobuf", "flatbuffers"))
_OPENVINO = Environment(("openvino==2026.4.1", "openvino-telemetry"))
_ENVIRONMENTS = {
    Contender.ONNXRUNTIME: _ONNXRUNTIME,
    Contender.ONNXRUNTIME_INT8: _ONNXRUNTIME,
    Contender.OPENVINO: _OPENVINO,
    Contender.OPENVINO_INT8: _OPENVINO,
    Contender.MNN: Environment(("mnn==3.6.1",)),
    Contender.LITERT: Environment(("litert-torch==0.10.0", "torch==2.13.0"), alone=False),
    Contender.EXECUTORCH: Environment(("executorch==1.5.1", "torch==2.13.0"), alone=False),
}


def python_of(contender: Contender) -> Path:
    """Return the interpreter with a contender's packages; install them if they are missing.

    Raises:
        CalledProcessError: pip cannot install them; it has said why.
    """
    if contender not in _ENVIRONMENTS:
        return Path(sys.executable)
    wanted, folder = _ENVIRONMENTS[contender], _FOLDER / contender
    python, done = folder / "bin" / "python", folder / "packages.txt"
    listed = "\n".join(wanted.packages)
    if done.exists() and done.read_text() == listed:
        return python
    venv.create(folder, clear=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "menagerie-environment.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    order = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    alone = ["--no-deps"] if wanted.alone else []
    subprocess.run([*order, *alone, *wanted.packages], check=True, stdout=sys.stderr)
    done.write_text(listed)
    return python
