"""Data of accuracy gates, made of files in packages: what is judged, before any model is."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from safetensors.torch import load_file

from zoo.errors import SourceError
from zoo.sources.context import Context
from zoo.sources.use import gate_data
from zoo.spec import AccuracyGate, TextUse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an entry says of a package with a picture of a line, 4 pixels high and 6 wide."""
    picture = io.BytesIO()
    Image.new("RGB", (6, 4), (250, 10, 10)).save(picture, "png")
    wheel, info = tmp_path / "example_lines-1.0-py3-none-any.whl", "example_lines-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        metadata = "Metadata-Version: 2.1\nName: example-lines\nVersion: 1.0\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr("line.png", picture.getvalue())
        archive.writestr("line.txt", "no picture")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    digests = {
        "line.png": hashlib.sha256(picture.getvalue()).hexdigest(),
        "line.txt": hashlib.sha256(b"no picture").hexdigest(),
    }
    names = {"distribution": "example-lines", "version": "1.0"}
    whole = names | {"wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    return {"package": whole, "digests": digests}


def _gate(package: dict[str, Any], text: str, file: str = "line.png") -> AccuracyGate:
    listed = {"file": file, "sha256": package["digests"][file], "text": text}
    pictures = {"side": 4, "wide": 8, "packages": [package["package"] | {"pictures": [listed]}]}
    return AccuracyGate.model_validate({"metric": "text", "pictures": pictures})


def test_lines_of_text(package: dict[str, Any], tmp_path: Path) -> None:
    """Characters become numbers by the alphabet, also where the same picture had another one.

    What cannot be read, or has a character that the alphabet lacks, is a fault of the entry.
    """
    context = Context("m", tmp_path)
    for alphabet, numbers in (("ab", [1, 2]), ("ba", [2, 1])):
        use = TextUse(kind="text", alphabet=alphabet)
        found = load_file(gate_data(_gate(package, "ab"), use, context))
        assert found["labels"].tolist() == [numbers]
        assert found["picture"].shape == (1, 4, 8, 3)
        assert (found["picture"] == found["picture"][:, :1, :1]).all()
    for gate in (_gate(package, "abc"), _gate(package, "ab", "line.txt")):
        with pytest.raises(SourceError, match="data of its accuracy gate cannot be read"):
            gate_data(gate, use, context)
