"""The signing keys, in a folder that only their owner can read.

::

    keys/
      keyring.json      thresholds, and how long metadata is valid
          root.json         the current root metadata, which people are given to trust
          root-1.pem        signs roots; belongs offline, since only key rotation needs it
      release-1.pem     signs manifests, ledgers and the list of ledgers
      online-1.pem      signs snapshots and timestamps
      model-signing.pem signs releases for other tools, which read model-signing.pub

A process that loads models never opens this folder: workers do not, and the sandbox hides it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import Field, ValidationError
from securesystemslib.signer import CryptoSigner, SSlibKey
from tuf.api.metadata import Metadata, Root
from tuf.api.metadata import Role as TufRole

from menagerie.durable import write_durably
from menagerie.paths import home
from menagerie.trust.roots import TRUST, add_root, parse_root, trusted_place
from zoo.base_models import Frozen
from zoo.errors import UsageError
from zoo.processes import is_worker, owns

KEYS = "MENAGERIE_KEYS"
_FOREIGN = ("belongs to another user", "Keep keys in a folder of your own")  # even to root


class Role(StrEnum):
    """The role of a key."""

    ROOT = "root"
    RELEASE = "release"
    ONLINE = "online"


_TUF_ROLES = {
    "root": Role.ROOT,
    "targets": Role.RELEASE,
    "snapshot": Role.ONLINE,
    "timestamp": Role.ONLINE,
}


class Expiry(Frozen):
    """Days for which each kind of metadata is valid, and a mirror can show an old state."""

    root: int = Field(default=3 * 365, ge=1)
    targets: int = Field(default=365, ge=1)
    snapshot: int = Field(default=30, ge=1)
    timestamp: int = Field(default=7, ge=1)


OWN_EXPIRY = Expiry(root=36500, targets=36500, snapshot=36500, timestamp=36500)


class Settings(Frozen):
    """The number of keys of each role that must sign, and how long metadata is valid."""

    thresholds: dict[Role, int]
    expiry: Expiry


class Keyring:
    """Keys and settings in a folder; `create` makes one, `keyring_for` finds a store's."""

    def __init__(self, folder: Path) -> None:
        """Open a folder; raise UsageError if the keyring is missing, damaged or not private."""
        self.folder = folder
        try:
            self.settings = Settings.model_validate_json((folder / "keyring.json").read_bytes())
            self.root_document = (folder / "root.json").read_bytes()
        except (OSError, ValidationError) as error:
            fact = f"has no keys ({type(error).__name__})"
            raise UsageError(str(folder), fact, "Make some: zoo keys init") from None
        if (status := folder.stat()).st_uid != os.geteuid():
            raise UsageError(str(folder), *_FOREIGN)
        if status.st_mode & 0o077:
            raise UsageError(str(folder), "others may look into it", f"chmod 700 {folder}")

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        keys: dict[Role, int] | None = None,
        thresholds: dict[Role, int] | None = None,
        expiry: Expiry | None = None,
    ) -> Keyring:
        """Create keys and a first root in a folder without any, and trust the root on this machine.

        `keys` has the number of keys of each role, `thresholds` the number that must sign; the
        default is one. Raise UsageError if there are keys already, or a threshold exceeds the
        number of keys.
        """
        counts = dict.fromkeys(Role, 1) | (keys or {})
        needed = dict.fromkeys(Role, 1) | (thresholds or {})
        if above := [role for role in Role if not 1 <= needed[role] <= counts[role]]:
            fact = f"{needed[above[0]]} of {counts[above[0]]} keys cannot sign"
            raise UsageError(f"role {above[0]}", fact, "Give a threshold that its keys can reach")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise UsageError(str(folder), *_FOREIGN)
        folder.chmod(0o700)
        with _locked(folder):
            if (folder / "keyring.json").exists():
                raise UsageError(str(folder), "has keys already", "See `zoo keys rotate`")
            settings = Settings(thresholds=needed, expiry=expiry or Expiry())
            for role in Role:
                for number in range(1, counts[role] + 1):
                    _new_key(folder / f"{role}-{number}.pem")
            _new_model_signing_key(folder)
            _write_root(folder, settings, previous=None)
            _write(folder / "keyring.json", settings.model_dump_json(indent=1).encode())
        made = cls(folder)
        made.trust()
        return made

    @property
    def root(self) -> Metadata[Root]:
        """The current root."""
        return Metadata.from_bytes(self.root_document)

    @property
    def roots(self) -> dict[int, bytes]:
        """All roots by version; a client follows them from the one that it trusts."""
        found = {int(p.name.split(".")[0]): p.read_bytes() for p in self.folder.glob("*.root.json")}
        return dict(sorted(found.items()))

    def signers(self, role: Role) -> list[CryptoSigner]:
        """Return those keys of a role in the current root that are present in the folder.

        Raise UsageError if too few are present to sign.
        """
        listed = {key.keyid for key in self.public_keys(role)}
        found = [key for key in _keys(self.folder, role) if key.public_key.keyid in listed]
        if len(found) < (needed := self.settings.thresholds[role]):
            fact = f"{len(found)} of the {needed} {role} keys that must sign are here"
            raise UsageError(str(self.folder), fact, "Bring them, e.g. from offline")
        return found

    def model_signing_key(self) -> CryptoSigner:
        """Return the key for model.sig, and create it in an older folder that has none."""
        path = self.folder / "model-signing.pem"
        if not path.exists():
            _new_model_signing_key(self.folder)
        key = _read_key(path)
        if key.public_key.scheme != "ecdsa-sha2-nistp256":
            raise UsageError(str(path), "is not a key on the curve P-256", "Bring the right one")
        return key

    def public_keys(self, role: Role) -> list[SSlibKey]:
        """Return the public keys of a role in the current root."""
        name = next(n for n, r in _TUF_ROLES.items() if r is role)
        signed = self.root.signed
        return [signed.keys[i] for i in signed.roles[name].keyids]  # type: ignore[misc]

    def rotate(self, role: Role) -> None:
        """Replace the keys of a role, with a root that the old root keys sign too.

        Raise UsageError if the root keys are not present.
        """
        with self.hold():
            old_roots = self.signers(Role.ROOT)
            retired = self.folder / "retired"
            retired.mkdir(mode=0o700, exist_ok=True)
            listed = {key.keyid for key in self.public_keys(role)}
            for path in sorted(self.folder.glob(f"{role}-*.pem")):
                signer = _read_key(path)
                if signer.public_key.keyid in listed:
                    path.rename(retired / f"{signer.public_key.keyid[:16]}.pem")
                    _new_key(path)
            _write_root(self.folder, self.settings, previous=self.root, co_signers=old_roots)
        self.root_document = (self.folder / "root.json").read_bytes()
        self.trust()

    def trust(self) -> None:
        """Trust these keys on this machine, in the place where it looks for trusted roots."""
        place = trusted_place()
        if os.environ.get(TRUST) and not place.is_dir():
            return  # the owner named a file, or a folder that is still to be created
        roots = [parse_root(document, str(self.folder)) for document in self.roots.values()]
        ours = {keyid for root in roots for keyid in root.keys}
        with suppress(FileNotFoundError):
            for path in place.glob("*.json"):
                if parse_root(path.read_bytes(), str(path)).keys.keys() & ours:
                    path.unlink()
        add_root(self.root_document, str(self.folder / "root.json"), place)

    def hold(self) -> AbstractContextManager[None]:
        """Reserve signing for this process while the block runs, because metadata is numbered."""
        return _locked(self.folder)


