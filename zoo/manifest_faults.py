"""Puts what Pydantic refused into the words, places and suggestions a manifest's author needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.errors import nearest, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["explain"]

Location = tuple[str | int, ...]
Schema = dict[str, Any]

_SHOWN = 60  # characters of a faulty value that a message repeats


def explain(error: ValidationError, schema: Schema) -> list[tuple[Location, str]]:
    """Every fault as its location in the data and a fact about it.

    Args:
        error: of validating the data.
        schema: the JSON Schema of the validated type, from which known names are taken.
    """
    facts: dict[Location, str] = {}
    meant: set[Location] = set()
    details = [d for d in error.errors(include_url=False) if not _is_consequence(d)]
    for detail in details:
        location, node = _follow(detail["loc"], schema)
        if detail["type"].startswith("union_tag_"):
            location = (*location, node["discriminator"]["propertyName"])
        fact = _fact(detail, location, node)
        facts[location] = fact if location not in facts else _fits_nothing(detail)
        if detail["type"] == "extra_forbidden":
            meant.add((*location[:-1], nearest(location[-1], _keys(node)) or ""))
    missing = {_follow(d["loc"], schema)[0] for d in details if d["type"] == "missing"}
    return [(place, fact) for place, fact in facts.items() if place not in missing & meant]


def _fact(detail: ErrorDetails, location: Location, node: Schema) -> str:
    value, kind = detail["input"], detail["type"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"unknown key{suggestion(location[-1], _keys(node))}"
    if kind == "union_tag_not_found":
        return "is missing; known: " + ", ".join(_choices(node))
    if kind == "union_tag_invalid":
        value = detail["ctx"]["tag"]
    if kind in ("enum", "literal_error", "union_tag_invalid", "unknown_target"):
        known = detail["ctx"]["known"] if kind == "unknown_target" else _choices(node)
        hint = suggestion(value, known) or f"; known: {', '.join(known)}"
        return f"{_show(value)} is not a {_noun(detail, location)}{hint}"
    if kind == "too_short":
        return "must not be empty"
    if kind == "value_error":
        text = str(detail["ctx"]["error"])
    else:
        text = detail["msg"].removeprefix("Input ")
    return text if isinstance(value, dict) else f"{text}; {_show(value)} is not"


def _fits_nothing(detail: ErrorDetails) -> str:
    return f"{_show(detail['input'])} is of no kind that is allowed here"


def _is_consequence(detail: ErrorDetails) -> bool:
    """Whether this fault is only that faulty entries were not counted."""
    return detail["type"] == "too_short" and bool(detail["input"])


def _follow(steps: Iterable[str | int], root: Schema) -> tuple[Location, Schema]:
    """The place in the data an error speaks of, and the schema there (for a key: around it).

    Pydantic's path also names the union members it tried, which the author never wrote.
    """
    location: Location = ()
    node = around = root
    for step in steps:
        if step == "[key]":
            return location, _resolve(root, around.get("propertyNames", {}))
        if "oneOf" in node:  # the step is the discriminator's value
            node = _resolve(root, {"$ref": node["discriminator"]["mapping"][step]})
            continue
        if isinstance(step, str) and "properties" in node:
            location = (*location, step)
            if step not in node["properties"]:  # the schema around an unknown key knows the others
                return location, node
            inner = node["properties"][step]
        else:
            inner = node.get("items") if isinstance(step, int) else _values(node)
            if inner is None:
                continue
            location = (*location, step)
        node, around = _resolve(root, inner), node
    return location, node


def _values(node: Schema) -> Schema | None:
    """The schema of a mapping's values."""
    inner = node.get("additionalProperties")
    if isinstance(inner, dict):
        return inner
    patterns = node.get("patternProperties", {})
    return next(iter(patterns.values()), None)


def _resolve(root: Schema, node: Schema) -> Schema:
    """`node` without references and without the null that makes it optional."""
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rpartition("/")[2]]
            continue
        members = [m for m in node["anyOf"] if m.get("type") != "null"]
        if len(members) != 1:
            break
        node = members[0]
    return node


def _keys(node: Schema) -> list[str]:
    return list(node.get("properties", {}))


def _choices(node: Schema) -> list[str]:
    """The values that an enum, a literal or a discriminator allows."""
    if "oneOf" in node:
        return list(node["discriminator"]["mapping"])
    return [str(v) for v in node.get("enum", [node["const"]] if "const" in node else [])]


def _noun(detail: ErrorDetails, location: Location) -> str:
    if detail["loc"][-1] == "[key]":
        return "key here"
    named = [step for step in location if isinstance(step, str)]
    return named[-1].removesuffix("s")


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
