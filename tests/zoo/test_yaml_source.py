"""YAML as plain data with lines, and nothing that could run or explode."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.yaml_source import MAX_BYTES, read_yaml

if TYPE_CHECKING:
    from pathlib import Path

# Without control and format characters, which YAML allows only as escapes.
_TEXT = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=20)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(1 - 2**64, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
)
_DATA = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(_DATA.filter(lambda value: value is not None))
def test_reads_json_as_json_does(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    """JSON is YAML 1.2: any of it is read as the data it means."""
    path = tmp_path_factory.mktemp("yaml") / "a.yaml"
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    file = read_yaml(path)
    assert file.faults == []
    assert file.value == value


@given(st.binary(max_size=200) | st.text(alphabet="[]{}:,-&*!|>?'\"#%@ \n\tab1", max_size=80))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes | str) -> None:
    """Whatever the bytes, the answer is data or faults, and never an exception."""
    path = tmp_path_factory.mktemp("yaml") / "a.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    file = read_yaml(path)
    assert file.faults or file.value is not None or content


def test_lines_of_keys_and_entries(tmp_path: Path) -> None:
    """Every location knows its line; an unknown one takes that of what is around it."""
    path = tmp_path / "a.yaml"
    path.write_text("# note\na:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n")
    file = read_yaml(path)
    assert file.value == {"a": {"b": 1, "c": ["x", {"d": 2}]}}
    lines = {("a",): 2, ("a", "b"): 3, ("a", "c"): 4, ("a", "c", 1, "d"): 6}
    assert {location: file.line(location) for location in lines} == lines
    assert file.line(("a", "c", 7, "e")) == 4


def test_yaml_1_2_words_stay_text(tmp_path: Path) -> None:
    """`no` and `on` are words, as YAML 1.2 has it; numbers keep their kinds."""
    path = tmp_path / "a.yaml"
    path.write_text("[no, on, 1, 0x10, 1e3, 1.5, -.inf, ~, true]\n")
    assert read_yaml(path).value == ["no", "on", 1, 16, 1000.0, 1.5, -math.inf, None, True]


@pytest.mark.parametrize(
    ("text", "line", "fact"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "written twice, first on line 1"),
        ("a: &x [1]\nb: *x\n", 2, "anchors and aliases are not read"),
        ("a: &x\n  b: *x\n", 2, "anchors and aliases are not read"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", 2, "values are not read"),
        ("a: !mine {b: 1}\n", 1, "!mine values are not read"),
        ("a: 2020-01-01\n", 1, "timestamp values are not read"),
        ("a: !!binary aGk=\n", 1, "binary values are not read"),
        ("a: !!bool x\n", 1, "bool values are not read"),
        ("a: !!int ''\n", 1, "int values are not read"),
        ("a: {b: !!map [1], b: 2}\n", 1, "map values are not read"),
        ("!!str a: b\n", 1, "a key is text"),
        ("1: a\n", 1, "a key is text"),
        ("? [a]\n: b\n", 1, "a key is text"),
        ("a: [1\nb: 2\n", 2, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("", 1, "the file is empty"),
        ("# only a note\n", 1, "the file is empty"),
        ("a: 1\n---\nb: 2\n", 2, "not YAML"),
        ("a: " + "9" * 5000 + "\n", 1, ""),
        ("a: 1\nb: 0x" + "f" * 20_000, 2, "a whole number has at most 64 bits"),
        ("a: 0x1" + "0" * 16, 1, "a whole number has at most 64 bits"),
        ("[" + "1," * 500_000 + "]", 1, "more than 50000 keys and values"),
        ("".join(f"k{i}: 1\n" for i in range(25_001)), 1, "more than 50000 keys and values"),
        ("[" * 40 + "]" * 40, 1, "nested more than 32 deep"),
        ("[" * 900_000, 1, "nested too deeply"),  # deep enough to overrun a stack
        ("- " * 450_000, 1, "nested too deeply"),
        ("? " * 450_000, 1, "nested too deeply"),
        ("[" * 2_000, 1, "not YAML"),
        ("a: " + "x" * MAX_BYTES, 1, "the file exceeds"),
    ],
)
def test_hostile_or_mistaken_files(tmp_path: Path, text: str, line: int, fact: str) -> None:
    """Each is a fault with its line; tags construct nothing."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    file = read_yaml(path)
    assert file.faults
    assert file.faults[0].line == line
    assert fact in file.faults[0].fact


def test_aliases_of_nothing_and_a_second_document_are_reported_together(tmp_path: Path) -> None:
    """In the words for aliases, each with its line."""
    path = tmp_path / "a.yaml"
    path.write_text("a: *x\nb: 1\nc: [*y]\n---\nd: 2\n---\n")
    file = read_yaml(path)
    alias = "anchors and aliases are not read; write it out"
    document = "not YAML: a second document begins here; a file holds one"
    assert [(fault.line, fault.fact) for fault in file.faults] == [
        (1, alias), (3, alias), (4, document),
    ]  # fmt: skip


def test_what_is_refused_ends_where_it_ends(tmp_path: Path) -> None:
    """Of a refused key or value nothing is read, and all that is after it is read."""
    path = tmp_path / "a.yaml"
    path.write_text("a: !x [{b: 1}, 2]\n? {c: [3]}\n: [4, {d: 5}]\na: {e: [6]}\nf: [7]\n")
    file = read_yaml(path)
    assert file.value == {"a": None, "f": [7]}
    assert [fault.line for fault in file.faults] == [1, 2, 4]


def test_alias_bomb_takes_no_time(tmp_path: Path) -> None:
    """Nested aliases, which would unfold into 10**9 entries, are faults at once."""
    path = tmp_path / "a.yaml"
    rows = ["a0: &a0 [x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    path.write_text("\n".join(rows))
    assert len(read_yaml(path).faults) == 90


def test_not_utf8_and_missing(tmp_path: Path) -> None:
    """Bytes that are no text, and no file, are faults."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    assert [(f.line, f.fact) for f in read_yaml(path).faults] == [(2, "the file is not UTF-8 text")]
    missing = read_yaml(tmp_path / "b.yaml").faults
    assert [f.fact for f in missing] == ["the file cannot be read (No such file or directory)"]
