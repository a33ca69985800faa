"""What the catalogue gives to copy works where the store's address or a dtype is an odd one."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime" / "format"))

from bundle_maker import draft

import menagerie
from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype
from zoo.catalogue.collect import CataloguedModel, History
from zoo.catalogue.pages import Site, Way, snippets

if TYPE_CHECKING:
    import numpy as np
    import pytest


def texts(store: str, **history: Any) -> list[str]:
    """The snippets of a model with one release for the CPU."""
    fields = {"target": "cpu", "platform": "cpu-linux-x86_64", "releases": (), "latest": None}
    made = History(**(fields | history))
    way = Way(Site(), store, lambda key, *_: key, lambda _: None)
    return [each.line for each in snippets(CataloguedModel(name="tiny"), made, way)]


def test_a_folder_with_a_blank_in_its_name_is_one_word() -> None:
    """The shell gives the command the store's whole path."""
    words = shlex.split(texts("/srv/the zoo")[0])
    assert words[words.index("--store") + 1] == "/srv/the zoo"


def test_bfloat16_is_given_as_its_bits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numpy has no such dtype; the code as printed makes two bytes a value, and shows results."""
    given = TensorSpec("x", Dtype.BFLOAT16, ("n", 3))
    sizes = {"n": (2, 9, 1)}
    program = replace(draft().programs[0], inputs=(given,), outputs=(given,), dimensions=sizes)
    [code] = [each for each in texts("zoo", program=program) if "np." in each]
    seen: dict[str, np.ndarray] = {}

    class Session:
        def __init__(self, _: str) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def run(self, inputs: dict[str, np.ndarray]) -> dict[str, str]:
            seen.update(inputs)
            return {"y": "what came out"}

    monkeypatch.setattr(menagerie, "Session", Session)
    exec(code, {})  # noqa: S102 - the very text that people copy
    assert (seen["x"].shape, seen["x"].nbytes) == ((2, 3), 12)
    assert "what came out" in capsys.readouterr().out
