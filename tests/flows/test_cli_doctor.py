"""What `zoo doctor` says of the Python that it runs in."""

from __future__ import annotations

import importlib.metadata
import platform

import pytest

from flows.cli.doctor import _packages, _python, _sandbox
from menagerie.validation import sandbox
from zoo.errors import Health


@pytest.mark.parametrize(
    ("version", "health"),
    [
        ("3.10.14", Health.FAIL),
        ("3.11.0", Health.OK),
        ("3.12.1", Health.OK),
        ("3.13.9", Health.OK),
        ("3.14.0", Health.FAIL),
    ],
)
def test_the_versions_that_are_declared_are_well(
    monkeypatch: pytest.MonkeyPatch, version: str, health: Health
) -> None:
    """As `requires-python` of pyproject.toml has it: 3.11 to 3.13."""
    monkeypatch.setattr(platform, "python_version", lambda: version)
    assert _python().health is health


@pytest.mark.parametrize(
    ("found", "health", "word"),
    [
        (sandbox.BUBBLEWRAP, Health.OK, "bubblewrap"),
        (sandbox.LANDLOCK, Health.OK, "landlock"),
        (sandbox.SECCOMP, Health.WARN, "may read your files"),
        (sandbox.NO_SANDBOX, Health.WARN, "runs as you"),
    ],
)
def test_the_sandbox_for_untrusted_code_is_named(
    monkeypatch: pytest.MonkeyPatch, found: str, health: Health, word: str
) -> None:
    """And what is missing where it is not all that it could be."""
    monkeypatch.setattr(sandbox, "sandbox_name", lambda: found)
    check = _sandbox()
    assert check.health is health
    assert word in check.detail
    assert bool(check.advice) is (health is not Health.OK)


def test_a_package_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that only conversion needs."""
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda n: "1.0" if n == "torch" else installed(n)
    )
    check = _packages()
    assert check.health is Health.WARN
    assert "torch 1.0 is not ==" in check.detail
