"""The catalogue's site in the store: pages, their records, and how readers get to files."""

from __future__ import annotations

import posixpath
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from pydantic import Field, TypeAdapter, ValidationError

from menagerie.figures import shown_address
from menagerie.store.layout import METADATA
from zoo.base_models import Frozen
from zoo.catalogue.collect import CataloguedModel, collect, siblings
from zoo.catalogue.pages import pull_command, render_catalogue, render_model
from zoo.errors import UsageError
from zoo.store.base import LINK_SECONDS, content_type

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from pathlib import Path

    from zoo.catalogue.collect import History
    from zoo.store import Store
    from zoo.store.base import ObjectStore

CATALOGUE: Final = "catalogue/"
INDEX: Final = f"{CATALOGUE}index.html"
ROOT: Final = f"{CATALOGUE}root.json"
WHEELS: Final = f"{CATALOGUE}wheels/"
_SHARED: Final = f"{CATALOGUE}shared/"


class Site(Frozen):
    """What the store's owner said of its site.

    Attributes:
        address: at which a web server shows the store to everybody; None where none does.
        wheels: file names of the small package under `WHEELS`, one a platform.
    """

    address: str | None = None
    wheels: tuple[str, ...] = Field(default=())

    def at(self, address: str) -> Site:
        """The site at another address; an empty one means that there is none.

        Raises:
            UsageError: no browser finds it.
        """
        parts = urlsplit(address)
        web = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
        if address and (not web or parts.query or parts.fragment):
            advice = "Give the address at which a web server shows it: https://models.example/zoo"
            raise UsageError(shown_address(address), "is not the address of a site", advice)
        return self.model_copy(update={"address": address.rstrip("/") or None})

    def with_wheel(self, name: str) -> Site:
        """The site with this wheel in the place of an earlier one for the same platform."""
        others = [each for each in self.wheels if _platform_tag(each) != _platform_tag(name)]
        return self.model_copy(update={"wheels": tuple(sorted([*others, name]))})

    def wheel_for(self, platform: str) -> str | None:
        """The wheel for a release's platform, as `cpu-linux-x86_64`."""
        _, system, machine = platform.split("-", 2)
        known = {"linux": "linux", "macos": "macosx"}.get(system, system)
        machines = (machine, "aarch64") if machine == "arm64" else (machine, "universal2")
        tags = {name: _platform_tag(name) for name in self.wheels}
        return next((n for n, t in tags.items() if known in t and t.endswith(machines)), None)


def _platform_tag(wheel: str) -> str:
    return wheel.removesuffix(".whl").rpartition("-")[2]


@dataclass(frozen=True)
class Way:
    """Addresses as one page's reader needs them.

    Attributes:
        site: what its owner said.
        store: what commands name as the store.
        link: of a key, what a link on the page says; a file is saved as the name given with it.
        whole: of a key, the address of the file by itself, for commands; None where there is none.
    """

    site: Site
    store: str
    link: Callable[..., str]
    whole: Callable[[str], str | None]

    def first_lines(self, model: CataloguedModel, history: History) -> str:
        """Commands with which a stranger gets from nothing to the latest release of a platform."""
        wheel = self.site.wheel_for(history.platform)
        package = None if wheel is None else self.whole(WHEELS + wheel)
        root = self.whole(ROOT)
        return "\n".join(
            [
                *([] if package is None else [f"pip install {shlex.quote(package)}"]),
                *([] if root is None else [f"menagerie trust {shlex.quote(root)}"]),
                pull_command(model, history, self.store),
            ]
        )


def _relative(site: Site, store: str, page: str) -> Way:
    """Of a page in a folder or behind a web server: links work wherever all the store is shown."""
    shown, folder = site.address or store, posixpath.dirname(page)

    def link(key: str, _name: str = "") -> str:  # the page itself says how a file is called
        return quote(posixpath.relpath(key, folder))

    def whole(key: str) -> str | None:
        return None if shown.startswith("s3:") else f"{shown.removeprefix('file://')}/{key}"

    return Way(site, shown, link, whole)


def _signed(site: Site, objects: ObjectStore, pages: Container[str]) -> Way:
    """Of a page in a private bucket: each link carries a signature and is good for a week.

    Pages link the copies of one another that were made with such links.
    """

    def link(key: str, name: str = "") -> str:
        place = _copy_of(key) if key in pages else key
        saved = name or posixpath.basename(key)
        return objects.link(place, saved, content_type(saved), LINK_SECONDS) or ""

    return Way(site, objects.url, link, link)


