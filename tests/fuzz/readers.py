"""What is fuzzed of Python: a reader for each kind of file, and what must hold of what it took.

A reader ends well or with a `MenagerieError`; whatever else it raises is a fault. `test_readers.py`
plays the corpora and seeded mutations of them; `run.py` hands the readers to libFuzzer.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

from bundle_maker import make_bundle
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from menagerie.errors import ArtifactError, MenagerieError
from menagerie.format.archive import unpack
from menagerie.format.bundle_manifest import manifest_document, parse_manifest
from menagerie.format.folder import open_bundle
from menagerie.host import RUNTIME_ABI
from menagerie.library import last_error, library
from menagerie.shader_source import translate
from menagerie.speech.recipe import read_recipe
from menagerie.store.latest import trusted_ledger
from menagerie.tensor_files import read_array, read_tensors
from menagerie.trust.ledger import LEDGER_TYPE, envelope, read_ledger
from menagerie.trust.roots import TrustRoot, parse_root
from menagerie.trust.signature import encoded, read_signatures
from menagerie.typed_json import Malformed, document, load
from zoo.manifest import load_manifest
from zoo.report.files import read_graphs, read_report
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.sources.package import torchscript_tensors
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from menagerie.store.base import ObjectReader
    from menagerie.trust.ledger import Ledger

CORPUS = Path(__file__).parent / "corpus"
_MOST_ELEMENTS = 2**24  # of an array that is walked; what is larger is only mapped


def takes(name: str, content: bytes) -> bool:
    """Whether the reader of that name takes the bytes; raises what is a fault of it."""
    try:
        READERS[name](content)
    except MenagerieError as error:
        if not error.place or not error.fact:
            raise AssertionError("an error says its place and a fact") from error
        return False
    return True


@cache
def _folder() -> Path:
    """A folder of this process, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    made = tempfile.TemporaryDirectory(prefix="menagerie-fuzz-", dir=place)
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _written(name: str, content: bytes) -> Path:
    path = _folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _json(content: bytes) -> None:
    try:
        value = load(content)
    except Malformed as error:
        raise ArtifactError("json", str(error)) from error
    assert load(document(value)) == value


def _safetensors(content: bytes) -> None:
    """The whole file, or from its header on; see safetensors.cpp."""
    if content.startswith(b"h"):
        header, _, data = content[1:].partition(b"\n")
        header += b" " * (-len(header) % 8)
        content = len(header).to_bytes(8, "little") + header + data
    for tensor in read_tensors(_written("t", content)).values():
        assert not tensor.flags.writeable or tensor.size == 0
        if tensor.size < _MOST_ELEMENTS:
            tensor.tobytes()


def _manifest(content: bytes) -> None:
    """What is written of what was read is read as the same; and C takes what Python takes."""
    folder = _written("manifest/manifest.json", content).parent
    opened = ctypes.c_void_p()
    if library("cpu").menagerie_bundle_open(os.fsencode(folder), ctypes.byref(opened)):
        # what is said of the manifest; other refusals are of this machine or the missing files
        native = not last_error("cpu").startswith(f"{folder}/manifest.json: ")
    else:
        library("cpu").menagerie_bundle_close(opened)
        native = True
    try:
        manifest = parse_manifest(content, "manifest.json")
    except ArtifactError as error:
        fault = str(error)  # the time is for Python alone to check: C has no use for it
        if native and "created: " not in fault:
            raise AssertionError("C takes what Python refuses") from error
        raise
    assert native, f"Python takes what C refuses: {last_error('cpu')}"
    assert parse_manifest(manifest_document(manifest), "again") == manifest


def _bundle(content: bytes) -> None:
    """A folder whose manifest and weights need not fit each other; see bundle.cpp."""
    text, _, weights = content.partition(b"\0")
    here = {
        "@": str(len(weights)), "^": "linux", "%": "x86_64", "$": "linux-x86_64",
        "!": str(RUNTIME_ABI),
    }  # fmt: skip
    for name, value in here.items():
        text = text.replace(name.encode(), value.encode())
    _written("bundle/manifest.json", text)
    _written("bundle/w", weights)
    for name in ("l.so", "g"):
        _written(f"bundle/{name}", b"x")
    bundle = open_bundle(_folder() / "bundle", check_hashes=False)
    for path in bundle.manifest.listed:
        assert bundle.file(path).resolve().is_relative_to(_folder().resolve())
    read_tensors(bundle.file(bundle.manifest.weights.path))


def _archive(content: bytes) -> None:
    """What is refused leaves nothing behind, and nothing is unpacked elsewhere."""
    out = _folder() / "archive" / "out"
    path = _written("archive/a.zip", content)
    shutil.rmtree(out, ignore_errors=True)
    try:
        unpack(path, out)
        unpacked = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        assert unpacked <= len(content)
    except MenagerieError:
        assert not out.exists()
        raise
    finally:
        beside = sorted(p.name for p in path.parent.iterdir())
        assert set(beside) <= {"a.zip", "out"}, beside


