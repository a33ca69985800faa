"""The one exception tree of Menagerie.

::

    MenagerieError
    ├── UsageError             the command was called wrongly               (exit code 2)
    ├── ManifestError          a manifest entry is malformed; lists every fault (exit code 2)
    ├── SourceError            a model could not be fetched or loaded
    │   ├── HashMismatch       bytes differ from the sha256 that was promised
    │   └── SourceRefused      the source would run code or read pickles from outside
    ├── ExportError            torch.export could not trace the program
    ├── PassError              a pass broke its contract
    ├── LoweringError          the target compiler failed
    │   └── UnsupportedKernels the target's runtime lacks kernels; lists them all
    ├── ArtifactError          a bundle breaks the format
    ├── SessionError           the shim runtime refused or failed
    ├── ValidationError        the artifact did not reproduce eager
    └── StoreError             the store could not do its work
        ├── StoreUnreachable   nobody answers at the endpoint
        ├── StoreFull          no space left
        ├── NotInStore         the asked-for release or blob does not exist
        └── TooLarge           a small file of the store has more bytes than any of its kind
"""

from __future__ import annotations

__all__ = [
    "ArtifactError",
    "ExportError",
    "HashMismatch",
    "LoweringError",
    "ManifestError",
    "MenagerieError",
    "NotInStore",
    "PassError",
    "SessionError",
    "SourceError",
    "SourceRefused",
    "StoreError",
    "StoreFull",
    "StoreUnreachable",
    "TooLarge",
    "UnsupportedKernels",
    "UsageError",
    "ValidationError",
]


class MenagerieError(Exception):
    """What every error of ours says: where, what, and what to do next.

    Args:
        place: where it happened (a file, a model, a node, a URL).
        fact: what is wrong, in one sentence without a full stop.
        next_step: what the reader can do about it; empty when there is nothing to add.
    """

    exit_code: int = 1

    def __init__(self, place: str, fact: str, next_step: str = "") -> None:
        super().__init__(place, fact, next_step)
        self.place = place
        self.fact = fact
        self.next_step = next_step

    def __str__(self) -> str:
        advice = f". {self.next_step}" if self.next_step else ""
        return f"{self.place}: {self.fact}{advice}"


class UsageError(MenagerieError):
    """The command was called with arguments that cannot be meant."""

    exit_code = 2


class ManifestError(MenagerieError):
    """The manifest has faults; ``faults`` holds every one of them, a line each."""

    exit_code = 2

    def __init__(self, place: str, faults: tuple[str, ...]) -> None:
        super().__init__(place, "\n".join(faults))
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(self.faults)


class SourceError(MenagerieError):
    """A model could not be fetched or loaded from its source."""


class HashMismatch(SourceError):
    """Bytes differ from the sha256 that was promised for them."""


class SourceRefused(SourceError):
    """The source would run foreign code or read a pickle, and nobody allowed it."""


class ExportError(MenagerieError):
    """torch.export could not turn the program into an ExportedProgram."""


class PassError(MenagerieError):
    """A pass broke its contract; the graph it left is not used."""


class LoweringError(MenagerieError):
    """The target compiler failed."""


class UnsupportedKernels(LoweringError):
    """The target's runtime lacks kernels that the program needs.

    ``uses`` maps each missing kernel to the places in the model that need it.
    """

    def __init__(self, place: str, uses: dict[str, tuple[str, ...]]) -> None:
        listing = "".join(
            f"\n  {kernel}" + "".join(f"\n    used by {use}" for use in sites)
            for kernel, sites in sorted(uses.items())
        )
        super().__init__(
            place,
            f"{len(uses)} kernel(s) are not in the target's runtime{listing}",
            "\nImplement them (runtime/menagerie/shims.toml), or rewrite them in a pass",
        )
        self.uses = uses


class ArtifactError(MenagerieError):
    """A bundle breaks a rule of the format; nothing of it was used."""


class SessionError(MenagerieError):
    """The shim runtime refused the call or failed in it."""


class ValidationError(MenagerieError):
    """The artifact did not reproduce what eager PyTorch computed."""


class StoreError(MenagerieError):
    """The store could not do what was asked; what was complete before still is."""


class StoreUnreachable(StoreError):
    """Nobody answers at the store's address."""


class StoreFull(StoreError):
    """The store has no space left."""


class NotInStore(StoreError):
    """The asked-for release or blob does not exist."""


class TooLarge(StoreError):
    """A document or a note in the store has more bytes than any of its kind; it was not read."""
