"""The site in the store: pages, and the records that they are drawn of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter, ValidationError

from zoo.catalogue.collect import collect
from zoo.catalogue.pages import render_catalogue, render_model
from zoo.catalogue.precisions import siblings
from zoo.catalogue.records import CataloguedModel
from zoo.errors import NotInStore, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zoo.store import Store
    from zoo.store.base import ObjectStore

__all__ = ["INDEX", "update_catalogue"]

INDEX: Final = "catalogue/index.html"
_RECORDS = "catalogue/models.json"
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
    for name in sorted({sibling for n in changed for sibling in siblings(n, known).values()}):
        page = render_model(name, known, store.url).encode()
        _put(objects, f"catalogue/models/{name}.html", page)
    _put(objects, _RECORDS, _FORM.dump_json(dict(sorted(known.items()))))
    _put(objects, INDEX, render_catalogue(list(known.values())).encode())
    return len(known)


def _records(objects: ObjectStore) -> dict[str, CataloguedModel] | None:
    """What the site says now; None where it was never made, or by another version."""
    try:
        return _FORM.validate_json(objects.read_small(_RECORDS, _MOST_BYTES))
    except (NotInStore, TooLarge, ValidationError):
        return None


def _put(objects: ObjectStore, key: str, content: bytes) -> None:
    try:
        same = objects.size_of(key) == len(content)
        if same and objects.read_small(key, _MOST_BYTES) == content:
            return
    except (NotInStore, TooLarge):
        pass
    objects.put_small(key, content)
