"""`zoo keys`: the keys that sign releases, and the keys that are trusted here."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import StoreOption
from flows.cli.output import answer, messages, table

if TYPE_CHECKING:
    from zoo.signing.keyring import Keyring


def init(
    *,
    release_keys: Annotated[int, typer.Option(min=1, max=16, help="Keys that sign releases.")] = 1,
    threshold: Annotated[int, typer.Option(min=1, max=16, help="Signatures a release needs.")] = 1,
    root_keys: Annotated[int, typer.Option(min=1, max=16, help="Keys that sign roots.")] = 1,
    root_threshold: Annotated[int, typer.Option(min=1, max=16, help="Signatures on a root.")] = 1,
    timestamp_days: Annotated[
        int, typer.Option(min=1, max=3650, help="How long a mirror can show an old state.")
    ] = 7,
) -> None:
    """Make keys, and trust them here. What is there already stays.

    **Examples**

    - `zoo keys init`
    - `zoo keys init --root-keys 3 --root-threshold 2 --timestamp-days 1`
    """
    from zoo.signing.keyring import Expiry, Keyring, Role, keys_folder

    folder = keys_folder()
    if (folder / "keyring.json").exists():
        messages().print(f"{folder}: there are keys already")
        keyring = Keyring(folder)
    else:
        keyring = Keyring.create(
            folder,
            keys={Role.RELEASE: release_keys, Role.ROOT: root_keys},
            thresholds={Role.RELEASE: threshold, Role.ROOT: root_threshold},
            expiry=Expiry(timestamp=timestamp_days),
        )
    advice = (
        f"Give {folder / 'root.json'} to those who are to trust your releases "
        "(`menagerie trust root.json`), and take root-*.pem offline."
    )
    _answer(keyring, advice)


def show() -> None:
    """Show the keys, how long metadata stay good, and whom this machine trusts.

    **Examples**

    - `zoo keys show --json`
    """
    from zoo.signing.keyring import Keyring, keys_folder

    _answer(Keyring(keys_folder()))


def rotate(
    role: Annotated[str, typer.Argument(help="root, release or online.")] = "release",
    *,
    store: StoreOption = "",
) -> None:
    """Replace a role's keys, and sign what the store lists again.

    Needs the root keys. Clients with The Update Framework follow by themselves, others are given
    the new root.json.

    **Examples**

    - `zoo keys rotate release --store s3://models/zoo`
    """
    from zoo.errors import UsageError
    from zoo.signing.keyring import Keyring, Role, keys_folder
    from zoo.signing.promotion import Promoter
    from zoo.store import open_store

    if role not in set(Role):
        raise UsageError(
            "zoo keys rotate", f"there is no role {role!r}", "Name root, release or online"
        )
    opened = open_store(store)
    ledgers = opened.ledgers()  # while the old keys are still trusted
    keyring = Keyring(keys_folder())
    keyring.rotate(Role(role))
    Promoter(opened, keyring).resign(ledgers)
    _answer(keyring)


def refresh(*, store: StoreOption = "") -> None:
    """Renew the store's metadata before they expire; needs only the online key.

    **Examples**

    - `zoo keys refresh --store s3://models/zoo`
    """
    from zoo.signing.keyring import Keyring, keys_folder
    from zoo.signing.promotion import Promoter
    from zoo.store import open_store

    Promoter(open_store(store), Keyring(keys_folder())).refresh()
    answer({"store": store}, f"{store}: renewed")


def _answer(keyring: "Keyring", *advice: str) -> None:
    from menagerie.trust import trusted_roots
    from zoo.signing.keyring import Role

    root = keyring.root.signed
    listed = [
        {
            "role": role.value,
            "key": key.keyid,
            "public": key.keyval["public"],
            "threshold": keyring.settings.thresholds[role],
        }
        for role in Role
        for key in keyring.public_keys(role)
    ]
    value = {
        "folder": str(keyring.folder),
        "root_version": root.version,
        "expires": root.expires.isoformat(),
        "keys": listed,
        "trusted": [each.place for each in trusted_roots()],
    }
    rows = [(str(each["role"]), str(each["key"])[:16], str(each["threshold"])) for each in listed]
    answer(
        value,
        table("role", "key", "must sign", rows=rows, right=("must sign",)),
        f"{keyring.folder}: root {root.version}, good until {root.expires:%Y-%m-%d}",
        *advice,
    )
