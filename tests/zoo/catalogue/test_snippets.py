"""What the catalogue gives to copy works where the store's address or a dtype is an odd one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import menagerie
from zoo.catalogue.records import CataloguedModel, History, Tensor
from zoo.catalogue.snippets import snippets

if TYPE_CHECKING:
    import numpy as np


def texts(store: str, **history: Any) -> list[str]:
    """The snippets of a model with one release for the CPU."""
    fields = {"target": "cpu", "platform": "cpu-linux-x86_64", "releases": (), "latest": None}
    made = History(**(fields | history))
    return [each.text for each in snippets(CataloguedModel(name="tiny"), made, store)]


def test_a_folder_with_a_blank_in_its_name_is_one_word() -> None:
    """The shell gives the command the store's whole path."""
    words = shlex.split(texts("/srv/the zoo")[0])
    assert words[words.index("--store") + 1] == "/srv/the zoo"


def test_swift_sets_every_field_that_the_header_has() -> None:
    """Calls and constants are the header's; strides are those of rows that follow one another."""
    header = (Path(__file__).parents[3] / "runtime/include/menagerie.h").read_text()
    given = Tensor(name="x", dtype="float32", shape=(2, 3, 4), least=(2, 3, 4))
    mac = {"target": "metal", "platform": "metal-macos-arm64", "program": "main"}
    code = texts("zoo", inputs=(given,), outputs=(given,), **mac)[-1]
    assert set(re.findall(r"\b(?:menagerie|MENAGERIE)_\w+", code)) - {"menagerie_metal"} <= set(
        re.findall(r"\w+", header)
    )
    assert [int(s) for s in re.findall(r"strides\.\d = (\d+)", code)] == [12, 4, 1]
    assert "calloc(24, 4)" in code


def test_bfloat16_is_given_as_its_bits(monkeypatch: Any) -> None:
    """Numpy has no such dtype; the code as it stands makes two bytes for each value."""
    given = Tensor(name="x", dtype="bfloat16", shape=("n", 3), least=(2, 3))
    [code] = [each for each in texts("zoo", inputs=(given,), program="main") if "np." in each]
    seen: dict[str, np.ndarray] = {}

    class Session:
        def __init__(self, _: str) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def run(self, inputs: dict[str, np.ndarray]) -> None:
            seen.update(inputs)

    monkeypatch.setattr(menagerie, "Session", Session)
    exec(code, {})  # noqa: S102 - the very text that people copy
    assert (seen["x"].shape, seen["x"].nbytes) == ((2, 3), 12)