def _copy_of(page: str) -> str:
    """The key of a page's copy, whose links are signed."""
    return _SHARED + page.removeprefix(CATALOGUE)


_RECORDS = "catalogue/models.json"
_SITE = "catalogue/site.json"
_MOST_BYTES = 256 * 2**20
_FORM = TypeAdapter(dict[str, CataloguedModel])


def update_catalogue(store: Store, models: Iterable[str] | None = None) -> int:
    """Writes the pages of these models and the list of all; what is as it was is not written.

    Args:
        store: where the releases are and the site goes.
        models: those whose releases changed; None: every one that was ever promoted.

    Returns:
        How many models the catalogue has.

    Raises:
        NotInStore: nothing of one of these models was promoted.
        Untrusted: a ledger was not signed by anybody who is trusted here.
        StoreError: the store could not give or take it.
    """
    objects = store.objects
    kept = None if models is None else _records(objects)
    names, known = set(models or ()), dict(kept or {})
    if kept is None:
        names.update(ledger.model for ledger in store.ledgers())
    records = {name: collect(store, name) for name in sorted(names)}
    changed = {name for name, record in records.items() if known.get(name) != record}
    known.update(records)
    site = kept_site(objects)
    _put_root(objects)
    for name in sorted({sibling for n in changed for sibling in siblings(n, known).values()}):
        way = _relative(site, store.url, _page(name))
        _put(objects, _page(name), render_model(name, known, way).encode())
    _put(objects, _RECORDS, _FORM.dump_json(dict(sorted(known.items()))))
    index = render_catalogue(list(known.values()), _relative(site, store.url, INDEX))
    _put(objects, INDEX, index.encode())
    return len(known)


def share_catalogue(store: Store) -> str | None:
    """Draws the site once more, for who has no key to its bucket: all links are signed.

    Returns:
        The address of the first page, good for a week as all that it links; None for a folder.

    Raises:
        StoreError: the store could not give or take it.
    """
    objects, known = store.objects, _records(store.objects) or {}
    pages = {_page(name): name for name in known}
    way = _signed(kept_site(objects), objects, {INDEX, *pages})
    if not (address := way.link(INDEX)):
        return None
    for page, name in pages.items():
        objects.put_small(_copy_of(page), render_model(name, known, way).encode())
    objects.put_small(_copy_of(INDEX), render_catalogue(list(known.values()), way).encode())
    return address


def kept_site(objects: ObjectStore) -> Site:
    """What the owner said of the store's site, if anything."""
    content = objects.read_if_there(_SITE, _MOST_BYTES)
    with suppress(ValidationError):
        return Site() if content is None else Site.model_validate_json(content)
    return Site()


def keep_site(objects: ObjectStore, site: Site, wheels: Iterable[Path] = ()) -> Site:
    """Keeps what the owner says of the site, with wheels for its readers; pages say it when drawn.

    Returns:
        The same with the names of the wheels.
    """
    for wheel in wheels:
        objects.put_file(wheel, WHEELS + wheel.name, lambda _: None)
        site = site.with_wheel(wheel.name)
    _put(objects, _SITE, site.model_dump_json().encode())
    return site


def _page(model: str) -> str:
    return f"catalogue/models/{model}.html"


def _put_root(objects: ObjectStore) -> None:
    """The newest root under a name that stays, for `menagerie trust`."""
    version = 0
    while objects.size_of(f"{METADATA}{version + 1}.root.json") is not None:
        version += 1
    if version:
        _put(objects, ROOT, objects.read_small(f"{METADATA}{version}.root.json", _MOST_BYTES))


def _records(objects: ObjectStore) -> dict[str, CataloguedModel] | None:
    """What the site says now; None where it was never made, or by another version."""
    content = objects.read_if_there(_RECORDS, _MOST_BYTES)
    with suppress(ValidationError):
        return None if content is None else _FORM.validate_json(content)
    return None


def _put(objects: ObjectStore, key: str, content: bytes) -> None:
    same = objects.size_of(key) == len(content)
    if not (same and objects.read_if_there(key, _MOST_BYTES) == content):
        objects.put_small(key, content)
