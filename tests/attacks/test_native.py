"""What the C library refuses before it loads anything, and where it agrees with Python."""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from bundle_maker import make_bundle
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from safetensors.numpy import save

from menagerie.cli import main
from menagerie.errors import SessionError
from menagerie.format.bundle_manifest import parse_manifest
from menagerie.library import last_error, library, native_tool
from menagerie.session import Session
from menagerie.trust import trusted_place
from menagerie.trust.signature import is_signed
from zoo.errors import ArtifactError
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import sign_own

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def signed_open(folder: Path) -> str:
    """What the C library says to opening a bundle that must be signed; empty if it opens."""
    opened = ctypes.c_void_p()
    lib = library("cpu")
    place = os.fsencode(trusted_place())
    if lib.menagerie_bundle_open_signed(os.fsencode(folder), place, ctypes.byref(opened)):
        return last_error("cpu")
    lib.menagerie_bundle_close(opened)
    return ""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A sealed bundle that C opens; it is not signed."""
    weights = save({"fc.weight": np.zeros(2, np.float32)})
    return make_bundle(tmp_path / "bundle", {"weights.safetensors": weights})


def test_nothing_unsigned_is_opened(bundle: Path, keyring: Keyring) -> None:
    """Neither by C, nor by Session, nor by menagerie-run; with the signature all go on."""
    assert "nobody has signed" in signed_open(bundle)
    with pytest.raises(SessionError, match="nobody has signed"):
        Session(bundle)
    tool = [str(native_tool()), str(bundle)]
    own = {"MENAGERIE_HOME": os.environ["MENAGERIE_HOME"]}
    refused = subprocess.run(tool, capture_output=True, text=True, check=False, env=own)
    assert refused.returncode == 1
    assert "--allow-unsigned" in refused.stderr
    sign_own(bundle, keyring)
    assert signed_open(bundle) == ""
    tried = subprocess.run(tool, capture_output=True, text=True, check=False, env=own)
    assert "nobody has signed" not in tried.stderr  # it fails later, at loading
    with pytest.raises(SessionError) as caught:
        Session(bundle)
    assert "nobody has signed" not in str(caught.value)


@pytest.mark.parametrize("variable", ["MENAGERIE_HOME", "MENAGERIE_TRUST"])
@pytest.mark.parametrize("change", ["owner", "mode"])
def test_the_tool_takes_no_keys_of_others(
    bundle: Path, keyring: Keyring, variable: str, change: str
) -> None:
    """A place that others could have put a root in is named before anything is opened."""
    sign_own(bundle, keyring)
    place = Path(os.environ["MENAGERIE_HOME"])
    place = place if variable == "MENAGERIE_HOME" else place / "trust"
    if change == "mode":
        place.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(place, 12345, -1)
    else:
        pytest.skip("only root can change a file's owner")
    tool = [str(native_tool()), str(bundle)]
    env = {variable: str(place)}
    done = subprocess.run(tool, capture_output=True, text=True, check=False, env=env)
    fact = "belongs to another user" if change == "owner" else "is writable by everyone"
    assert done.stderr == f"menagerie-run: {place}: {fact}. Name the keys with --trust\n"
    trusted = [*tool, "--trust", str(keyring.folder / "root.json")]
    done = subprocess.run(trusted, capture_output=True, text=True, check=False, env=env)
    assert fact not in done.stderr


def test_a_changed_byte_is_found_before_it_is_read(bundle: Path, keyring: Keyring) -> None:
    """In the manifest; and a foreign or damaged signature counts as none."""
    sign_own(bundle, keyring)
    manifest, signature = bundle / "manifest.json", bundle / "signature.json"
    document, mark = manifest.read_bytes(), signature.read_bytes()
    manifest.write_bytes(document.replace(b"made by a test", b"made by a tesT"))
    assert "not what was signed" in signed_open(bundle)
    manifest.write_bytes(b"[" * 10**6)  # would be refused by the reader, too late
    assert "not what was signed" in signed_open(bundle)
    manifest.write_bytes(document)
    signature.write_bytes(mark.replace(b'"keyid": "', b'"keyid": "0')[:-3])
    assert "signature.json" in signed_open(bundle)
    signature.unlink()
    signature.symlink_to("/dev/zero")
    assert "not a regular file" in signed_open(bundle)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weights.safetensors", lambda content: content[:-1] + b"x"),
        ("weights.safetensors", lambda content: content[:-1]),
        ("weights.safetensors", lambda _: None),
        ("manifest.json", lambda content: content[:-9]),
        ("manifest.json", lambda content: content.replace(b"made by a test", b"made by a tesT")),
        ("manifest.json", lambda content: content.replace(b'"model"', b'"mod"')),
        ("signature.json", lambda content: content[:-9]),
        ("signature.json", lambda _: b""),
        ("signature.json", lambda _: None),
    ],
)
def test_damage_is_called_damage(
    bundle: Path,
    keyring: Keyring,
    capsys: pytest.CaptureFixture[str],
    name: str,
    change: Callable[[bytes], bytes | None],
) -> None:
    """By the tool and by `menagerie verify`: pull it again, whatever is damaged; not keys."""
    sign_own(bundle, keyring)
    (bundle / "model.sig").write_text("{}")  # as a release has it
    content = change((bundle / name).read_bytes())
    (bundle / name).unlink()
    if content is not None:
        (bundle / name).write_bytes(content)
    own = {"MENAGERIE_HOME": os.environ["MENAGERIE_HOME"]}
    tool = [str(native_tool()), str(bundle)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False, env=own)
    assert done.returncode == 1
    assert done.stderr.endswith("damaged: pull it again\n")
    assert main(["verify", str(bundle)]) == 1
    said = "".join(capsys.readouterr())
    assert re.search("damaged.*[Pp]ull .*again", said, re.DOTALL), said
    for text in (done.stderr, said):
        assert not {"--trust", "--allow-unsigned", "root.json"} & set(text.split())


def test_a_foreign_key_is_not_trusted(
    bundle: Path, keyring: Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right signature by a key that the root does not name."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("MENAGERIE_TRUST", str(tmp_path / "elsewhere"))
    theirs = Keyring.create(tmp_path / "theirs")
    sign_own(bundle, theirs)
    monkeypatch.delenv("MENAGERIE_TRUST")
    assert "no trusted key" in signed_open(bundle)


@pytest.mark.parametrize("length", [0, 1, 47, 48, 63, 111, 112, 127, 128, 129, 1000])
def test_signatures_are_the_standards(length: int) -> None:
    """Against another implementation, at the edges of SHA-512's padding; a flipped bit is found."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    message = bytes(i * 7 % 256 for i in range(length))
    signature = key.sign(message)
    assert is_signed(signature, public, message)
    assert not is_signed(signature, public, message + b"\0")
    for place in (0, 31, 32, 63):
        spoilt = bytearray(signature)
        spoilt[place] ^= 1
        assert not is_signed(bytes(spoilt), public, message)


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        ({"constants": ["fc.weight"], "calls": 2}, "must be a multiple of"),
        ({"constants": ["fc.weight"], "calls": 0}, "calls"),
        ({"constants": [], "calls": 1}, "constants"),
        ({"constants": ["fc.bias"], "calls": 1}, "there is no constant"),
        ({"constants": ["fc.weight"] * 2, "calls": 1}, "duplicate"),
        ({"constants": ["fc.weight"]}, "calls"),
        ({"constants": ["fc.weight"], "calls": 1, "more": 1}, "more"),
    ],
)
def test_invalid_state_is_refused(bundle: Path, state: Any, fact: str) -> None:
    """By C and by Python, with the same fact; of a sound manifest nothing else is changed."""
    document = json.loads((bundle / "manifest.json").read_bytes())
    program = document["programs"][0]
    assert program["golden_cases"] % 2
    program["state"] = {"constants": ["fc.weight"], "calls": 1}
    assert refused_by_python(json.dumps(document).encode()) == ""
    program["state"] = state
    text = json.dumps(document).encode()
    (bundle / "manifest.json").write_bytes(text)
    with pytest.raises(ArtifactError, match=fact):
        parse_manifest(text, "manifest.json")
    opened = ctypes.c_void_p()
    assert library("cpu").menagerie_bundle_open(os.fsencode(bundle), ctypes.byref(opened))
    assert fact in last_error("cpu")


