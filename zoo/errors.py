"""The one exception tree of Menagerie; what runs artifacts has its errors in `menagerie.errors`.

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
        ├── StoreUnreachable   nobody answers at the endpoint
        ├── StoreFull          no space left
        ├── NotInStore         the asked-for release or blob does not exist
        ├── Retracted          the release must no longer be used
        └── TooLarge           a small file of the store has more bytes than any of its kind
"""

from __future__ import annotations

from menagerie.errors import (
    ArtifactError,
    HashMismatch,
    MenagerieError,
    NotInStore,
    Retracted,
    SessionError,
    SpeechError,
    StoreError,
    StoreFull,
    StoreUnreachable,
    TooLarge,
    Untrusted,
    UsageError,
)

__all__ = [
    "ArtifactError",
    "ExportError",
    "HashMismatch",
    "LoweringError",
    "ManifestError",
    "MenagerieError",
    "NotInStore",
    "PassError",
    "Retracted",
    "SessionError",
    "SourceError",
    "SourceRefused",
    "SpeechError",
    "StoreError",
    "StoreFull",
    "StoreUnreachable",
    "TooLarge",
    "UnsupportedKernels",
    "Untrusted",
    "UsageError",
    "ValidationError",
]


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

    ``uses`` maps each missing kernel to the places in the model that need it; ``instead`` is what
    the model's owner can do without them, where that is known.
    """

    def __init__(self, place: str, uses: dict[str, tuple[str, ...]], instead: str = "") -> None:
        listing = "".join(
            f"\n  {kernel}" + "".join(f"\n    used by {use}" for use in sites)
            for kernel, sites in sorted(uses.items())
        )
        step = instead or "Implement them (runtime/menagerie/shims.toml), or rewrite them in a pass"
        super().__init__(
            place,
            f"{len(uses)} kernel(s) are not in the target's runtime{listing}",
            f"\n{step}",
        )
        self.uses = uses


class ValidationError(MenagerieError):
    """The artifact did not reproduce what eager PyTorch computed."""
