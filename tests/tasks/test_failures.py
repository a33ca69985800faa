"""Failures keep their meaning across a process boundary, and only network trouble is retried."""

from __future__ import annotations

import errno

import pytest

import zoo.errors
from tasks.failures import Failure, is_transient
from zoo.errors import (
    HashMismatch,
    LoweringError,
    ManifestError,
    MenagerieError,
    SourceError,
    StoreUnreachable,
    UnsupportedKernels,
    explain,
)


def test_every_error_of_the_tree_comes_back_as_itself() -> None:
    """Class and words survive."""
    named = list(vars(zoo.errors).values())
    kinds = [each for each in named if isinstance(each, type) and issubclass(each, MenagerieError)]
    assert len(kinds) > 15
    for kind in kinds:
        if kind in (ManifestError, UnsupportedKernels):
            continue  # they take other arguments
        error = kind("place", "a fact", "Do this")
        again = crossed(error)
        assert type(again) is kind
        assert str(again) == "place: a fact. Do this"


def test_errors_with_arguments_of_their_own_keep_their_words() -> None:
    """They come back as their nearest base, saying the same."""
    error = UnsupportedKernels("main", {"aoti_torch_cpu_cos": ("toy (x.py:1)",)})
    again = crossed(error)
    assert type(again) is LoweringError
    assert str(again) == str(error)


def crossed(error: MenagerieError) -> MenagerieError:
    """The error after the crossing."""
    return Failure.model_validate_json(Failure.of(error, "x").model_dump_json()).exception()


def test_an_unknown_kind_is_still_an_error_of_ours() -> None:
    """A name that is no error class, from a newer process, cannot make anything else."""
    for kind in ("NoSuchError", "annotations", "__all__"):
        assert type(Failure(kind=kind, place="p", fact="f").exception()) is MenagerieError


def test_foreign_errors_become_one_line() -> None:
    """The first line of the message and the class, laid at the place."""
    assert str(explain(ValueError("bad\nmore"), "toy, pull")) == "toy, pull: ValueError: bad"
    assert str(explain(KeyError(), "toy")) == "toy: KeyError: no message"


def test_a_full_disk_says_what_to_do() -> None:
    """ENOSPC names the file and advises."""
    error = OSError(errno.ENOSPC, "No space left on device", "/data/weights")
    expected = "/data/weights: no space left on the device. Free some, or set MENAGERIE_HOME"
    assert str(explain(error, "toy")).startswith(expected)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StoreUnreachable("s3://x", "no answer"), True),
        (ConnectionResetError("gone"), True),
        (TimeoutError("slow"), True),
        (HashMismatch("w", "differs"), False),
        (SourceError("w", "no such builder"), False),
        (FileNotFoundError(errno.ENOENT, "none"), False),
        (ValueError("x"), False),
    ],
)
def test_what_is_worth_another_try(error: Exception, expected: bool) -> None:
    """A network that does not answer may answer later; nothing else changes by itself."""
    assert is_transient(error) is expected


def test_the_cause_decides() -> None:
    """An error of ours that came of a lost connection is transient, here and after the crossing."""
    error = SourceError("https://example.org", "cannot be fetched")
    error.__cause__ = ConnectionError("reset")
    assert is_transient(error)
    assert is_transient(Failure.of(error, "x").exception())
    assert not is_transient(Failure.of(SourceError("x", "no"), "x").exception())
