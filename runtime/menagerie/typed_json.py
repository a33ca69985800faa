"""Conversion of JSON to frozen dataclasses and back, strict about types; faults have places.

A field's annotation defines what it accepts: str, int, float, bool, None, an enumeration, a
Literal, a dataclass, `tuple[X, ...]`, `tuple[X, Y]`, `dict[K, V]`, a union of those, or
`Annotated[X, check]` where `check` is a function that returns the value or raises ValueError.
Nothing is converted: true is not a number and 1.0 not an integer. JSON has no infinity: as a value,
such a float is written and read as the text "Infinity", "-Infinity" or "NaN".
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from menagerie.figures import printable

T = TypeVar("T")

_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_LONGEST_QUOTE = 300
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Malformed(ValueError):
    """JSON does not match a type; the message says where and why, in one line."""


def matching(pattern: str, fact: str) -> Callable[[str], str]:
    """Return a check for `Annotated` that text matches a pattern; `fact` is its error."""
    wanted = re.compile(pattern)

    def checked(text: str) -> str:
        if not wanted.fullmatch(text):
            raise ValueError(fact)
        return text

    return checked


@dataclass(frozen=True)
class AtLeast:
    """A check for `Annotated`: integers from `low` on that C's readers can hold."""

    low: int

    def __call__(self, number: int) -> int:
        """Return the number; raise ValueError if it is out of bounds."""
        if not self.low <= number < 2**63:
            bound = f"at least {self.low}" if number < self.low else f"at most {2**63 - 1}"
            raise ValueError(f"is {number}, not {bound}")
        return number

    def __get_pydantic_core_schema__(self, kind: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the same bound for pydantic, which uses it for entries."""
        return {**handler(kind), "ge": self.low}


def from_json(kind: type[T], text: str | bytes) -> T:
    """Read a JSON document as a dataclass; raise Malformed with the place that does not fit."""
    value: T = check(kind, load(text))
    return value


def load(text: str | bytes) -> Any:
    """Parse JSON, or raise Malformed in one printable line.

    Duplicate keys, text that is not JSON or UTF-8, and numbers that C's readers cannot hold
    (integers of more than 64 bits, infinite floats) are refused.
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(
            decoded,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_of_64_bits,
        )
        if _SURROGATE.search(decoded):  # half a pair is no character, and UTF-8 cannot encode it
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise Malformed("is nested too deep") from None
    except ValueError as error:
        raise Malformed(_line(str(error))) from None
    return value


def document(value: object, *, sparse: bool = False, sort: bool = True) -> bytes:
    """Return the only canonical form of a dataclass as JSON: sorted keys, one entry per line.

    A `sparse` one omits fields that are None. Do not `sort` keys whose order has a meaning.
    """
    fields_of = plain(value, sparse=sparse)
    text = json.dumps(fields_of, sort_keys=sort, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def plain(value: object, *, sparse: bool = False) -> Any:
    """Convert a dataclass to JSON objects, arrays, texts and numbers; `sparse`: see `document`."""
    if is_dataclass(value):
        return {
            f.name: plain(item, sparse=sparse)
            for f in fields(value)
            if (item := getattr(value, f.name)) is not None or f.default is not None or not sparse
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(plain(key)): plain(item, sparse=sparse) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item, sparse=sparse) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def check(kind: Any, value: object, place: str = "") -> Any:
    """Convert a JSON value to the type `kind`; raise Malformed with the place that does not fit."""
    if is_dataclass(kind):
        return _record(kind, value, place)
    reader = _GENERICS.get(get_origin(kind))
    return reader(get_args(kind), value, place) if reader else _scalar(kind, value, place)


def _checked(kinds: tuple[Any, ...], value: object, place: str) -> Any:
    inner, *checks = kinds
    result = check(inner, value, place)
    for each in checks:
        try:
            result = each(result)
        except ValueError as error:
            raise _unfit(place, str(error)) from None
    return result


def _member(kinds: tuple[Any, ...], value: object, place: str) -> Any:
    faults = []
    for kind in _of_its_kind(kinds, value):
        try:
            return check(kind, value, place)
        except Malformed as error:
            faults.append((kind is type(None), error))
    raise min(faults, key=lambda fault: fault[0])[1]  # the fault of a value other than null


def _of_its_kind(kinds: tuple[Any, ...], value: object) -> tuple[Any, ...]:
    """Choose among several records by the value's `kind`, for faults of the right record."""
    if not isinstance(value, dict):
        return kinds
    records: list[Any] = [each for each in kinds if is_dataclass(each)]
    records = [each for each in records if "kind" in _fields(each)]
    fitting = [r for r in records if value.get("kind") in get_args(_fields(r)["kind"][0])]
    return tuple(fitting) or kinds


def _literal(known: tuple[Any, ...], value: object, place: str) -> Any:
    if not any(type(value) is type(each) and value == each for each in known):
        raise _unfit(place, f"is {_quoted(value)}, not {' or '.join(map(repr, known))}")
    return value


def _tuple(kinds: tuple[Any, ...], value: object, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _unfit(place, f"is {_quoted(value)}, not an array")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise _unfit(place, f"has {len(value)} entries, not {len(kinds)}")
    items = zip(kinds, value, strict=True)
    return tuple(check(kind, item, _step(place, i)) for i, (kind, item) in enumerate(items))


def _dict(kinds: tuple[Any, ...], value: object, place: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _unfit(place, f"is {_quoted(value)}, not an object")
    key_kind, item_kind = kinds
    return {
        check(key_kind, key, _step(place, key)): check(item_kind, item, _step(place, key))
        for key, item in value.items()
    }


def _record(kind: Any, value: object, place: str) -> Any:
    if not isinstance(value, dict):
        raise _unfit(place, f"is {_quoted(value)}, not an object")
    known = _fields(kind)
    if unknown := sorted(value.keys() - known.keys()):
        raise _unfit(_step(place, unknown[0]), "is an unknown field")
    given = {}
    for name, (field_kind, required) in known.items():
        if name in value:
            given[name] = check(field_kind, value[name], _step(place, name))
        elif required:
            raise _unfit(_step(place, name), "is missing")
    try:
        return kind(**given)
    except Malformed:
        raise
    except ValueError as error:
        raise _unfit(place, str(error)) from None


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the fields of a dataclass, each with its type and whether it is required."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        f.name: (hints[f.name], f.default is MISSING and f.default_factory is MISSING)
        for f in fields(kind)
    }


def _scalar(kind: Any, value: object, place: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(_literal(tuple(member.value for member in kind), value, place))
    if kind is float:
        if isinstance(value, str) and value in _INFINITIES:
            return _INFINITIES[value]
        if type(value) in (int, float):
            return float(value)  # type: ignore[arg-type]
        raise _unfit(place, f"is {_quoted(value)}, not a number")
    if type(value) is not kind:
        raise _unfit(place, f"is {_quoted(value)}, not {_NAMES.get(kind, kind.__name__)}")
    return value


_GENERICS = {
    Annotated: _checked,
    Union: _member,
    types.UnionType: _member,
    Literal: _literal,
    tuple: _tuple,
    dict: _dict,
}
_NAMES = {str: "a text", int: "a whole number", bool: "true or false", types.NoneType: "null"}


def _step(place: str, step: object) -> str:
    return f"{place}.{step}" if place else str(step)


def _unfit(place: str, fact: str) -> Malformed:
    return Malformed(_line(f"{place}: {fact}" if place else fact))


def _quoted(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except RecursionError:
        return "nested too deep"
    return text if len(text) <= _LONGEST_QUOTE // 3 else text[: _LONGEST_QUOTE // 3] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"duplicate key {name!r} in one object")
        found[name] = value
    return found


def _of_64_bits(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError("a whole number has more than 64 bits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is larger than any of 64 bits")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _line(text: str) -> str:
    """Make foreign text safe for a terminal: printable and short."""
    shown = printable(text, keep="")
    return shown if len(shown) <= _LONGEST_QUOTE else shown[:_LONGEST_QUOTE] + "..."
