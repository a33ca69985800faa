"""A build that was made again is compared byte for byte, and each difference is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

from bundle_maker import draft, make_bundle, placed

from menagerie.format.folder import open_bundle, seal
from zoo.bundle_differences import differences

LIBRARY = "programs/main/model.so"
WEIGHTS = "weights.safetensors"


def found(
    tmp_path: Path,
    published: dict[str, bytes] | None = None,
    rebuilt: dict[str, bytes] | None = None,
    **changes: Any,
) -> list[tuple[str, str]]:
    """The differences between two bundles of such files; `changes` are of the second's manifest."""
    one = make_bundle(tmp_path / "published", published)
    two = make_bundle(tmp_path / "rebuilt", rebuilt, **changes)
    return [(d.place, d.fact) for d in differences(open_bundle(one), open_bundle(two))]


def tensors(**values: list[float]) -> bytes:
    """A safetensors file of these, as float32."""
    return save({name: np.array(each, np.float32) for name, each in values.items()})


def test_the_run_itself_does_not_count(tmp_path: Path) -> None:
    """Report, date and state are of the run: all else equal, nothing differs."""
    reports = {"report.json": b'{"a": 1}', "report.html": b"<p>", "graphs.json": b"[]"}
    later = {"created": "2031-12-31T23:59:59+00:00", "state": "lowered"}
    assert found(tmp_path, reports, {"report.json": b"{}"}, **later) == []


@pytest.mark.parametrize(
    ("rebuilt", "fact"),
    [
        (b"The libRary", "2 bytes differ, the first is number 0"),
        (b"the libra", "11 bytes are published, 9 came now; equal as far as both go"),
        (b"", "11 bytes are published, 0 came now; equal as far as both go"),
    ],
)
def test_a_file_of_other_bytes_is_named(tmp_path: Path, rebuilt: bytes, fact: str) -> None:
    """With how many differ and where; b"the library" is published."""
    assert found(tmp_path, None, {LIBRARY: rebuilt}) == [(LIBRARY, fact)]


def test_tensors_are_named_with_how_far_they_are_apart(tmp_path: Path) -> None:
    """By name, not by the position of bytes in a file that is not meant to be read."""
    published = tensors(a=[1, 2], b=[3], c=[4])
    assert found(tmp_path, {WEIGHTS: published}, {WEIGHTS: tensors(a=[1, 2.5], b=[3], d=[4])}) == [
        (WEIGHTS, "c is in one alone; d is in one alone; a differs by 0.5 at most")
    ]
    many = tensors(a=[0, 0], b=[0], c=[0])
    assert found(tmp_path / "many", {WEIGHTS: many}, {WEIGHTS: tensors(a=[1], b=[1], c=[1])}) == [
        (
            WEIGHTS,
            "a is float32 [1], not float32 [2]; b differs by 1 at most; c differs by 1 at most",
        )
    ]


@pytest.mark.parametrize(
    ("case", "output", "near"), [(1.0, 2.000001, True), (1.0, 2.5, False), (1.5, 2.0, False)]
)
def test_rounding_of_golden_outputs_is_distinguished_from_other_goldens(
    tmp_path: Path, case: float, output: float, near: bool
) -> None:
    """Outputs within the tolerance that was signed, for the same inputs; else another model."""

    def goldens(given: float, expected: float) -> bytes:
        """Three cases, as `bundle_maker` promises them."""
        sides = {"input/x": given, "output/y": expected}
        arrays = {name: np.full((1, 2), value, np.float32) for name, value in sides.items()}
        return save({f"{n}/{name}": each for n in range(3) for name, each in arrays.items()})

    name = "programs/main/golden.safetensors"
    bundles = [
        open_bundle(make_bundle(tmp_path / which, {name: goldens(*values)}))
        for which, values in (("one", (1.0, 2.0)), ("two", (case, output)))
    ]
    [found] = differences(bundles[0], bundles[1])
    assert (found.place, found.rounding) == (name, near)


def test_a_file_that_one_has_alone_is_named(tmp_path: Path) -> None:
    """Whether it is the published one or the other."""
    extra = {"notes.txt": b"n"}
    assert ("notes.txt", "was not made again") in found(tmp_path / "a", extra, None)
    assert ("notes.txt", "is not published") in found(tmp_path / "b", None, extra)


def test_a_fact_of_the_manifest_is_named_by_its_place(tmp_path: Path) -> None:
    """Both values are said."""
    assert found(tmp_path, versions={"torch": "2.14.0"}) == [
        ("manifest.json", 'versions.torch is "2.14.0", and "2.13.0" is published')
    ]
    both = found(tmp_path / "both", None, {LIBRARY: b"other"}, licence="MIT")
    assert [place for place, _ in both] == ["manifest.json", LIBRARY]


def test_another_role_of_the_same_bytes_is_named(tmp_path: Path) -> None:
    """A file that is used for something else makes another bundle, though no file differs."""
    extra = {"notes.txt": b"n"}
    one = make_bundle(tmp_path / "published", extra)
    two = make_bundle(tmp_path / "rebuilt", extra)
    roles = {name: placed(name) for name in ("weights.safetensors", "notes.txt")}
    files = {"weights": roles["weights.safetensors"], "remarks": roles["notes.txt"]}
    seal(two, draft(files=files))
    assert {d.place for d in differences(open_bundle(one), open_bundle(two))} == {"manifest.json"}
