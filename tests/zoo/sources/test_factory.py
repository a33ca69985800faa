"""Builders: ours always, others only with permission, and failures in one line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from zoo.errors import SourceError, SourceRefused
from zoo.models.builders.yolo_style import YoloStyle
from zoo.sources.context import Context
from zoo.sources.factory import build

if TYPE_CHECKING:
    from pathlib import Path

_CODE = """
from pathlib import Path
from torch import nn
Path(__file__).with_suffix('.ran').touch()
def linear(width=4): return nn.Linear(width, 2)
def number(): return 5
def broken(): raise RuntimeError('no such day')
net = nn.Linear(3, 2)
def mover():
    import sys
    sys.path = [place for place in sys.path if not Path(place, 'owners_models.py').exists()]
    return net
"""


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of the manifest's owner."""
    (tmp_path / "owners_models.py").write_text(_CODE)
    monkeypatch.delitem(sys.modules, "owners_models", raising=False)
    return tmp_path


def test_foreign_code_does_not_run_without_permission(owner: Path) -> None:
    """Without it the module is not even imported."""
    with pytest.raises(SourceRefused, match="allow it with --allow-factories"):
        build("owners_models:linear", {}, Context("m", owner))
    assert not (owner / "owners_models.ran").exists()


def test_permitted_builder_beside_the_manifest(owner: Path) -> None:
    """With it the builder is found beside the manifest and called with the entry's arguments."""
    path = list(sys.path)
    module = build("owners_models:linear", {"width": 7}, Context("m", owner, allow_factories=True))
    assert [tuple(p.shape) for p in module.parameters()] == [(2, 7), (2,)]
    assert sys.path == path


def test_a_builder_may_set_the_path(owner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is gone from it already then."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    context = Context("m", owner, allow_factories=True)
    assert build("owners_models:mover", {}, context) is build("owners_models:net", {}, context)
    assert str(owner) not in sys.path


def test_a_module_takes_no_arguments(owner: Path) -> None:
    """They would be ignored, or taken for forward's."""
    with pytest.raises(SourceError, match="a module already, and takes no arguments"):
        build("owners_models:net", {"width": 7}, Context("m", owner, allow_factories=True))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("owners_models:number", "returned a int"),
        ("owners_models:broken", r"failed \(RuntimeError: no such day\)"),
        ("owners_models:absent", "failed"),
        ("no_such_module_at_all:build", "failed .ModuleNotFoundError"),
    ],
)
def test_failing_builders(owner: Path, reference: str, message: str) -> None:
    """Whatever a builder does wrong is a SourceError that names it."""
    with pytest.raises(SourceError, match=message) as caught:
        build(reference, {}, Context("m", owner, allow_factories=True))
    assert reference in str(caught.value)


def test_ours_need_no_permission(tmp_path: Path) -> None:
    """Builders of this project run for every manifest."""
    reference = "zoo.models.builders.yolo_style:yolo_style"
    assert isinstance(build(reference, {"width": 4}, Context("m", tmp_path)), YoloStyle)


def test_ours_do_not_lend_what_they_import(tmp_path: Path) -> None:
    """A manifest cannot reach a library's functions through a module of ours."""
    reference = "zoo.models.builders.yolo_style:nn"
    with pytest.raises(SourceError):
        build(reference, {}, Context("m", tmp_path))
    with pytest.raises(SourceError, match="returned a NoneType"):
        build("zoo.models.builders.digits_cnn:Tensor", {}, Context("m", tmp_path))
