"""Requests to our own servers never leave the machine."""

from __future__ import annotations

from urllib.request import getproxies, proxy_bypass

import pytest

from menagerie.process import keep_off_proxies


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for variable in (name, name.upper()):
            monkeypatch.setenv(variable, "")  # noted, so that it is put back
            monkeypatch.delenv(variable)


@pytest.mark.parametrize("excepted", ["", "example.org, 10.0.0.1"])
@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY"])
def test_loopback_is_excepted(name: str, excepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By urllib's own judgement, in whatever case the proxy is set; other exceptions stay."""
    monkeypatch.setenv(name, "http://proxy.invalid:3128")
    if excepted:
        monkeypatch.setenv("NO_PROXY", excepted)
    assert not proxy_bypass("127.0.0.1:4200")
    keep_off_proxies()
    assert proxy_bypass("127.0.0.1:4200")
    assert proxy_bypass("localhost:8080")
    assert not proxy_bypass("elsewhere.org")
    assert bool(excepted) == bool(proxy_bypass("example.org"))


def test_without_a_proxy_nothing_is_set() -> None:
    """The environment stays as it was."""
    keep_off_proxies()
    assert "no" not in getproxies()
