"""The catalogue's site in the store: pages, their records, and links to files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pydantic import TypeAdapter

from menagerie.store.layout import METADATA
from zoo.catalogue.collect import CataloguedModel, collect, siblings
from zoo.catalogue.pages import CATALOGUE, ROOT, WHEELS, Site, Way, render_catalogue, render_model

if TYPE_CHECKING:
    from zoo.store import Store
    from zoo.store.base import ObjectStore

INDEX: Final = f"{CATALOGUE}index.html"
_SHARED: Final = f"{CATALOGUE}shared/"
_RECORDS = "catalogue/models.json"
_SITE = "catalogue/site.json"
_MOST_BYTES = 256 * 2**20
_FORM = TypeAdapter(dict[str, CataloguedModel])


def _relative(site: Site, store: str, page: str) -> Way:
    """Link pages of a folder or web server; links work wherever the whole store is published."""
    shown, folder = site.address or store, posixpath.dirname(page)

    def link(key: str, _name: str = "") -> str:  # the page sets the name for saving
        return quote(posixpath.relpath(key, folder))

    def whole(key: str) -> str | None:
        return None if shown.startswith("s3:") else f"{shown.removeprefix('file://')}/{key}"

    return Way(site, shown, link, whole)


def _signed(store: Store, known: Mapping[str, CataloguedModel]) -> Way:
    """Link pages of a private bucket; each link is signed and valid for a week.

    Pages link to one another's copies, which have signed links too.
    """
    objects, pages = store.objects, {INDEX, *map(_page, known)}

    def link(key: str, name: str = "") -> str:
        place = _copy_of(key) if key in pages else key
        saved = name or posixpath.basename(key)
        return objects.link(place, saved) or ""

    latest = [(name, h) for name, model in known.items() for h in model.histories if h.current]
    archives = {
        (name, h.platform): address
        for name, h in latest
        if (address := store.link_archive(store.find(name, h.target, platform=h.platform)))
    }
    return Way(kept_site(objects), objects.url, link, link, archives)


def _copy_of(page: str) -> str:
    """Return the key of a page's copy with signed links."""
    return _SHARED + page.removeprefix(CATALOGUE)


def update_catalogue(store: Store, models: Iterable[str] | None = None) -> int:
    """Write the pages of these models and the list of all models; skip unchanged pages.

    Args:
        store: the store of the releases and the site.
        models: models whose releases changed; None: every model that was ever promoted.

    Returns:
        Number of models in the catalogue.

    Raises:
        NotInStore: one of these models has no promoted release.
        Untrusted: no trusted key has signed a ledger.
        StoreError: the store cannot be read or written.
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
    if root := newest_root(objects):  # under a stable name, for `menagerie trust`
        objects.put_if_new(ROOT, root)
    for name in sorted({sibling for n in changed for sibling in siblings(n, known).values()}):
        way = _relative(site, store.url, _page(name))
        objects.put_if_new(_page(name), render_model(name, known, way).encode())
    objects.put_if_new(_RECORDS, _FORM.dump_json(dict(sorted(known.items()))))
    index = render_catalogue(list(known.values()), _relative(site, store.url, INDEX))
    objects.put_if_new(INDEX, index.encode())
    return len(known)


def share_catalogue(store: Store) -> str | None:
    """Render the site again with signed links, for readers without a key to its bucket.

    Return the address of the first page, valid for a week like all its links; None for a folder.
    Raise StoreError if the store cannot be read or written.
    """
    objects, known = store.objects, _records(store.objects) or {}
    if objects.link(INDEX, "") is None:
        return None
    way = _signed(store, known)
    for name in known:
        objects.put_small(_copy_of(_page(name)), render_model(name, known, way).encode())
    objects.put_small(_copy_of(INDEX), render_catalogue(list(known.values()), way).encode())
    return way.link(INDEX)


def kept_site(objects: ObjectStore) -> Site:
    """Return the owner's settings of the store's site, or else the defaults."""
    return objects.read_record(_SITE, _MOST_BYTES, Site) or Site()


def keep_site(objects: ObjectStore, site: Site, wheels: Iterable[Path] = ()) -> Site:
    """Store the owner's settings of the site and its wheels; return the updated settings."""
    for wheel in wheels:
        objects.put_file(wheel, WHEELS + wheel.name, lambda _: None)
        site = site.with_wheel(wheel.name)
    objects.put_if_new(_SITE, site.model_dump_json().encode())
    return site


def _page(model: str) -> str:
    return f"catalogue/models/{model}.html"


def newest_root(objects: ObjectStore) -> bytes | None:
    """Return the newest root in the store, for readers to compare with the one they trust."""
    version = 0
    while objects.size_of(f"{METADATA}{version + 1}.root.json") is not None:
        version += 1
    return objects.read_if_there(f"{METADATA}{version}.root.json", _MOST_BYTES)


def _records(objects: ObjectStore) -> dict[str, CataloguedModel] | None:
    return objects.read_record(_RECORDS, _MOST_BYTES, dict[str, CataloguedModel])
