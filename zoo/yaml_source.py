"""The content of one YAML file, and its faults with their lines, in its author's terms.

Only a manifest's types are read: mappings with text keys, lists, text, numbers, true, false and
null. Anchors, tags, duplicate keys and oversized files are faults, so a file can neither run code
nor expand into more than it contains. Pydantic's errors are reported in the same terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    StreamEndEvent,
)
from ruamel.yaml.nodes import ScalarNode

from zoo.errors import nearest, suggestion

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
_DEEPEST = 500  # a fault beyond MAX_DEPTH has its line, one beyond this does not
MAX_VALUES = 50_000  # including keys
_INTEGER_BITS = 64  # Python refuses to print integers of thousands of digits
_PREFIX = "tag:yaml.org,2002:"
_SCALARS = frozenset(("str", "int", "float", "bool", "null"))

Location = tuple[str | int, ...]
_RULES = YAML(typ="safe", pure=True)  # YAML 1.2's meaning of text without quotes
_SHOWN = 60  # characters of a faulty value that a message repeats
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # Pydantic's, dataclasses'


@dataclass(frozen=True)
class Fault:
    """A fault at a line of a file; `location` is its path of keys and indices."""

    line: int
    location: Location
    fact: str

    def __str__(self) -> str:
        """Return the location, e.g. `models.resnet18.programs[0].dtype`, and the fact."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.location)
        return ": ".join(filter(None, ("".join(steps).removeprefix("."), self.fact)))


@dataclass
class YamlFile:
    """A file's data, the line (from 1) of each location in it, and its faults."""

    value: Any = None
    lines: dict[Location, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """Return the line of `location`, or of the nearest enclosing location in the file."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)


def read_yaml(path: Path) -> YamlFile:
    """Read a file; errors are in the result's `faults` and never raised."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return _faulty(1, f"the file exceeds {MAX_BYTES} bytes")
        return _read(data.decode("utf-8"))
    except OSError as error:
        return _faulty(1, f"the file cannot be read ({error.strerror})")
    except UnicodeDecodeError as error:
        return _faulty(data.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text")
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        return _faulty(line, f"not YAML: {error.problem or error.context}")
    except (YAMLError, RecursionError, ValueError) as error:
        fact = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return _faulty(1, f"not YAML: {fact.splitlines()[0] if fact else 'faulty'}")


def _faulty(line: int, fact: str) -> YamlFile:
    return YamlFile(faults=[Fault(line, (), fact)])


def _read(text: str) -> YamlFile:
    """Build a document's data from libyaml's events in one pass.

    The events need no recursion, however deep the text is. Raise RecursionError if it is nested too
    deeply, YAMLError if it is not YAML.
    """
    events, file = _events(text), YamlFile()
    first = next((event for event in events if isinstance(event, NodeEvent)), None)
    if first is None:
        return _faulty(1, "the file is empty")
    file.value = _Builder(file, events).build(first, ())
    for event in events:
        if not isinstance(event, (DocumentEndEvent, StreamEndEvent)):
            fact = "not YAML: a second document begins here; a file holds one"
            file.faults.append(Fault(event.start_mark.line + 1, (), fact))
            break
    return file


def _events(text: str) -> Iterator[Event]:
    """Yield the parser's events.

    Raise RecursionError if they nest too deeply, YAMLError if the text is no YAML or too large.
    """
    depth = values = 0
    for event in YAML(typ="safe").parse(text):
        values += isinstance(event, NodeEvent)
        if values > MAX_VALUES:
            raise YAMLError(f"more than {MAX_VALUES} keys and values")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _DEEPEST:
            raise RecursionError
        yield event


@lru_cache(maxsize=4096)
def _plain(text: str) -> tuple[str, Any]:
    """Return kind and value of unquoted text; raise ValueError if it only looks like a number.

    The cache helps because manifests repeat their words.
    """
    tag = str(_RULES.resolver.resolve(ScalarNode, text, (True, False)))
    kind = tag.removeprefix(_PREFIX)
    if kind == "str" or kind not in _SCALARS:
        return kind, text
    constructor = _RULES.constructor
    value = constructor.yaml_constructors[tag](constructor, ScalarNode(tag, text))
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        raise ValueError(f"a whole number has at most {_INTEGER_BITS} bits")
    return kind, value


class _Builder:
    """A builder of data from events, which records lines and faults in `file`."""

    def __init__(self, file: YamlFile, events: Iterator[Event]) -> None:
        self._file = file
        self._events = events

    def build(self, event: Event, location: Location) -> Any:
        """Return the value that begins with `event`, and consume all of its events."""
        self._file.lines.setdefault(location, event.start_mark.line + 1)
        if isinstance(event, AliasEvent):
            fact = "anchors and aliases are not read; write it out"
            return self._refuse(event, location, fact)
        if len(location) > MAX_DEPTH:
            return self._refuse(event, location, f"nested more than {MAX_DEPTH} deep")
        if tag := _tag(event):
            return self._refuse(event, location, _not_read(tag.removeprefix(_PREFIX)))
        if isinstance(event, ScalarEvent):
            return self._scalar(event, location)
        mapping = isinstance(event, MappingStartEvent)
        return self._mapping(location) if mapping else self._sequence(location)

    def _sequence(self, location: Location) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := next(self._events), CollectionEndEvent):
            result.append(self.build(event, (*location, len(result))))
        return result

    def _mapping(self, location: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self._events), CollectionEndEvent):
            line = event.start_mark.line + 1
            key = self._key(event)
            if key is None:
                self._refuse(event, location, "a key is text; quote it if it looks otherwise")
                self._pass_over(next(self._events))
            elif key in result:
                first = self._file.lines[(*location, key)]
                self._fault(line, (*location, key), f"written twice, first on line {first}")
                self._pass_over(next(self._events))
            else:
                self._file.lines[(*location, key)] = line
                result[key] = self.build(next(self._events), (*location, key))
        return result

    def _key(self, event: Event) -> str | None:
        if not isinstance(event, ScalarEvent) or _tag(event):
            return None
        text: str = event.value
        if not event.implicit[0]:
            return text
        try:
            kind, _ = _plain(text)
        except ValueError:
            return None
        return text if kind == "str" else None

    def _scalar(self, event: ScalarEvent, location: Location) -> Any:
        if not event.implicit[0]:  # quoted, or a block
            return event.value
        try:
            kind, value = _plain(event.value)
        except ValueError as error:
            return self._refuse(event, location, str(error).split(";")[0])
        return value if kind in _SCALARS else self._refuse(event, location, _not_read(kind))

    def _refuse(self, event: Event, location: Location, fact: str) -> Any:
        """Record a fault, and return None for the value that begins with `event`."""
        self._fault(event.start_mark.line + 1, location, fact)
        self._pass_over(event)

    def _pass_over(self, event: Event) -> None:
        depth = int(isinstance(event, CollectionStartEvent))
        while depth > 0:
            event = next(self._events)
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)

    def _fault(self, line: int, location: Location, fact: str) -> None:
        self._file.faults.append(Fault(line, location, fact))


