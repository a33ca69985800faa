"""What `zoo release push` leaves on the Hub is read by `menagerie pull` and the Hub's own tools."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import make_bundle
from huggingface_hub import ModelCard, snapshot_download

from flows.cli import invoke
from menagerie.cli import main
from zoo.catalogue.pages import MODEL_SIGNING_KEY, ROOT, WHEELS
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import open_store

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from hub_server import TOKEN, HubServer, Repository, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zoo.store import Store

# Of the Hub's own client.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

HUB = "hf://example/net"
PLATFORM = "cpu-linux-x86_64"
FILES = {"programs/main/model.so": b"\x7fELF" * 40_000, "report.html": b"<p>proven"}
WHEEL = "menagerie-1.0.0-py3-none-manylinux_2_28_x86_64.whl"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub that this user may write to; its uploads would fail by Xet, another protocol."""
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
        yield server


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of one promoted model, and a wheel beside it; only what is signed counts."""
    monkeypatch.setenv("MENAGERIE_ALLOW_UNSIGNED", "0")
    monkeypatch.setenv("MENAGERIE_TRUST", str(tmp_path / "trust"))
    (tmp_path / "trust").mkdir()
    monkeypatch.setenv("MENAGERIE_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("MENAGERIE_STORE", str(tmp_path / "store"))
    made = open_store(str(tmp_path / "store"))
    (tmp_path / WHEEL).write_bytes(b"a wheel")
    release(made, tmp_path, "ab")
    return made


def release(store: Store, tmp_path: Path, digits: str, **more: Any) -> None:
    """Promote a build of the model."""
    keys = tmp_path / "keys"
    keyring = Keyring(keys) if keys.exists() else Keyring.create(keys)
    folder = tmp_path / digits
    bundle = make_bundle(
        folder, {**FILES, "own": digits.encode()}, build_key=digits * 32, model="net", **more
    )
    Promoter(store, keyring).promote(store.propose(bundle))


def pushed(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What `zoo release push` says."""
    capfd.readouterr()
    code = invoke(["push", HUB, *arguments, "--json"])
    captured = capfd.readouterr()
    assert code == 0, captured.err
    found: dict[str, Any] = json.loads(captured.out)
    return found


