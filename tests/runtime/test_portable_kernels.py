"""Where oneDNN does not serve, as on arm64, the runtime is built of kernels of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_the_runtime_is_configured_without_onednn(tmp_path: Path) -> None:
    """Every source is found, and none is oneDNN's."""
    tools = Path(sys.executable).parent
    done = subprocess.run(
        [
            tools / "cmake", "-S", _ROOT / "runtime", "-B", tmp_path, "-G", "Ninja",
            "-DMENAGERIE_PORTABLE_KERNELS=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_UNITY_BUILD=OFF",
        ],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    sources = {Path(command["file"]).relative_to(_ROOT) for command in commands
               if Path(command["file"]).is_relative_to(_ROOT / "runtime")}  # fmt: skip
    kernels = {source.parent.name for source in sources if source.parent.parent.name == "kernels"}
    assert kernels == {"portable"}