def _tag(event: Event) -> str | None:
    tag: str | None = getattr(event, "tag", None)
    return None if tag == "!" else tag


def _not_read(kind: str) -> str:
    return f"{kind} values are not read; quote it to mean text"


Schema = dict[str, Any]


def explain(error: ValidationError, schema: Schema) -> list[tuple[Location, str]]:
    """Return the location in the data and the fact of every fault that validation found.

    Known names are taken from `schema`, the JSON Schema of the validated type.
    """
    facts: dict[Location, str] = {}
    meant: set[Location] = set()
    # A sequence is too short but not empty only because faulty entries were not counted.
    found = error.errors(include_url=False)
    details = [d for d in found if not (d["type"] == "too_short" and d["input"])]
    for detail in details:
        location, node = _follow(detail["loc"], schema)
        if detail["type"].startswith("union_tag_"):
            location = (*location, node["discriminator"]["propertyName"])
        fact = _fact(detail, location, node)
        if location in facts:
            fact = f"{_show(detail['input'])} is of no kind that is allowed here"
        facts[location] = fact
        if detail["type"] in _UNKNOWN:
            meant.add((*location[:-1], nearest(location[-1], node.get("properties", ())) or ""))
    missing = {_follow(d["loc"], schema)[0] for d in details if d["type"] == "missing"}
    return [(place, fact) for place, fact in facts.items() if place not in missing & meant]


def _fact(detail: ErrorDetails, location: Location, node: Schema) -> str:
    value, kind = detail["input"], detail["type"]
    if kind == "missing":
        return "is missing"
    if kind in _UNKNOWN:
        return f"unknown key{suggestion(location[-1], node.get('properties', ()))}"
    if kind == "union_tag_not_found":
        return "is missing; known: " + ", ".join(_choices(node))
    if kind == "union_tag_invalid":
        value = detail["ctx"]["tag"]
    if kind in ("enum", "literal_error", "union_tag_invalid", "unknown_target"):
        known = detail["ctx"]["known"] if kind == "unknown_target" else _choices(node)
        hint = suggestion(value, known) or f"; known: {', '.join(known)}"
        above = [step for step in location if isinstance(step, str)]
        noun = "key here" if detail["loc"][-1] == "[key]" else above[-1].removesuffix("s")
        return f"{_show(value)} is not a {noun}{hint}"
    if kind == "too_short":
        return "must not be empty"
    if kind == "value_error":
        text = str(detail["ctx"]["error"])
    else:
        text = detail["msg"].removeprefix("Input ")
    return text if isinstance(value, dict) else f"{text}; {_show(value)} is not"


def _follow(steps: Iterable[str | int], root: Schema) -> tuple[Location, Schema]:
    """Return an error's location in the data, and the schema there (for a key: around it).

    Pydantic's path also names the union members that it tried, which are not in the data.
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
            values = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
            inner = node.get("items") if isinstance(step, int) else values[-1]
            if not isinstance(inner, dict):  # unknown, or a union's member
                continue
            location = (*location, step)
        node, around = _resolve(root, inner), node
    return location, node


def _resolve(root: Schema, node: Schema) -> Schema:
    """Return `node` with references resolved and without the null that makes it optional."""
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rpartition("/")[2]]
            continue
        members = [m for m in node["anyOf"] if m.get("type") != "null"]
        if len(members) != 1:
            break
        node = members[0]
    return node


def _choices(node: Schema) -> list[str]:
    if "oneOf" in node:
        return list(node["discriminator"]["mapping"])
    return [str(v) for v in node.get("enum", [node["const"]] if "const" in node else [])]


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
