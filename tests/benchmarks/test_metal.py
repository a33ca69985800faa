"""The command that counts what a Metal artifact makes a GPU do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks import metal

if TYPE_CHECKING:
    from pathlib import Path


def test_a_model_that_cannot_be_had_is_told_and_the_next_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason stands beside its name, and the command ends with 1."""
    keys = ("dispatches", "encoders", "graphs", "blits", "commits", "bytes", "operations", "error")

    def fetched(model: str, folder: Path) -> Path:
        if model == "none":
            raise RuntimeError("it was neither pulled nor converted")
        return folder

    monkeypatch.setattr(metal, "fetch", fetched)
    monkeypatch.setattr(metal, "counts", lambda *_, **__: {"main": dict.fromkeys(keys, 1)})
    monkeypatch.setattr(sys, "argv", ["metal.py", "none", "some"])
    with pytest.raises(SystemExit) as caught:
        metal.main()
    said = capsys.readouterr()
    assert caught.value.code == 1
    assert said.err == "none: it was neither pulled nor converted\n"
    assert [line.split()[1] for line in said.out.splitlines()[2:]] == ["some/main", "some/main,"]
