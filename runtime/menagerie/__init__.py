"""Execution of models that Menagerie converted, with numpy and without PyTorch.

::

    import menagerie

    folder = menagerie.pull("resnet18", store="https://models.example/zoo", into="resnet18")
    with menagerie.open(folder) as session:
        logits = session.run({"x": image})["output"]
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from menagerie.errors import MenagerieError
    from menagerie.host import RUNTIME_ABI
    from menagerie.library import library_path, version
    from menagerie.session import Session
    from menagerie.validation.findings import Measurement, ValidationReport

__all__ = [
    "RUNTIME_ABI",
    "MenagerieError",
    "Session",
    "bench",
    "library_path",
    "open",
    "pull",
    "verify",
    "version",
]

_HOMES = {
    "RUNTIME_ABI": "menagerie.host",
    "MenagerieError": "menagerie.errors",
    "Session": "menagerie.session",
    "library_path": "menagerie.library",
    "version": "menagerie.library",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that `import menagerie` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'menagerie' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def pull(
    model: str,
    *,
    store: str,
    into: Path | str,
    target: str = "cpu",
    allow_unsigned: bool | None = None,
    goldens: bool = True,
) -> Path:
    """Download the latest release of a model, check every file's sha256, and return its folder.

    Args:
        model: its name in the store.
        store: a folder, `https://host/path` or `s3://bucket/prefix`.
        into: a folder that is absent or empty, or holds this release already.
        target: `cpu` or `metal`.
        allow_unsigned: whether to accept a release that no trusted key has signed, i.e. native code
            of unproven origin. None: the variable MENAGERIE_ALLOW_UNSIGNED decides.
        goldens: whether to download the files that only a proof reads, for `verify` and `measure`.

    Raises:
        NotInStore: there is no such release.
        Untrusted: no trusted key has signed it; see `menagerie.trust`.
        StoreError: the store did not deliver it; received data is kept for the next attempt.
    """
    from menagerie.store import open_releases

    releases = open_releases(store, allow_unsigned=allow_unsigned)
    return releases.pull(releases.find(model, target), Path(into), goldens=goldens)


def open(  # noqa: A001 - read as `menagerie.open`
    bundle: Path | str,
    program: str = "main",
    *,
    threads: int | None = None,
    allow_unsigned: bool | None = None,
) -> Session:
    """Load a program of a bundle; see `menagerie.session.Session`. A bundle is native code."""
    from menagerie.session import Session

    return Session(bundle, program, threads, allow_unsigned=allow_unsigned)


def verify(
    bundle: Path | str, *, threads: int = 1, allow_unsigned: bool | None = None
) -> ValidationReport:
    """Run a bundle's golden cases in a fresh process and compare them with eager PyTorch's.

    A run uses this number of `threads`; `allow_unsigned` accepts a bundle that no trusted key has
    signed. The report has `passed`, `detail`, and each output's error. A bad bundle does not raise.
    """
    from menagerie.validation import Limits, validate

    limits = Limits(threads=threads)
    return validate(Path(bundle), limits=limits, allow_unsigned=allow_unsigned)


def bench(bundle: Path | str, program: str = "main", *, threads: int = 1) -> Measurement:
    """Time a program on the largest of its golden inputs; see `menagerie.timing.measure`."""
    from menagerie.timing import measure

    return measure(Path(bundle), program, threads=threads)
