"""State dicts from a file beside the manifest or from a URL, verified before they are opened."""

from __future__ import annotations

import errno
import hashlib
import pickle
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit, urlunsplit

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from menagerie.durable import sha256_of, sync
from menagerie.figures import shown_address
from menagerie.paths import home
from menagerie.store.http import HttpReader
from zoo.errors import HashMismatch, SourceError, SourceRefused, StoreError
from zoo.sources import factory
from zoo.sources.context import Context, reading, resolve_inside
from zoo.sources.fingerprint import is_fetched
from zoo.spec import CheckpointSource

untrained = factory.untrained  # the module that the weights are for
MOST_BYTES = 64 << 30  # above any checkpoint that this project converts


def downloads() -> Path:
    """Return the folder of downloaded files and of files made from them."""
    folder = home() / "downloads"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def keep(
    name: str, sha256: str, write: Callable[[IO[bytes]], None], *, place: str, model: str
) -> Path:
    """Return a file of the downloads folder, written by `write` unless it exists.

    Messages name its origin, `place`, and its model; `sha256` may be a prefix of the digest. Raise
    SourceError if it cannot be written, HashMismatch if its digest differs; nothing is kept then.
    """
    cached = downloads() / re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if cached.exists() and sha256_of(cached).startswith(sha256):
        return cached
    with whole(cached, model) as part:
        with part.open("xb") as stream:
            write(stream)
        require_digest(sha256_of(part), sha256, place, model)
    return cached


@contextmanager
def whole(file: Path, model: str) -> Iterator[Path]:
    """Yield a path at which to write `file`, which is renamed if the block does not raise.

    Raise SourceError if it cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".part-") as scratch:
            part = Path(scratch) / "part"
            yield part
            sync(part)
            part.replace(file)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        fact = "has no space left" if full else f"cannot be written ({error.strerror})"
        step = f"{'Free some, or set' if full else 'Set'} MENAGERIE_HOME"
        raise SourceError(model, f"{file.parent} {fact}", step) from error


def fetch(url: str, sha256: str, *, model: str) -> Path:
    """Return the file at an https address, downloaded once into the downloads folder.

    Raise SourceError if the download fails, e.g. because a server redirects to an address without
    https, SourceRefused if the address is not https; otherwise raise as `keep` does.
    """
    place = hashlib.sha256(url.encode()).hexdigest()[:16]
    name = f"{place}-{sha256[:16]}-{urlsplit(url).path.rpartition('/')[2]}"
    return keep(name, sha256, lambda file: _download(url, file, model), place=url, model=model)


def require_digest(actual: str, promised: str, what: str, model: str) -> None:
    """Raise HashMismatch if a digest differs; `promised` may be a prefix of it."""
    if not actual.startswith(promised):
        fact = f"{shown_address(what)} has sha256 {actual}, promised was {promised}"
        raise HashMismatch(model, fact, "If the new file is meant, write its sha256 into the entry")


def _require_promised(path: Path, source: CheckpointSource, context: Context) -> None:
    """Check a file's digest; never disclose the digest of a file outside the manifest's folder."""
    if not path.is_file():
        fact = f"{source.path} is not a regular file"
        raise SourceError(context.model, fact, "Name a file of tensors")
    actual = sha256_of(path)
    if source.outside and actual != source.sha256:
        fact = f"{source.path} has another sha256 than promised, {source.sha256}"
        raise HashMismatch(context.model, fact, "Write what `sha256sum` prints into the entry")
    require_digest(actual, source.sha256, source.path, context.model)


def _download(url: str, target: IO[bytes], model: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https":
        raise SourceRefused(model, f"{shown_address(url)} is not https", "Give an https address")
    try:
        server = HttpReader(urlunsplit(parts._replace(path="")))
        for place, block in server.parts(parts.path.removeprefix("/")):
            if place + len(block) > MOST_BYTES:
                fact = f"{shown_address(url)} sends more than {MOST_BYTES:,} bytes"
                raise SourceError(model, fact, "Check the address")
            target.write(block)
    except StoreError as error:
        step = "Check the address and the network, or convert with --random-weights SEED"
        raise SourceError(model, f"{error.place}: {error.fact}", step) from error


def trained(source: CheckpointSource, context: Context) -> nn.Module:
    """Return the module with the checkpoint's weights.

    Raise HashMismatch if the file's digest differs, SourceRefused if its path leads out of the
    manifest's folder or it holds more than tensors, SourceError if it cannot be fetched or read, or
    does not fit the module.
    """
    if is_fetched(source):
        path = fetch(source.path, source.sha256, model=context.model)
    else:
        path = resolve_inside(source.path, context, outside=source.outside)
        _require_promised(path, source, context)
    module = untrained(source, context)
    fill(module, read_state(path, context.model), context.model)
    return module


def read_state(path: Path, model: str, key: str | None = None) -> Mapping[str, Tensor]:
    """Return the tensors of a verified file, or of its entry `key`, without running any code in it.

    Raise SourceRefused if it pickles more than tensors, SourceError if it cannot be read or is no
    state dict.
    """
    with reading(path.name, model, "Save the state dict again"):
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        _refuse_inflation(path, model)
        try:
            with warnings.catch_warnings(action="ignore"):  # what matters about the file is raised
                state = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            fact = f"{path.name} is not a pickle of tensors only"
            raise SourceRefused(model, fact, "Save the state dict as safetensors") from error
    if key is not None:
        known = [str(each) for each in state] if isinstance(state, dict) else []
        if key not in known:
            step = f"Correct `key`; it has: {', '.join(known[:8])}"
            raise SourceError(model, f"{path.name} has no entry {key!r}", step)
        state = state[key]
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        fact = f"{path.name} is not a state dict"
        raise SourceError(model, fact, "Save module.state_dict() as safetensors")
    return state


def fill(module: nn.Module, state: Mapping[str, Tensor], model: str) -> None:
    """Load exactly the tensors of `state` into `module`; raise SourceError for any difference."""
    own = module.state_dict()
    differences = {
        "missing": sorted(own.keys() - state.keys()),
        "unknown to the module": sorted(state.keys() - own.keys()),
        "of another shape": sorted(
            key for key in own.keys() & state.keys() if own[key].shape != state[key].shape
        ),
    }
    facts = [f"{len(keys)} {what} ({keys[0]})" for what, keys in differences.items() if keys]
    if facts:
        fact = f"the weights do not fit: {', '.join(facts)}"
        raise SourceError(model, fact, "Fix the builder or its arguments")
    module.load_state_dict(state)


def _refuse_inflation(path: Path, model: str) -> None:
    """Refuse a zip with compressed or overlapping entries or code: tensors are stored raw."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if any("/code/" in entry.filename for entry in entries):
        raise SourceRefused(model, f"{path.name} is TorchScript: code", "Save its state dict alone")
    packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
        fact = f"{path.name} would unpack to more than it is"
        raise SourceRefused(model, fact, "Save the state dict with torch.save, or as safetensors")
