"""Reads one YAML file as plain data, with the line of every key and entry.

Only what a manifest needs is read: mappings with text keys, lists, text, numbers, true, false and
null. Anchors, tags, duplicate keys and oversized files are faults, so a file can neither run code
nor unfold into more than is written in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Fault", "YamlFile", "read_yaml"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
_DEEPEST = 500  # beyond MAX_DEPTH is a fault with its line, beyond this one without
_PREFIX = "tag:yaml.org,2002:"
_KINDS = ("str", "int", "float", "bool", "null", "seq", "map")
_TAGS = frozenset(_PREFIX + kind for kind in _KINDS)

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """Something wrong at a line of a file; `location` leads there through keys and indices."""

    line: int
    location: Location
    fact: str


@dataclass
class YamlFile:
    """A file's data, the line (from 1) of each location in it, and what is wrong with it."""

    value: Any = None
    lines: dict[Location, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def line(self, location: Location) -> int:
        """The line of `location`, or of the nearest thing around it that the file has."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)


def read_yaml(path: Path) -> YamlFile:
    """Read a file; what cannot be read is in the result's `faults`, never an exception."""
    file = YamlFile()
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            file.faults.append(Fault(1, (), f"the file exceeds {MAX_BYTES} bytes"))
            return file
        root = _compose(data.decode("utf-8"))
    except OSError as error:
        file.faults.append(Fault(1, (), f"the file cannot be read ({error.strerror})"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        file.faults.append(Fault(line, (), "the file is not UTF-8 text"))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        file.faults.append(Fault(line, (), f"not YAML: {error.problem or error.context}"))
    except (YAMLError, RecursionError, ValueError) as error:
        fact = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        file.faults.append(Fault(1, (), f"not YAML: {fact.splitlines()[0] if fact else 'faulty'}"))
    else:
        if root is None:
            file.faults.append(Fault(1, (), "the file is empty"))
        else:
            file.value = _Builder(file).build(root, ())
    return file


def _compose(text: str) -> Node | None:
    """The document's root, None if it is empty.

    libyaml does it, five times as fast as Python. It composes by recursion without a bound, so the
    depth is first found out from the events, for which it needs none.

    Raises:
        RecursionError: it is nested too deeply.
        YAMLError: it is not YAML.
    """
    depth = 0
    for event in YAML(typ="safe").parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _DEEPEST:
            raise RecursionError
    root: Node | None = YAML(typ="safe").compose(text)
    return root


class _Builder:
    """Turns nodes into data, noting lines and faults in `file`."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._seen: set[int] = set()
        self._scalars = YAML(typ="safe", pure=True).constructor

    def build(self, node: Node, location: Location) -> Any:
        if id(node) in self._seen:  # its own mark is where it was first written
            fact = "anchors and aliases are not read; write it out"
            self._file.faults.append(Fault(self._file.line(location), location, fact))
            return None
        self._seen.add(id(node))
        self._file.lines.setdefault(location, node.start_mark.line + 1)
        if len(location) > MAX_DEPTH:
            self._fault(node, location, f"nested more than {MAX_DEPTH} deep")
            return None
        if node.tag not in _TAGS:
            kind = str(node.tag).removeprefix(_PREFIX)
            self._fault(node, location, f"{kind} values are not read; quote it to mean text")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, location)
        if isinstance(node, SequenceNode):
            return [self.build(item, (*location, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, location)

    def _mapping(self, node: MappingNode, location: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.tag != _PREFIX + "str":
                self._fault(key_node, location, "a key is text; quote it if it looks otherwise")
                continue
            key = key_node.value
            if key in result:
                first = self._file.lines[(*location, key)]
                self._fault(key_node, (*location, key), f"written twice, first on line {first}")
                continue
            self._file.lines[(*location, key)] = key_node.start_mark.line + 1
            result[key] = self.build(value_node, (*location, key))
        return result

    def _scalar(self, node: Node, location: Location) -> Any:
        try:
            return self._scalars.construct_object(node)
        except ValueError as error:
            self._fault(node, location, str(error).split(";")[0])
            return None

    def _fault(self, node: Node, location: Location, fact: str) -> None:
        self._file.faults.append(Fault(node.start_mark.line + 1, location, fact))
