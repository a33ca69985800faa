"""The errors of the runtime; `zoo.errors` shows the whole tree that is based on them."""

from __future__ import annotations


class MenagerieError(Exception):
    """The base of all our errors, with a place, a fact and a next step.

    `place` is where it happened (a file, a model, a node, a URL), `fact` what is wrong, in one
    sentence without a full stop, and `next_step` what the reader can do about it, or empty.
    """

    exit_code: int = 1

    def __init__(self, place: str, fact: str, next_step: str = "") -> None:
        super().__init__(place, fact, next_step)
        self.place = place
        self.fact = fact
        self.next_step = next_step

    def __str__(self) -> str:
        between = "\n" if "\n" in self.fact else ". "  # after a list, on a line of its own
        advice = f"{between}{self.next_step}" if self.next_step else ""
        fact = self.fact.rstrip(".") if advice else self.fact
        return f"{self.place}: {fact}{advice}"


class UsageError(MenagerieError):
    """The command was called with arguments that make no sense."""

    exit_code = 2


class HashMismatch(MenagerieError):
    """Bytes do not have the expected sha256."""


class ArtifactError(MenagerieError):
    """A bundle breaks a rule of the format; none of its content was used."""


class Untrusted(ArtifactError):
    """No trusted key has signed these bytes; they were not used."""


class SessionError(MenagerieError):
    """The shim runtime refused the call or failed during it."""


class SpeechError(MenagerieError):
    """A recording cannot be read, or a bundle does not understand speech."""


class StoreError(MenagerieError):
    """The store failed to do something; what was complete before is unchanged."""


class InvalidKey(StoreError, UsageError):
    """A name from the caller cannot be part of a store's key."""


class StoreUnreachable(StoreError):
    """The store's address does not answer."""


class StoreFull(StoreError):
    """The store has no space left."""


class NotInStore(StoreError):
    """The requested release or blob does not exist."""


class UnknownName(NotInStore, UsageError):
    """The store has no model or build of the requested name."""


class Retracted(StoreError):
    """The release was retracted: its publisher says that it must no longer be used."""


class TooLarge(StoreError):
    """A document or note in the store exceeds the limit for its kind; it was not read."""