@pytest.mark.parametrize(
    "mutations",
    [pytest.param(1_500, id="share"), pytest.param(25_000, id="whole", marks=pytest.mark.sweep)],
)
def test_c_and_python_agree_on_mutated_manifests(bundle: Path, mutations: int) -> None:
    """Both take the same manifests, except for times, which C does not read."""
    plain = json.loads((bundle / "manifest.json").read_bytes())
    stateful = json.loads(json.dumps(plain))
    stateful["programs"][0]["state"] = {"constants": ["fc.weight"], "calls": 1}
    differing = []
    for seed in range(mutations):
        whole = stateful if seed % 3 == 0 else plain
        text = json.dumps(mutated(whole, random.Random(seed))).encode()  # noqa: S311 - repeatable
        (bundle / "manifest.json").write_bytes(text)
        refusal = refused_by_python(text)
        opened = ctypes.c_void_p()
        if library("cpu").menagerie_bundle_open(os.fsencode(bundle), ctypes.byref(opened)):
            fact = last_error("cpu")
            # what is said of the manifest; other refusals are of this machine or these files
            native = not fact.startswith(f"{bundle}/manifest.json: ")
        else:
            library("cpu").menagerie_bundle_close(opened)
            fact, native = "", True
        if (refusal == "") != native and "created: " not in refusal:
            differing.append((seed, refusal, fact))
    assert differing == []


def refused_by_python(text: bytes) -> str:
    """What the manifest's reader says against it; empty where it takes it."""
    try:
        parse_manifest(text, "manifest.json")
    except ArtifactError as error:
        return str(error)
    return ""


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 1.0, 1.5, 2**63 - 1, 2**63, -(2**63), 1e300, "", "x", "15.0", "1",
    [], [1], {}, {"x": 1}, "../x", "a" * 300, "0" * 64, "2030-01-31T12:00:00+00:00", "float32", "?",
]  # fmt: skip


def mutated(whole: Any, draw: random.Random) -> Any:
    """A copy with one value replaced, removed, doubled or renamed, somewhere."""
    copy = json.loads(json.dumps(whole))
    place = copy
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return copy
        key = draw.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and draw.random() < 0.75:
            place = place[key]
            continue
        kind = draw.randrange(4)
        if kind == 0:
            del place[key]
        elif kind == 1 and isinstance(place, dict):
            place[f"{key}x"] = place.pop(key)
        else:
            place[key] = draw.choice(VALUES)
        return copy
