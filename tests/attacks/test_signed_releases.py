"""Writing into a store, or being its mirror, is not running code: only the keys' holder can."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_maker import make_bundle, publish

from menagerie.format.folder import open_bundle
from menagerie.host import RUNTIME_ABI
from menagerie.store import open_releases
from menagerie.store.layout import ledger_key, provenance_key, release_key, signature_key
from menagerie.trust import add_root
from zoo.errors import ArtifactError, NotInStore, Retracted, Untrusted, UsageError
from zoo.signing.keyring import Expiry, Keyring, Role, keyring_for
from zoo.signing.metadata import StoreMetadata
from zoo.signing.promotion import Promoter
from zoo.signing.provenance import read_provenance
from zoo.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuf.api.metadata import Snapshot, Targets, Timestamp

    from zoo.store import Release

    Promote = Callable[..., Release]


def test_a_promoted_release_is_found_and_pulled(
    promoted: Promote, store: Store, tmp_path: Path
) -> None:
    """The intended way: signed by the publisher's own keys, it comes with its signature."""
    release = promoted()
    folder = store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    bundle = open_bundle(folder)
    assert bundle.document == release.document
    assert bundle.signature is not None


def test_a_candidate_is_no_release(store: Store, keyring: Keyring, tmp_path: Path) -> None:
    """What a worker proposes is neither found nor pulled; the keys' holder sees it wait."""
    candidate = store.propose(make_bundle(tmp_path / "made"))
    with pytest.raises(NotInStore):
        store.find("tiny", "cpu")
    with pytest.raises(Untrusted, match="nobody has signed"):
        store.pull(candidate, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [c.build_key for c in store.candidates()] == [candidate.build_key]
    assert store.held([candidate.names])  # so that no other worker converts it again


def test_writing_into_the_store_publishes_nothing(
    promoted: Promote, store: Store, tmp_path: Path
) -> None:
    """A release put where releases are, newer and validated, is not found and not pulled."""
    good = promoted("ab")
    bad = make_bundle(tmp_path / "bad", build_key="cd" * 32, created="2031-01-01T00:00:00+00:00")
    planted = publish(Store(store.objects, allow_unsigned=True), bad)
    assert store.find("tiny", "cpu").build_key == good.build_key
    with pytest.raises(Untrusted):
        store.find("tiny", "cpu", "cd" * 32)
    with pytest.raises(Untrusted):
        store.pull(planted, tmp_path / "out")


def test_a_release_of_anothers_key_is_refused(
    store: Store, keyring: Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong key: an attacker's own keys sign, list and date all, and are not trusted."""
    monkeypatch.setenv("MENAGERIE_TRUST", str(tmp_path / "attackers-trust"))
    (tmp_path / "attackers-trust").mkdir()
    theirs = Keyring.create(tmp_path / "attackers-keys")
    Promoter(store, theirs).promote(store.propose(make_bundle(tmp_path / "made")))
    assert store.find("tiny", "cpu")  # as the attacker sees it
    monkeypatch.delenv("MENAGERIE_TRUST")
    with pytest.raises(Untrusted):
        store.find("tiny", "cpu")


def test_an_altered_manifest_is_refused(promoted: Promote, store: Store, tmp_path: Path) -> None:
    """Looser tolerances under the old signature: the digest in the ledger differs."""
    release = promoted()
    altered = release.document.replace(b'"absolute": ', b'"absolute": 9')
    assert altered != release.document
    store.objects.put_small(release_key(*release.names), altered)
    with pytest.raises(Untrusted, match="not the one that was promoted"):
        store.find("tiny", "cpu")


def test_a_signature_cannot_be_moved(promoted: Promote, store: Store, tmp_path: Path) -> None:
    """A right signature of one release next to another's document."""
    first, second = promoted("ab"), promoted("cd")
    stolen = store.objects.read_small(signature_key(*first.names), 2**16)
    store.objects.put_small(signature_key(*second.names), stolen)
    with pytest.raises(Untrusted, match="not what was signed"):
        store.pull(store.find("tiny", "cpu"), tmp_path / "out")


# The Update Framework's own attacks, https://theupdateframework.github.io/specification/ 1.5.2.


def snapshot_of(store: Store, tmp_path: Path, name: str) -> Path:
    """All that a mirror had at some time."""
    return Path(shutil.copytree(store.url, tmp_path / name))


def mirror(store: Store, old: Path, folders: tuple[str, ...]) -> None:
    """Shows older files of some folders in the place of today's."""
    for folder in folders:
        shutil.rmtree(Path(store.url) / folder)
        shutil.copytree(old / folder, Path(store.url) / folder)


def test_rollback(promoted: Promote, store: Store, tmp_path: Path) -> None:
    """A mirror that goes back to an old state, rightly signed, is refused."""
    promoted("ab")
    old = snapshot_of(store, tmp_path, "old")
    promoted("cd")
    assert store.find("tiny", "cpu").build_key == "cd" * 32
    mirror(store, old, ("metadata", "ledgers"))
    with pytest.raises(Untrusted):
        store.find("tiny", "cpu")


def test_rollback_without_the_extra(
    promoted: Promote, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only numpy is installed: a ledger that is shorter than one seen before."""
    monkeypatch.setattr("menagerie.store.latest.find_spec", lambda _: None)
    promoted("ab")
    old = snapshot_of(store, tmp_path, "old")
    promoted("cd")
    assert store.find("tiny", "cpu").build_key == "cd" * 32
    mirror(store, old, ("ledgers",))
    with pytest.raises(Untrusted, match="seen here before"):
        store.find("tiny", "cpu")


def test_freeze(store: Store, own_home: Path, tmp_path: Path) -> None:
    """A mirror that always shows the same state is refused when that has expired."""
    keyring = Keyring.create(own_home / "keys", expiry=Expiry(timestamp=1))
    Promoter(store, keyring).promote(store.propose(make_bundle(tmp_path / "made")))
    assert store.find("tiny", "cpu")
    expire(store, keyring, "timestamp")
    with pytest.raises(Untrusted, match="expired"):
        store.find("tiny", "cpu")
    Promoter(store, keyring).refresh()
    assert store.find("tiny", "cpu")


def expire(store: Store, keyring: Keyring, name: str) -> None:
    """What `name` says is dated so that it ended yesterday, signed by the right key."""
    metadata = StoreMetadata(store.objects, keyring)
    yesterday = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)

    def dated(signed: Timestamp | Snapshot | Targets) -> None:
        signed.version += 1
        signed.expires = yesterday if signed.type == name else yesterday.replace(year=2100)

    metadata._next = dated  # type: ignore[method-assign,assignment]
    metadata.refresh()


def test_mix_and_match(promoted: Promote, store: Store, tmp_path: Path) -> None:
    """Today's metadata over yesterday's ledger: rightly signed, but never together."""
    promoted("ab")
    old = snapshot_of(store, tmp_path, "old")
    promoted("cd")
    mirror(store, old, ("ledgers",))
    with pytest.raises(Untrusted):
        store.find("tiny", "cpu")


def test_endless_data(promoted: Promote, store: Store) -> None:
    """A mirror that sends more than any metadata may have is not read to its end."""
    promoted()
    for name in ("metadata/timestamp.json", ledger_key("tiny", platform())):
        path = Path(store.url) / name
        whole = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(2**40)  # a hole: it would fill any memory
        with pytest.raises(Untrusted):
            store.find("tiny", "cpu")
        path.write_bytes(whole)
    assert store.find("tiny", "cpu")


def platform() -> str:
    """The platform of the hand-made bundles."""
    import platform as machine

    from menagerie.format.bundle_manifest import Requirements, platform_name

    here = Requirements(
        system=machine.system().lower(), machine=machine.machine(), runtime_abi=RUNTIME_ABI
    )
    return platform_name("cpu", here)


def test_keys_are_rotated(
    promoted: Promote, store: Store, keyring: Keyring, tmp_path: Path
) -> None:
    """A stolen release key: after the rotation nothing that it signs is taken any more."""
    promoted("ab")
    assert store.find("tiny", "cpu")
    stolen = tmp_path / "stolen"
    shutil.copytree(keyring.folder, stolen)
    ledgers = store.ledgers()
    keyring.rotate(Role.RELEASE)
    Promoter(store, keyring).resign(ledgers)
    assert store.find("tiny", "cpu").build_key == "ab" * 32
    assert store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    thief = Promoter(store, Keyring(stolen))
    thief.promote(store.propose(make_bundle(tmp_path / "bad", build_key="cd" * 32)))
    with pytest.raises(Untrusted):
        store.find("tiny", "cpu")


def test_a_client_follows_a_rotation(
    promoted: Promote,
    store: Store,
    keyring: Keyring,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that trusts root 1 is led to root 2 by the store itself, and keeps it."""
    promoted("ab")
    client = tmp_path / "client"
    monkeypatch.setenv("MENAGERIE_HOME", str(client))
    add_root(keyring.root_document, "handed over")
    assert open_releases(store.url).find("tiny", "cpu")
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    ledgers = store.ledgers()
    keyring.rotate(Role.RELEASE)
    Promoter(store, keyring).resign(ledgers)
    monkeypatch.setenv("MENAGERIE_HOME", str(client))
    reader = open_releases(store.url)
    reader.pull(reader.find("tiny", "cpu"), tmp_path / "out")
    kept = [json.loads(p.read_bytes()) for p in (client / "trust").glob("*.json")]
    assert [each["signed"]["version"] for each in kept] == [2]


def test_a_threshold_needs_so_many_keys(store: Store, own_home: Path, tmp_path: Path) -> None:
    """Of two keys that must sign, a thief has one."""
    keyring = Keyring.create(
        own_home / "keys", keys={Role.RELEASE: 2}, thresholds={Role.RELEASE: 2}
    )
    (keyring.folder / "release-2.pem").unlink()
    with pytest.raises(UsageError, match="1 of the 2"):
        Promoter(store, keyring).promote(store.propose(make_bundle(tmp_path / "made")))


def test_a_worker_has_no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its role forbids it to make or open any, even where they could be read."""
    monkeypatch.setenv("MENAGERIE_ROLE", "worker")
    assert keyring_for(str(tmp_path / "store")) is None


def test_rolled_back_and_retracted(
    promoted: Promote, store: Store, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`latest` goes where the ledger says; a retracted release cannot be had any more."""
    promoted("ab")
    promoted("cd")
    [ledger] = store.ledgers("tiny")
    Promoter(store, keyring).rollback(ledger)
    assert store.find("tiny", "cpu").build_key == "ab" * 32
    [ledger] = store.ledgers("tiny")
    Promoter(store, keyring).retract(ledger, "cd" * 32, "wrong labels")
    with pytest.raises(Retracted, match="wrong labels"):
        store.find("tiny", "cpu", "cd" * 32)
    [ledger] = store.ledgers("tiny")
    Promoter(store, keyring).retract(ledger, "ab" * 32, "")
    with pytest.raises(NotInStore, match=r"all releases of tiny for .* were retracted"):
        store.find("tiny", "cpu")
    monkeypatch.setattr(store._reader, "list_keys", lambda _: None)  # as on the web
    with pytest.raises(NotInStore, match="were retracted") as raised:
        store.find("tiny", "cpu")
    assert "name one with --platform" not in str(raised.value)
    assert "ledger" not in str(raised.value)


def test_others_may_not_read_the_keys(keyring: Keyring) -> None:
    """The folder and each key are their owner's alone, and a folder that is not is refused."""
    assert keyring.folder.stat().st_mode & 0o077 == 0
    assert all(p.stat().st_mode & 0o077 == 0 for p in keyring.folder.glob("*.pem"))
    keyring.folder.chmod(0o755)
    with pytest.raises(UsageError, match="others may look"):
        Keyring(keyring.folder)


def test_keys_are_made_in_no_other_users_folder(
    keyring: Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner reads them, though its mode keeps all others out: none are made there."""
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    user = os.geteuid()  # root's folder is another user's as well
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        Keyring(keyring.folder)
    with pytest.raises(UsageError, match="belongs to another user"):
        Keyring.create(empty)
    assert list(empty.iterdir()) == []


def test_provenance_is_signed_and_of_these_files(promoted: Promote, store: Store) -> None:
    """The statement names every file of the release; one of other files is refused."""
    first, second = promoted("ab"), promoted("cd")
    found = read_provenance(store, first)
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    digests = {each["name"]: each["digest"]["sha256"] for each in found["subject"]}
    assert digests["programs/main/model.so"] == hashlib.sha256(b"ab").hexdigest()
    foreign = store.objects.read_small(provenance_key(*second.names), 2**20)
    store.objects.put_small(provenance_key(*first.names), foreign)
    with pytest.raises(ArtifactError, match="other files"):
        read_provenance(store, first)


def test_what_signing_costs(promoted: Promote, store: Store, tmp_path: Path) -> None:
    """The checks of signature, ledger and metadata add at most 50 ms to a pull."""
    promoted()
    store.find("tiny", "cpu")  # libraries are loaded
    best = min(timed(lambda: store.find("tiny", "cpu")) for _ in range(5))
    unsigned = Store(store.objects, allow_unsigned=True)
    assert best - min(timed(lambda: unsigned.find("tiny", "cpu")) for _ in range(5)) < 0.05


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    began = time.process_time()
    work()
    return time.process_time() - began


def evil(tmp_path: Path, digits: str = "ab") -> Path:
    """Another's bundle under a build key that can be foreseen."""
    files = {"programs/main/model.so": b"evil code"}
    return make_bundle(tmp_path / "evil", files, build_key=digits * 32)


def good(tmp_path: Path, digits: str = "ab") -> Path:
    """What the publisher made himself."""
    files = {"programs/main/model.so": b"good code"}
    return make_bundle(tmp_path / "good", files, build_key=digits * 32)


def code_of(store: Store, folder: Path) -> bytes:
    """The library that a reader gets."""
    pulled = store.pull(store.find("tiny", "cpu"), folder)
    return (pulled / "programs/main/model.so").read_bytes()


def test_a_planted_candidate_is_not_signed(store: Store, keyring: Keyring, tmp_path: Path) -> None:
    """The publisher signs what he made, not what was in the store under its build key."""
    store.propose(evil(tmp_path))
    promoter = Promoter(store, keyring)
    promoter.promote(store.propose(good(tmp_path), vouched=promoter.has_signed))
    assert code_of(store, tmp_path / "out") == b"good code"


def test_a_planted_release_is_replaced(store: Store, keyring: Keyring, tmp_path: Path) -> None:
    """However often the good one is promoted, the ledger never names the other."""
    planted = publish(Store(store.objects, allow_unsigned=True), evil(tmp_path))
    promoter = Promoter(store, keyring)
    made = store.propose(good(tmp_path), vouched=promoter.has_signed)
    for _ in range(2):
        promoter.promote(made)
        [ledger] = store.ledgers("tiny")
        assert not ledger.names("ab" * 32, planted.digest)
    assert code_of(store, tmp_path / "out") == b"good code"


def test_a_rotation_signs_only_what_was_promoted(
    promoted: Promote, store: Store, keyring: Keyring, tmp_path: Path
) -> None:
    """A document that was swapped before the rotation gets no signature of the new key."""
    release = promoted("ab")
    other = open_bundle(evil(tmp_path)).document
    ledgers = store.ledgers()
    before = store.objects.read_small(signature_key(*release.names), 2**16)
    store.objects.put_small(release_key(*release.names), other)
    keyring.rotate(Role.RELEASE)
    Promoter(store, keyring).resign(ledgers)
    assert store.objects.read_small(signature_key(*release.names), 2**16) == before


def test_what_was_retracted_is_not_promoted_again(
    promoted: Promote, store: Store, keyring: Keyring, tmp_path: Path
) -> None:
    """Converting the same build again brings no hole back."""
    release = promoted("ab")
    promoter = Promoter(store, keyring)
    promoter.retract(store.ledgers("tiny")[0], release.build_key, "a hole")
    with pytest.raises(Retracted, match="a hole"):
        promoter.promote(release)
    with pytest.raises((NotInStore, Retracted)):
        store.find("tiny", "cpu")


def test_a_retraction_made_meanwhile_is_kept(
    promoted: Promote, store: Store, keyring: Keyring
) -> None:
    """A decision by a ledger that was read before is added to the current one."""
    promoted("ab"), promoted("cd")
    [early] = store.ledgers("tiny")
    promoter = Promoter(store, keyring)
    promoter.retract(early, "ab" * 32, "a hole")
    promoter.retract(early, "cd" * 32, "another")
    [now] = store.ledgers("tiny")
    assert [entry.action for entry in now.entries] == ["promote", "promote", "retract", "retract"]


def test_a_ledger_that_is_gone_is_missed(promoted: Promote, store: Store) -> None:
    """Withholding it would hide what was retracted."""
    release = promoted("ab")
    assert store.find("tiny", "cpu")
    store.objects.delete(ledger_key("tiny", release.platform))
    with pytest.raises(Untrusted, match=r"is gone|is not what"):
        store.find("tiny", "cpu")


def test_many_read_the_metadata_at_once(promoted: Promote, store: Store, own_home: Path) -> None:
    """As a plan of many models does, also where nothing is known of the store yet."""
    release = promoted("ab")

    def found(_: int) -> str:
        return store.find("tiny", "cpu").build_key

    for _ in range(10):
        shutil.rmtree(own_home / "tuf", ignore_errors=True)
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(found, range(16))) == {release.build_key}
