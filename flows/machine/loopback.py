"""Reaching what runs on this machine, whatever proxy leads out of it."""

from __future__ import annotations

import os

__all__ = ["keep_off_proxies"]

_LOOPBACK = ("127.0.0.1", "localhost")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def keep_off_proxies() -> None:
    """Have this process and its children go to loopback by themselves.

    Where a proxy is set and loopback is not excepted, requests to a server of `zoo up` would go to
    the proxy, with the server's secret in them.
    """
    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return
    excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    known = [each.strip() for each in excepted.split(",") if each.strip()]
    value = ",".join([*known, *(each for each in _LOOPBACK if each not in known)])
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = value
