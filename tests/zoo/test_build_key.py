"""The build key: equal for equal work, different for anything that changes the artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance
from zoo.build_key import build_key, code_digest
from zoo.spec import ModelSpec

_ROOT = Path(__file__).parents[2]

_ENTRY: dict[str, Any] = {
    "summary": "a model",
    "source": {"kind": "torchvision", "builder": "resnet18"},
    "programs": [
        {"inputs": [{"name": "x", "shape": [1, "n"]}], "dimensions": {"n": {"low": 1, "high": 8}}}
    ],
    "licence": {"spdx": "MIT"},
}
_FACTS: dict[str, Any] = {
    "name": "one",
    "target": "cpu",
    "weights": "random 0",
    "code": "c0de",
    "versions": {"torch": "2.13.0", "gcc": "12"},
}


def _key(entry: dict[str, Any] | None = None, **changes: Any) -> str:
    facts = _FACTS | changes
    return build_key(
        facts.pop("name"), ModelSpec.model_validate(entry or _ENTRY), facts.pop("target"), **facts
    )


def test_equal_facts_equal_key() -> None:
    """Order of keys, defaults spelled out, tags and the other targets do not matter."""
    spelled = _ENTRY | {"dtype": "float32", "tags": ["new"], "targets": ["cpu"]}
    reordered = dict(reversed(_FACTS["versions"].items()))
    assert _key() == _key(spelled, versions=reordered)
    assert len(_key()) == 64
    assert set(_key()) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "two"},
        {"target": "metal"},
        {"weights": "random 1"},
        {"code": "c0df"},
        {"versions": {"torch": "2.13.1", "gcc": "12"}},
        {"versions": {"torch": "2.13.0"}},
    ],
)
def test_each_fact_counts(changes: dict[str, Any]) -> None:
    """Another value of any fact is other work."""
    assert _key(**changes) != _key()


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float16"},
        {"passes": []},
        {"passes": [{"name": "fold"}, {"name": "split"}]},
        {"tolerances": {"float32": {"absolute": 1}}},
        {"licence": {"spdx": "Apache-2.0"}},
        {"summary": "printed in the report"},
    ],
)
def test_what_the_artifact_shows_counts(changes: dict[str, Any]) -> None:
    """The entry's parts that shape the artifact or its report are in the key."""
    assert _key(_ENTRY | changes) != _key()


def test_the_order_of_passes_counts() -> None:
    """Passes do not commute."""
    passes = [{"name": "fold"}, {"name": "split"}]
    assert _key(_ENTRY | {"passes": passes}) != _key(_ENTRY | {"passes": passes[::-1]})


def test_default_tolerances_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stricter default proves anew what an entry leaves to it."""
    before = _key()
    monkeypatch.setitem(DEFAULT_TOLERANCES, Dtype.FLOAT32, Tolerance(absolute=1e-9))
    assert _key() != before


@pytest.mark.parametrize(
    "file",
    ["zoo/models/builders/recognisers.py", "zoo/models/builders/parakeet.py", "zoo/speech.py"],
)
def test_code_that_shapes_a_recogniser_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """No entry names what makes programs of a model of transformers, and writes its recipe."""
    operators = "zoo/models/torchvision_operators.py"
    for name in ("transforms/stages.py", "zoo/speech.py", operators, file):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((_ROOT / name).read_bytes())
    monkeypatch.setattr("zoo.build_key.__file__", str(tmp_path / "zoo" / "build_key.py"))
    code_digest.cache_clear()
    before = code_digest()
    (tmp_path / file).write_text("another = 1\n")
    code_digest.cache_clear()
    after = code_digest()
    code_digest.cache_clear()
    assert before != after
