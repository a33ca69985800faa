"""What the operator decided holds against all who may start runs."""

from __future__ import annotations

import pytest

from flows.parameters import ConversionOptions
from zoo.errors import UsageError


@pytest.mark.parametrize("store", ["file:///etc", "/root", "s3://attacker/x"])
def test_a_run_names_no_store_of_its_own(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    """On a worker a parameter reads and writes the worker's store, or one that is listed."""
    monkeypatch.setenv("MENAGERIE_ROLE", "worker")
    monkeypatch.setenv("MENAGERIE_STORE", "s3://models/zoo")
    with pytest.raises(UsageError, match="MENAGERIE_ALLOWED_STORES"):
        _ = ConversionOptions(store=store).store_url
    assert ConversionOptions(store="").store_url == "s3://models/zoo"
    assert ConversionOptions(store="s3://models/zoo").store_url == "s3://models/zoo"
    monkeypatch.setenv("MENAGERIE_ALLOWED_STORES", f"s3://other/x, {store}")
    assert ConversionOptions(store=store).store_url == store


def test_a_user_names_any_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal the user is the operator."""
    monkeypatch.delenv("MENAGERIE_ROLE", raising=False)
    assert ConversionOptions(store="/anywhere").store_url == "/anywhere"
