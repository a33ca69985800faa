"""JSON as dataclasses: nothing is converted, every fault has its place."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from menagerie.numerics import Dtype
from menagerie.typed_json import Malformed, document, from_json, load, plain


def _even(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


@dataclass(frozen=True)
class Inner:
    """A record in a record."""

    count: Annotated[int, _even]
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    """One field of each kind."""

    name: str
    kind: Dtype
    inner: tuple[Inner, ...]
    pair: tuple[int, bool]
    table: dict[str, int | str]
    maybe: Inner | None = None
    word: Literal["yes", "no"] = "yes"


@dataclass(frozen=True)
class Ring:
    """A shape by its kind."""

    kind: Literal["ring"]
    radius: int


@dataclass(frozen=True)
class Box:
    """Another one."""

    kind: Literal["box"]
    width: int
    height: int


@dataclass(frozen=True)
class Shapes:
    """Records of several kinds."""

    shapes: tuple[Ring | Box, ...]


@pytest.mark.parametrize(
    ("shape", "fact"),
    [
        ({"kind": "box", "width": 1, "height": "2"}, 'shapes.0.height: is "2", not a whole number'),
        ({"kind": "box", "width": 1}, "shapes.0.height: is missing"),
        ({"kind": "ring", "radius": 1, "hue": 2}, "shapes.0.hue: is an unknown field"),
        ({"kind": "star", "radius": 1}, "shapes.0.kind: is \"star\", not 'ring'"),
        ({"kind": ["box"], "radius": 1}, "shapes.0.kind: is"),
    ],
)
def test_what_is_wrong_is_said_of_the_kind_that_a_record_has(
    shape: dict[str, Any], fact: str
) -> None:
    """Not of the first kind that there is, whose fields it was never meant to have."""
    assert from_json(Shapes, '{"shapes": [{"kind": "box", "width": 1, "height": 2}]}') == Shapes(
        (Box("box", 1, 2),)
    )
    with pytest.raises(Malformed) as caught:
        from_json(Shapes, json.dumps({"shapes": [shape]}))
    assert fact in str(caught.value)


GOOD: dict[str, Any] = {
    "name": "x",
    "kind": "float16",
    "inner": [{"count": 2}, {"count": 4, "share": 1}],
    "pair": [7, True],
    "table": {"a": 1, "b": "two"},
}


def test_a_document_becomes_its_type() -> None:
    """Nested records, defaults, enumerations, tuples and unions."""
    assert from_json(Outer, json.dumps(GOOD)) == Outer(
        "x", Dtype.FLOAT16, (Inner(2), Inner(4, 1.0)), (7, True), {"a": 1, "b": "two"}
    )


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"name": 1}, "name: is 1, not a text"),
        ({"kind": "float8"}, 'kind: is "float8", not'),
        ({"inner": [{"count": True}]}, "inner.0.count: is true, not a whole number"),
        ({"inner": [{"count": 2.0}]}, "inner.0.count: is 2.0, not a whole number"),
        ({"inner": [{"count": 3}]}, "inner.0.count: 3 is odd"),
        ({"inner": [{"count": 2, "share": "1"}]}, 'inner.0.share: is "1", not a number'),
        ({"inner": [{"count": 2, "share": True}]}, "inner.0.share: is true, not a number"),
        ({"inner": {}}, "inner: is {}, not an array"),
        ({"pair": [7]}, "pair: has 1 entries, not 2"),
        ({"pair": [7, 1]}, "pair.1: is 1, not true or false"),
        ({"table": {"a": None}}, "table.a: is null"),
        ({"maybe": {"count": 2, "size": 1}}, "maybe.size: is an unknown field"),
        ({"word": "maybe"}, "word: is \"maybe\", not 'yes' or 'no'"),
        ({"word": 1}, "word: is 1"),
        ({"inner": [{"count": 2, "share": 10**400}]}, "a whole number has more than 64 bits"),
    ],
)
def test_what_does_not_fit_is_reported_with_its_place(change: dict[str, Any], fact: str) -> None:
    """Strictly: true is no number, 1.0 no whole one, "1" neither."""
    with pytest.raises(Malformed) as caught:
        from_json(Outer, json.dumps(GOOD | change))
    assert fact in str(caught.value)


def test_a_missing_field_is_named() -> None:
    """And nothing is guessed for it."""
    with pytest.raises(Malformed, match=r"^name: is missing$"):
        from_json(Outer, json.dumps({k: v for k, v in GOOD.items() if k != "name"}))


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("NaN", "NaN is not a JSON number"),
        ("[" * 100_000, "nested too deep"),
        ("{", "Expecting"),
        (b"\xff", "utf-8"),
    ],
)
def test_what_is_no_json(text: str | bytes, fact: str) -> None:
    """Refused in one line."""
    with pytest.raises(Malformed) as caught:
        load(text)
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


def test_foreign_text_cannot_reach_the_terminal() -> None:
    """Escape sequences in names are shown escaped."""
    with pytest.raises(Malformed) as caught:
        from_json(Outer, json.dumps(GOOD | {"\x1b[31m": 1}))
    assert "\x1b" not in str(caught.value)


@given(
    st.builds(
        Inner,
        st.integers(-(2**40), 2**40).map(lambda n: 2 * n),
        st.floats(allow_nan=False),
    )
)
def test_what_was_written_is_read_again(value: Inner) -> None:
    """Infinities included, which JSON does not have."""
    assert from_json(Inner, document(value)) == value


def test_no_number_is_written_as_text() -> None:
    """NaN, too, comes back as what it was."""
    assert plain(Inner(2, math.nan)) == {"count": 2, "share": "NaN"}
    assert math.isnan(from_json(Inner, document(Inner(2, math.nan))).share)
