"""A model's signed history in a store, and the builds of it that a person names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.errors import NotInStore, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from menagerie.trust.ledger import Ledger
    from zoo.store import Store

__all__ = ["build_keys", "ledger_here", "ledgers_of", "only_ledger", "whole_key"]


def ledgers_of(
    store: Store, model: str, target: str, platform: str | None = None
) -> tuple[Ledger, ...]:
    """The model's ledgers for a target, by platform; at least one.

    Raises:
        NotInStore: nothing of it was promoted.
    """
    found = tuple(
        ledger
        for ledger in store.ledgers(model)
        if ledger.target == target and platform in {None, ledger.platform}
    )
    if not found:
        where = platform or target
        fact = f"nothing of {model} for {where} was promoted"
        raise NotInStore(store.url, fact, f"zoo promote {model} --target {target}")
    return found


def only_ledger(store: Store, model: str, target: str, platform: str | None) -> Ledger:
    """The model's ledger for a target, where there is no doubt which platform's.

    Raises:
        NotInStore: nothing of it was promoted.
        UsageError: it has releases for several platforms, and none was named.
    """
    found = ledgers_of(store, model, target, platform)
    if len(found) > 1:
        listing = ", ".join(ledger.platform for ledger in found)
        raise UsageError(model, f"has releases for {listing}", "Name one with --platform")
    return found[0]


def ledger_here(store: Store, model: str, target: str) -> Ledger:
    """The model's ledger for the platform that this machine runs first.

    Raises:
        NotInStore: nothing of it was promoted.
    """
    from menagerie.host import runnable_platforms

    ranks = {platform: rank for rank, platform in enumerate(runnable_platforms(target))}
    found = ledgers_of(store, model, target)
    return min(found, key=lambda ledger: ranks.get(ledger.platform, len(ranks)))


def build_keys(ledger: Ledger) -> tuple[str, ...]:
    """The builds that were ever promoted, in the order in which they first were."""
    return tuple(dict.fromkeys(entry.build_key for entry in ledger.entries))


def whole_key(model: str, known: Iterable[str], beginning: str) -> str:
    """The one build key among `known` that begins so.

    Raises:
        UsageError: none does, or several.
    """
    found = {key for key in known if key.startswith(beginning)}
    if len(found) != 1:
        fact = f"{beginning!r} begins {len(found)} of its build keys"
        raise UsageError(model, fact, f"See: zoo releases {model}")
    return found.pop()
