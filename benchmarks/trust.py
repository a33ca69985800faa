"""What trust costs: how much longer a signed pull takes, and a catalogue of many models.

    python benchmarks/trust.py BUNDLE [--models 1000] [--pulls 60]

Everything is done with copies of one bundle under other names, in a scratch folder that goes again.
Pulls are over HTTP on loopback, into folders that are removed, in turns: unsigned, signed (the
signature and the ledger), and with the metadata of The Update Framework where `tuf` is installed.
Processor time beside the wall's: on a busy machine it is the figure to go by.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from menagerie.figures import milliseconds, seconds, size
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle, seal
from menagerie.store import open_releases
from menagerie.store.layout import LEDGERS
from menagerie.trust.ledger import MAX_LEDGER_BYTES
from zoo.catalogue import update_catalogue
from zoo.signing import Keyring, Promoter
from zoo.signing.metadata import StoreMetadata
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from zoo.store import Store


def main() -> None:
    """Runs both parts and prints what they took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, help="a converted bundle")
    parser.add_argument("--models", type=int, default=1000, help="in the catalogue (1000)")
    parser.add_argument("--pulls", type=int, default=60, help="of each kind (60)")
    order = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="menagerie-trust-") as name:
        scratch = Path(name)
        os.environ["MENAGERIE_HOME"] = str(scratch / "home")
        keyring = Keyring.create(scratch / "keys")
        os.environ["MENAGERIE_TRUST"] = str(keyring.folder / "root.json")
        folder = Path(shutil.copytree(order.bundle, scratch / "bundle"))
        _pulls(scratch, folder, keyring, order.pulls)
        _catalogue(scratch, folder, keyring, order.models)


def _publish(promoter: Promoter, store: Store, folder: Path, name: str) -> None:
    """The bundle under another name, promoted."""
    manifest = replace(
        open_bundle(folder, check_hashes=False).manifest,
        model=name,
        build_key=name.encode().hex()[-64:].rjust(64, "0"),
        state=ReleaseState.VALIDATED,
    )
    seal(folder, manifest)
    promoter.promote(store.propose(folder))


def _pulls(scratch: Path, folder: Path, keyring: Keyring, pulls: int) -> None:
    store = open_store(str(scratch / "pulled"))
    _publish(Promoter(store, keyring), store, folder, "model")
    wall, spent = defaultdict(list), defaultdict(list)
    with _serving(scratch / "pulled") as address:
        for _ in range(pulls):
            for kind, surrounding in _KINDS.items():
                shutil.rmtree(scratch / "out", ignore_errors=True)
                with surrounding():
                    began, before = time.perf_counter(), time.process_time()
                    releases = open_releases(address)
                    releases.pull(releases.find("model", "cpu"), scratch / "out")
                    wall[kind].append(1e3 * (time.perf_counter() - began))
                    spent[kind].append(1e3 * (time.process_time() - before))
    for kind, times in wall.items():
        least, middle = min(times), statistics.median(times)
        processor = statistics.median(spent[kind])
        print(
            f"pull, {kind}: minimum {milliseconds(least)}, median {milliseconds(middle)}, "
            f"processor {milliseconds(processor)}"
        )


@contextmanager
def _unsigned() -> Iterator[None]:
    """Nothing is asked for or checked but the files' hashes; the latest is what a summary says."""
    with (
        patch.dict("os.environ", {"MENAGERIE_ALLOW_UNSIGNED": "1"}),
        patch("menagerie.store.releases.trusted_ledger", lambda *_: None),
    ):
        yield


@contextmanager
def _without_tuf() -> Iterator[None]:
    """Signature and ledger, as where the extra is not installed."""
    with patch.dict("sys.modules", {"tuf": None}):
        yield


_KINDS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "unsigned": _unsigned,
    "signed": _without_tuf,
    "signed, with tuf": nullcontext,
}


def _catalogue(scratch: Path, folder: Path, keyring: Keyring, models: int) -> None:
    store = open_store(str(scratch / "catalogued"))
    promoter = Promoter(store, keyring)
    with (
        patch("zoo.signing.promotion.update_catalogue"),  # it is drawn once, below
        patch("zoo.signing.promotion.StoreMetadata"),
    ):
        for number in range(models):
            _publish(promoter, store, folder, f"model_{number:05}")
    ledgers = store.objects.list_keys(LEDGERS)
    listed = {key: store.objects.read_small(key, MAX_LEDGER_BYTES) for key in ledgers}
    StoreMetadata(store.objects, keyring).list_ledgers(listed)
    began = time.perf_counter()
    update_catalogue(store)
    whole = time.perf_counter() - began
    site = scratch / "catalogued" / "catalogue"
    files = [path for path in site.rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    began = time.perf_counter()
    update_catalogue(store, ["model_00000"])
    one = time.perf_counter() - began
    index = (site / "index.html").stat().st_size
    print(
        f"catalogue of {models} models: {size(total)} in {len(files)} files, list {size(index)}; "
        f"drawn whole in {seconds(whole)}, after a promotion in {seconds(one)}"
    )


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


if __name__ == "__main__":
    main()