def _npy(content: bytes) -> None:
    array = read_array(str(_written("a.npy", content)))
    assert not array.dtype.hasobject
    assert array.nbytes <= len(content)


@cache
def _signer() -> tuple[Ed25519PrivateKey, TrustRoot]:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return key, TrustRoot({"a" * 64: public}, 1, 1, b"", "root.json")


def _ledger(content: bytes) -> None:
    """An envelope (`e`), or what a trusted key has signed (`p`): the key's holder may err too."""
    key, root = _signer()
    kind, rest = content[:1], content[1:]
    if kind == b"p":
        rest = envelope(rest, {"a" * 64: key.sign(encoded(LEDGER_TYPE, rest))})
    ledger = read_ledger(rest, "ledger", [root])
    assert kind == b"p", "nobody has signed it"
    latest = ledger.latest
    assert latest is None or ledger.retraction(latest.build_key) is None
    signed = {"a" * 64: key.sign(encoded(LEDGER_TYPE, ledger.document()))}
    assert read_ledger(envelope(ledger.document(), signed), "again", [root]) == ledger


def _trust(content: bytes) -> None:
    """A root's metadata (`r`), or signature.json (`s`)."""
    if content[:1] == b"r":
        root = parse_root(content[1:], "root.json")
        assert root.threshold >= 1
        assert all(len(key) == 32 for key in root.keys.values())
    else:
        assert all(len(each) == 64 for each in read_signatures(content[1:], "s").values())


_TUF_FILES = {b"t": "timestamp.json", b"s": "snapshot.json", b"g": "targets.json", b"l": "ledger"}


@cache
def _promoted() -> tuple[ObjectReader, Ledger]:
    """A store with one release, whose keys this process has made; its ledger."""
    os.environ["MENAGERIE_TRUST"] = str(_folder() / "trusted")
    os.environ["MENAGERIE_HOME"] = str(_folder() / "home")
    (_folder() / "trusted").mkdir(exist_ok=True)
    store = open_store(f"{_folder()}/store")
    release = store.propose(make_bundle(_folder() / "made"))
    Promoter(store, Keyring.create(_folder() / "keys")).promote(release)
    ledger = trusted_ledger(store.objects, release.model, release.platform)
    assert ledger is not None
    return store.objects, ledger


def _tuf(content: bytes) -> None:
    """Metadata and ledger of a store, or what this machine has kept of them.

    The first byte says which: one of the store's files, or all that was kept. Behind `=` are its
    new bytes, else edits of four bytes each: a place, what is put there.
    """
    objects, ledger = _promoted()
    kept, shown = _folder() / "home", _folder() / "store"
    name = _TUF_FILES.get(content[:1])
    pattern = f"*{name}" if name in set(_TUF_FILES.values()) - {"ledger"} else "*.json"
    place = kept if name is None else shown / ("ledgers" if name == "ledger" else "metadata")
    shutil.rmtree(kept, ignore_errors=True)
    trusted_ledger(objects, ledger.model, ledger.platform)
    before = {p: p.read_bytes() for p in place.rglob(pattern)}
    assert before
    try:
        for path, whole in before.items():
            path.write_bytes(content[2:] if content[1:2] == b"=" else _edited(whole, content[1:]))
        assert trusted_ledger(objects, ledger.model, ledger.platform) == ledger
    finally:
        for path, whole in before.items():
            path.write_bytes(whole)


def _edited(whole: bytes, edits: bytes) -> bytes:
    text = bytearray(whole)
    for start in range(0, len(edits) - 3, 4):
        at = int.from_bytes(edits[start : start + 2], "big") % len(text)
        text[at : at + edits[start + 2] % 3] = edits[start + 3 : start + 4]
    return bytes(text)


def _yaml(content: bytes) -> None:
    load_manifest(_written("yaml/mine.yaml", content).parent)


def _recipe(content: bytes) -> None:
    read_recipe(_written("speech.json", content), ["encoder", "ctc", "decoder", "joint"])


def _torchscript(content: bytes) -> None:
    path = _written("net.jit", b"")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", content)
        archive.writestr("net/code/net.py", b"")
        archive.writestr("net/data/0", bytes(16))
        archive.writestr("net/data/1", bytes(8))
    tensors = torchscript_tensors(path, "net")
    assert sum(tensor.nbytes for tensor in tensors.values()) <= len(content) * 16


def _report(content: bytes) -> None:
    folder = _written("report/report.json", content).parent
    _written("report/graphs.json", content)
    read_graphs(folder)
    read_report(folder)


def _metal(content: bytes) -> None:
    translate(content.decode("latin-1"))


READERS: dict[str, Callable[[bytes], None]] = {
    "json": _json,
    "safetensors": _safetensors,
    "manifest": _manifest,
    "bundle": _bundle,
    "archive": _archive,
    "npy": _npy,
    "ledger": _ledger,
    "trust": _trust,
    "tuf": _tuf,
    "yaml": _yaml,
    "recipe": _recipe,
    "torchscript": _torchscript,
    "report": _report,
    "metal": _metal,
}
