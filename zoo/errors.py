"""Menagerie's only exception tree; `menagerie.errors` has the errors of running artifacts.

::

    MenagerieError
    ├── UsageError             the command was called wrongly               (exit code 2)
    ├── ManifestError          a manifest entry is malformed; lists every fault (exit code 2)
    ├── HashMismatch           bytes differ from the sha256 that was promised
    ├── SourceError            a model could not be fetched or loaded
    │   └── SourceRefused      the source would run code or read pickles from outside
    ├── ExportError            torch.export could not trace the program
    ├── PassError              a pass broke its contract
    ├── LoweringError          the target compiler failed
    │   └── UnsupportedKernels the target's runtime lacks kernels; lists them all
    ├── ArtifactError          a bundle breaks the format
    │   └── Untrusted          no trusted key has signed it
    ├── SessionError           the shim runtime refused or failed
    ├── SpeechError            a recording cannot be read, or a bundle understands none
    ├── ValidationError        the artifact did not reproduce eager
    └── StoreError             the store could not do its work
        ├── StoreUnreachable   no answer from the endpoint
        ├── StoreFull          no space left
        ├── NotInStore         the asked-for release or blob is not there (UnknownName: exit code 2)
        ├── InvalidKey         a name of the caller's cannot be part of a key (exit code 2)
        ├── Retracted          the release must no longer be used
        └── TooLarge           a small file of the store has more bytes than any of its kind
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from menagerie.errors import *  # noqa: F403 - one tree, with its root in another package
from menagerie.errors import MenagerieError


class ManifestError(MenagerieError):
    """The manifest has faults; ``faults`` holds all of them, one line each."""

    exit_code = 2

    def __init__(self, place: str, faults: tuple[str, ...]) -> None:
        super().__init__(place, "\n".join(faults))
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(self.faults)


class SourceError(MenagerieError):
    """A model could not be fetched or loaded from its source."""


class SourceRefused(SourceError):
    """The source would run foreign code or read a pickle, and that was not allowed."""


class ExportError(MenagerieError):
    """torch.export could not turn the program into an ExportedProgram."""


class PassError(MenagerieError):
    """A pass broke its contract; its graph is not used."""


class LoweringError(MenagerieError):
    """The target compiler failed."""


class UnsupportedKernels(LoweringError):
    """The target's runtime lacks kernels that the program needs.

    ``uses`` maps each missing kernel to the places in the model that need it; ``instead`` is the
    alternative for the model's owner, if one is known.
    """

    def __init__(self, place: str, uses: dict[str, tuple[str, ...]], instead: str = "") -> None:
        listing = "".join(
            f"\n  {kernel}" + "".join(f"\n    used by {use}" for use in sites)
            for kernel, sites in sorted(uses.items())
        )
        step = instead or (
            "Write these calls with other operators, or report which ones the model needs; "
            "CONTRIBUTING.md says how a kernel is added"
        )
        super().__init__(
            place, f"{len(uses)} kernel(s) are not in the target's runtime{listing}", step
        )
        self.uses = uses


class ValidationError(MenagerieError):
    """The artifact did not reproduce what eager PyTorch computed."""


def explain(error: BaseException, place: str) -> MenagerieError:
    """Convert any error to one of our tree, which is shown on one line without a traceback."""
    if isinstance(error, MenagerieError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where, advice = error.filename or place, "Free some, or set MENAGERIE_HOME elsewhere"
        return MenagerieError(str(where), "no space left on the device", advice)
    if isinstance(error, MemoryError):
        return MenagerieError(place, "out of memory", "Convert it on a larger machine")
    first = str(error).strip().splitlines()[:1]
    return MenagerieError(place, f"{type(error).__name__}: {first[0] if first else 'no message'}")


def nearest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`; None if none is similar."""
    return next(iter(difflib.get_close_matches(str(word), list(known), n=1)), None)


def suggestion(word: object, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` as the end of a message's fact, or an empty string."""
    found = nearest(word, known)
    return f"; did you mean {found!r}?" if found else ""


def advice(word: object, known: Iterable[str], otherwise: str) -> str:
    """Return an error's next step: `Did you mean 'x'? ` if a word is similar, then `otherwise`."""
    found = nearest(word, known)
    return (f"Did you mean {found!r}? " if found else "") + otherwise


class Health(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"  # some commands will fail
    FAIL = "fail"  # most commands will fail


@dataclass(frozen=True)
class Check:
    """One check: its subject, its result and, unless that is good, what to do."""

    name: str
    health: Health
    detail: str
    advice: str = ""