def test_what_was_pushed_is_pulled(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte, its signature too, which is checked before anything appears."""
    said = pushed(capfd)
    assert said["address"] == f"{hub.address}/example/net"
    assert said["commit"] == hub.repositories["example/net"].name()
    assert main(["pull", HUB, "--platform", PLATFORM, "-o", str(tmp_path / "out")]) == 0
    for name, content in FILES.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    assert main(["pull", "net", "--platform", PLATFORM, "-o", str(tmp_path / "direct")]) == 0
    for name in ("manifest.json", "signature.json"):
        direct = (tmp_path / "direct" / name).read_bytes()
        assert (tmp_path / "out" / name).read_bytes() == direct


def test_the_hubs_own_tools_read_it(
    hub: HubServer,
    store: Store,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files have their own names; the card says what the Hub filters by, and the way.

    From any folder, and where the store has no catalogue yet; what the card lacks is named.
    """
    monkeypatch.setattr("flows.cli.releases._BUILT", tmp_path / "nothing")
    [lacking] = pushed(capfd)["lacking"]
    assert lacking.startswith("pip install: no wheel")
    store.objects.delete(ROOT)
    monkeypatch.setattr("flows.cli.releases._BUILT", tmp_path)
    monkeypatch.chdir("/")
    assert pushed(capfd)["lacking"] == []
    folder = Path(
        snapshot_download("example/net", endpoint=hub.address, local_dir=tmp_path / "all")
    )
    assert (folder / PLATFORM / "programs/main/model.so").read_bytes() == FILES[
        "programs/main/model.so"
    ]
    assert (folder / "wheels" / WHEEL).read_bytes() == b"a wheel"
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "menagerie"
    assert card.data.tags == ["menagerie", PLATFORM]
    lines = card.text.partition("```sh\n")[2].partition("```")[0].splitlines()
    at = f"{hub.address}/example/net/resolve/main"
    assert lines == [
        f"pip install {at}/wheels/{WHEEL}",
        f"menagerie trust {at}/root.json",
        f"menagerie pull {HUB} --target cpu -o net",
    ]
    assert main(["trust", f"{at}/root.json"]) == 0
    assert str(tmp_path) not in card.text


def test_a_card_has_a_space_between_versions(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They read as a list in a sentence does."""
    release(store, tmp_path, "cd", versions={"numpy": "2.1.0", "torch": "2.13.0"})
    pushed(capfd)
    card = ModelCard(hub.repositories["example/net"].commits[-1]["README.md"].decode())
    assert "made with numpy 2.1.0, torch 2.13.0" in card.text


def test_a_licence_that_the_hub_does_not_know(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One of its owner's own has a name there; of another, a line says what is wrong."""
    release(store, tmp_path, "cd", licence="LicenseRef-My-Own-1.0")
    pushed(capfd)
    card = ModelCard(hub.repositories["example/net"].commits[-1]["README.md"].decode())
    assert (card.data.license, card.data.license_name) == ("other", "my-own-1.0")
    release(store, tmp_path, "ef", licence="Nobodys-1.0")
    assert invoke(["push", HUB]) == 1
    error = " ".join(capfd.readouterr().err.split())
    assert '"license" must be one of' in error
    assert "LicenseRef-NAME" in error


def test_others_check_the_signature_too(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By OpenSSF Model Signing's own command: what was promoted, and nothing else."""
    pushed(capfd)
    out, key = tmp_path / "out", tmp_path / "model-signing.pub"
    key.write_bytes(hub.repositories["example/net"].commits[-1]["model-signing.pub"])
    assert store.objects.read_small(MODEL_SIGNING_KEY, 2**12) == key.read_bytes()
    assert main(["pull", HUB, "--platform", PLATFORM, "-o", str(out)]) == 0

    def verify() -> str:
        files = ("--signature", str(out / "model.sig"), "--public_key", str(key))
        command = [sys.executable, "-m", "model_signing", "verify", "key", str(out), *files]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    assert verify() == "Verification succeeded\n"
    (out / "own").write_bytes(b"xy")
    assert "succeeded" not in verify()
    (out / "own").write_bytes(b"ab")
    (out / "stranger").write_bytes(b"")
    assert "succeeded" not in verify()


def test_a_second_push_moves_what_changed(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The weights stay where they are; an earlier revision can still be had, and is that build."""
    first = pushed(capfd)["commit"]
    release(store, tmp_path, "cd")
    before = len(hub.uploaded)
    second = pushed(capfd)["commit"]
    assert len(hub.uploaded) == before + 2  # the file that the builds do not share, and model.sig
    for revision, digits in ((first, "ab"), (second, "cd")):
        place = tmp_path / f"at-{digits}"
        assert main(["pull", f"{HUB}@{revision}", "--platform", PLATFORM, "-o", str(place)]) == 0
        assert (place / "own").read_text() == digits


def test_a_copy_knows_no_retraction(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """So that a push says what to do where no release is left that could take its place."""
    pushed(capfd)
    promoter = Promoter(store, Keyring(tmp_path / "keys"))
    promoter.retract(store.ledgers("net")[0], "ab" * 32, "wrong labels")
    assert invoke(["push", HUB]) == 1
    error = " ".join(capfd.readouterr().err.split())
    assert "no release of net may be used any more" in error
    assert f"Delete {HUB}" in error
    assert main(["pull", HUB, "--platform", PLATFORM, "-o", str(tmp_path / "old")]) == 0
    release(store, tmp_path, "cd")
    pushed(capfd)
    assert main(["pull", HUB, "--platform", PLATFORM, "-o", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "own").read_text() == "cd"


def test_what_was_altered_there_is_refused(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file, the manifest, an absent signature: nothing appears."""
    pushed(capfd)
    there = hub.repositories["example/net"].commits[-1]
    sound = dict(there)
    for name, content, said in (
        ("programs/main/model.so", FILES["programs/main/model.so"][::-1], "not the ones that were"),
        ("manifest.json", sound[f"{PLATFORM}/manifest.json"] + b" ", "is not what was signed"),
        ("signature.json", None, "nobody has signed"),
    ):
        there.clear()
        there.update(sound)
        if content is None:
            del there[f"{PLATFORM}/{name}"]
        else:
            there[f"{PLATFORM}/{name}"] = content
        capfd.readouterr()
        assert main(["pull", HUB, "--platform", PLATFORM, "-o", str(tmp_path / "out")]) == 1
        assert said in capfd.readouterr().err
        assert not (tmp_path / "out").exists()


def test_a_push_that_breaks_off_changes_nothing(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line says so, and what was there before is there; of a new repository nothing is."""
    hub.full = True
    assert invoke(["push", HUB]) == 1
    assert not hub.repositories
    hub.full = False
    pushed(capfd)
    before = hub.repositories["example/net"].name()
    release(store, tmp_path, "cd")
    hub.full = True
    assert invoke(["push", HUB]) == 1
    error = capfd.readouterr().err
    assert "Error while uploading" in error
    assert "Push again later" in error
    assert hub.repositories["example/net"].name() == before


def test_private_repositories_ask_for_a_token(
    hub: HubServer,
    store: Store,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one they are pulled; without it a line says what to set."""
    pushed(capfd, "--private")
    assert hub.repositories["example/net"].private
    assert main(["pull", HUB, "--platform", PLATFORM, "-o", str(tmp_path / "out")]) == 0
    monkeypatch.delenv("HF_TOKEN")
    capfd.readouterr()
    assert main(["pull", HUB, "--platform", PLATFORM, "-o", str(tmp_path / "no")]) == 1
    assert "set HF_TOKEN" in capfd.readouterr().err


def test_a_repository_without_releases_says_so(
    hub: HubServer, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`pull` says *no release*, and why: none at all, or which platforms there are."""
    hub.repositories["example/net"] = Repository()
    pull = ["pull", HUB, "-o", str(tmp_path / "out"), "--platform"]
    assert main([*pull, PLATFORM]) == 1
    assert "no release: none of its folders has a manifest.json" in capfd.readouterr().err
    pushed(capfd)
    assert main([*pull, "metal-macos-arm64"]) == 1
    assert f"no release for metal-macos-arm64, but for {PLATFORM}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["hf://net"], 2, "is not a repository of the Hub"),
        (["hf://example/../net"], 2, "is not a repository of the Hub"),
        (["hf://example/net@v1"], 2, "names a revision"),
        (["hf://example/absent"], 2, "nothing of absent was promoted"),
    ],
)
def test_misuse_is_a_line(
    store: Store, capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    """Of an invalid address, and of what the store lacks; the Hub is not asked."""
    assert invoke(["push", *arguments]) == code
    error = capfd.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_stranger_cannot_push(
    hub: HubServer, store: Store, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how to log in, and nothing is made."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    assert invoke(["push", HUB]) == 2
    error = capfd.readouterr().err
    assert "refused access (401)" in error
    assert "hf auth login" in error
    assert "hf_of_somebody_else" not in error
    assert not hub.repositories


def test_another_holders_key_replaces_none(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was signed before would no longer prove; the log says what to do."""
    shown = store.objects.read_small(MODEL_SIGNING_KEY, 2**12)
    assert shown == (tmp_path / "keys" / "model-signing.pub").read_bytes()
    (tmp_path / "keys" / "model-signing.pem").unlink()  # as in a copy of before there was one
    release(store, tmp_path, "cd")
    assert store.objects.read_small(MODEL_SIGNING_KEY, 2**12) == shown
    assert "is of another key than model-signing.pem here" in caplog.text
    assert (tmp_path / "keys" / "model-signing.pem").stat().st_mode & 0o777 == 0o600


def test_what_is_not_signed_in_the_store_is_not_pushed(
    hub: HubServer, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another writer could hand it on under the owner's name, or name a path for it."""
    evil = {"wheels": ["../../evil.whl", "/evil.whl"], "address": None}
    store.objects.put_small("catalogue/site.json", json.dumps(evil).encode())
    store.objects.put_small(f"{WHEELS}{WHEEL}", b"an evil wheel")
    store.objects.put_small(ROOT, b"{}")
    store.objects.put_small(MODEL_SIGNING_KEY, b"evil")
    pushed(capfd)
    files = hub.repositories["example/net"].commits[-1]
    known = {PLATFORM, "README.md", "root.json", "wheels"}
    assert {name.partition("/")[0] for name in files} <= known
    assert b"evil" not in b"".join(files.values())


def test_what_a_repository_holds_besides_is_not_removed(
    hub: HubServer, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    """A push replaces all: it takes a new repository, or one of its own."""
    there = hub.repositories["example/net"] = Repository()
    there.commits.append({".gitattributes": b"", "pytorch_model.bin": b"of another user"})
    assert invoke(["push", HUB]) == 2
    assert "contains other files, which a push would remove" in capfd.readouterr().err
    there.commits.append({".gitattributes": b"", "README.md": b"# new"})
    pushed(capfd)
    assert invoke(["push", HUB, "--private"]) == 2
    assert "is there, and public" in capfd.readouterr().err
    assert store.objects


@pytest.mark.parametrize(
    "address", ["http://user:word@127.0.0.1:1", "file:///etc", "http://[", "ftp://hub", "hub"]
)
def test_what_is_no_address_of_a_hub(
    store: Store, capfd: pytest.CaptureFixture[str], address: str
) -> None:
    """None is asked; a password in it is not repeated."""
    assert invoke(["push", HUB, "--endpoint", address]) == 2
    error = capfd.readouterr().err
    assert "is not the address of a Hub" in error
    assert "word" not in error
    assert store.objects


def test_a_hub_that_does_not_answer(
    store: Store, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, with what to look at."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert invoke(["push", HUB, "--endpoint", "http://127.0.0.1:1"]) == 1
    error = capfd.readouterr().err
    assert "http://127.0.0.1:1: cannot be reached" in error
    assert "Check --endpoint" in error
    assert store.objects


def test_what_answers_but_is_no_hub(
    store: Store, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web server's page says nothing of licences: the address is what to look at."""

    class Pages(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><p>Welcome")

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = invoke(["push", HUB, "--endpoint", f"http://127.0.0.1:{server.server_port}"])
        server.shutdown()
    error = capfd.readouterr().err
    assert code == 1
    assert "Check --endpoint" in error
    assert "licence" not in error
    assert store.objects


@pytest.mark.parametrize("name", ["example/net.git", f"example/{'n' * 100}"])
def test_a_name_that_the_hub_does_not_take(
    hub: HubServer, store: Store, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """It is misuse; nothing is made there."""
    assert invoke(["push", f"hf://{name}", "net"]) == 2
    error = " ".join(capfd.readouterr().err.split())
    assert "refused the name" in error
    assert "Name another repository" in error
    assert "licence" not in error
    assert not hub.repositories
    assert store.objects


def test_a_token_with_a_line_break_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python's own error would repeat it."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret\nmore")
    assert main(["pull", HUB]) == 2
    error = capfd.readouterr().err
    assert "HF_TOKEN" in error
    assert "hf_secret" not in error
