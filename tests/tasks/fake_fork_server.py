"""A fork server of fake models, which loads nothing but what it is given by name."""

from __future__ import annotations

import os
import signal
from importlib import import_module

from fake_model_process import FakeModel

from tasks.serve_model import serve_forks


def load(kind: str | None) -> None:
    """Import the module of that name; `dying`: die instead, as libraries can."""
    if kind == "dying":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind is not None and "." in kind:
        import_module(kind)


if __name__ == "__main__":
    serve_forks(FakeModel, load)
