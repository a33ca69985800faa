"""An `mps` device for a torch that has none: made of device.cpp on first use, kept in home()."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import torch

from menagerie.paths import home
from transforms.lowering.toolchain import Source, find_compiler

__all__ = ["provide_mps"]

_FLAGS = ("-std=c++20", "-O1", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-w")


@functools.cache
def provide_mps() -> None:
    """See to it that tensors can live on the device `mps`, for the rest of this process.

    On Linux the device lies in host memory and computes on the CPU; a Mac has the real one.

    Raises:
        LoweringError: if the device cannot be compiled.
    """
    if not torch.backends.mps.is_built():
        torch.ops.load_library(str(_compiled()))  # type: ignore[no-untyped-call]


def _compiled() -> Path:
    text = Path(__file__).with_name("device.cpp").read_text()
    compiler = find_compiler()
    made_of = "\0".join([text, torch.__version__, compiler.version, *_FLAGS])
    folder = home() / "host-devices" / hashlib.sha256(made_of.encode()).hexdigest()[:32]
    library = folder / "mps_host.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch_libraries = Path(torch.__file__).parent / "lib"
        flags = [f"-L{torch_libraries}", "-lc10", "-ltorch_cpu"]
        compiler.link_library([Source("device", text, _FLAGS)], library, flags)
    return library
