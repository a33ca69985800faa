"""The shim runtime: lowered models run here, without PyTorch."""

from __future__ import annotations

from menagerie.library import RUNTIME_ABI, library_path, version
from menagerie.session import Session

__all__ = ["RUNTIME_ABI", "Session", "library_path", "version"]
