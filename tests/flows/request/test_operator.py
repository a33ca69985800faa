"""Foreign code runs only where the machine's operator wants it, whatever a form says."""

from __future__ import annotations

import pytest
from prefect.logging import disable_run_logger

from flows.parameters import factories_allowed


@pytest.mark.parametrize(
    ("asked", "variable", "allowed"),
    [
        (False, None, False),
        (False, "1", False),
        (True, None, False),
        (True, "", False),
        (True, "0", False),
        (True, "yes", False),
        (True, "1", True),
    ],
)
def test_both_must_want_it(
    asked: bool, variable: str | None, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's parameters and the environment; anything but 1 is a no."""
    monkeypatch.delenv("MENAGERIE_ALLOW_FACTORIES", raising=False)
    if variable is not None:
        monkeypatch.setenv("MENAGERIE_ALLOW_FACTORIES", variable)
    with disable_run_logger():
        assert factories_allowed("", asked=asked) is allowed


@pytest.mark.parametrize(
    ("listed", "allowed"),
    [
        ("", False),
        ("*", True),
        ("a" * 64, True),
        (f"{'b' * 64}, sha256:{'a' * 64}", True),
        ("b" * 64, False),
        ("a" * 63, False),
        ("1", False),
    ],
)
def test_submitted_code_runs_where_its_digest_is_listed(
    listed: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an option, since the run names it; a folder is no submission."""
    monkeypatch.delenv("MENAGERIE_ALLOW_FACTORIES", raising=False)
    monkeypatch.setenv("MENAGERIE_ALLOW_SUBMITTED", listed)
    with disable_run_logger():
        assert factories_allowed(f"sha256:{'a' * 64}", asked=False) is allowed
        assert factories_allowed("/a/folder", asked=True) is False
        assert factories_allowed("", asked=True) is False