def keys_folder() -> Path:
    """Return `$MENAGERIE_KEYS`, or else `keys` in Menagerie's home folder."""
    asked = os.environ.get(KEYS)
    return Path(asked).expanduser().absolute() if asked else home() / "keys"


def keyring_for(store: str) -> Keyring | None:
    """Return the keys that sign for a store; None if this process has none.

    Missing keys are created for a local folder or a store of this user.
    """
    own = owns(store)
    if is_worker() and not own:  # workers run models, so they may not sign
        return None
    folder = keys_folder()
    if (folder / "keyring.json").exists():
        return Keyring(folder)
    if not own and "://" in store and not store.startswith("file:"):
        return None
    try:
        return Keyring.create(folder, expiry=OWN_EXPIRY)
    except UsageError:
        if (folder / "keyring.json").exists():  # another process was faster
            return Keyring(folder)
        raise


def _write_root(
    folder: Path,
    settings: Settings,
    previous: Metadata[Root] | None,
    co_signers: Sequence[CryptoSigner] = (),
) -> None:
    """Write the next root, signed by its own root keys and by the previous root's."""
    version = 1 if previous is None else previous.signed.version + 1
    keys = {role: _keys(folder, role) for role in Role}
    signed = Root(
        version=version,
        expires=expires(settings.expiry.root),
        keys={k.public_key.keyid: k.public_key for each in keys.values() for k in each},
        roles={
            name: TufRole([k.public_key.keyid for k in keys[role]], settings.thresholds[role])
            for name, role in _TUF_ROLES.items()
        },
        consistent_snapshot=True,
    )
    metadata = Metadata(signed)
    signers = {k.public_key.keyid: k for k in [*co_signers, *keys[Role.ROOT]]}
    for signer in signers.values():
        metadata.sign(signer, append=True)
    document = metadata.to_bytes()
    _write(folder / f"{version}.root.json", document)
    _write(folder / "root.json", document)


def expires(days: int) -> datetime:
    """Return the time in `days` days, in whole seconds as TUF writes it."""
    return (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)


def _keys(folder: Path, role: Role) -> list[CryptoSigner]:
    return [_read_key(path) for path in sorted(folder.glob(f"{role}-*.pem"))]


def _read_key(path: Path) -> CryptoSigner:
    try:
        return CryptoSigner(load_pem_private_key(path.read_bytes(), password=None))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(str(path), f"is not a private key ({error})", "Replace it") from None


def _new_model_signing_key(folder: Path) -> None:
    made = CryptoSigner.generate_ecdsa()
    _write(folder / "model-signing.pem", made.private_bytes)
    _write(folder / "model-signing.pub", made.public_key.keyval["public"].encode())


def _new_key(path: Path) -> None:
    _write(path, CryptoSigner.generate_ed25519().private_bytes)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can ever read."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    write_durably(path, content, partial=partial)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with os.fdopen(os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
