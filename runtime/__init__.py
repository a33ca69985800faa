"""The shim runtime: lowered models run here, without PyTorch."""

from __future__ import annotations

from runtime.library import RUNTIME_ABI, library_path, version
from runtime.session import Session

__all__ = ["RUNTIME_ABI", "Session", "library_path", "version"]
