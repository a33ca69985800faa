"""The folders of the installed package, and the only folder outside it that it writes to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from menagerie.errors import SessionError, UsageError

PACKAGE = Path(__file__).parent
_NOBODY = 65534


def package_folders() -> tuple[Path, ...]:
    """Return the package's folders: an editable install has built files apart from sources."""
    return tuple(map(Path, sys.modules["menagerie"].__path__))


def built(name: str) -> Path:
    """Return the path of a built library or program; raise SessionError if it is not built."""
    for folder in package_folders():
        if (path := folder / name).is_file():
            return path
    raise SessionError(name, "is not built", "Build and install the package: make setup")


def home() -> Path:
    """Return the cache folder: `$MENAGERIE_HOME`, else `menagerie` in the user's cache folder.

    The latter is `$XDG_CACHE_HOME` or `~/.cache` by the XDG Base Directory Specification, and
    `~/Library/Caches` on macOS. A missing folder is created for its owner only, since downloads in
    it are opened later. Raise UsageError if it cannot be created, its `~` stands for no folder, it
    belongs to another user, or it is writable by everyone.
    """
    asked = os.environ.get("MENAGERIE_HOME")
    advice = "Set MENAGERIE_HOME to a folder you can write to"
    try:
        folder = (Path(asked).expanduser() if asked else _caches() / "menagerie").absolute()
    except RuntimeError as error:  # an unknown user's home: `~nobody/cache`
        fact = f"the cache folder is not known ({error})"
        raise UsageError(asked or "~", fact, advice) from error
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        fact = f"the cache folder cannot be created ({error.strerror})"
        raise UsageError(str(folder), fact, advice) from error
    require_own(folder, "Set MENAGERIE_HOME to a folder of your own")
    return folder


def require_own(place: Path, advice: str) -> None:
    """Raise UsageError if `place` is writable by everyone or owned by another user except root.

    In a namespace that does not map every user, e.g. a sandbox, foreign users are `nobody`.
    """
    status, users = place.stat(), Path("/proc/self/uid_map")
    if status.st_mode & 0o002:  # as in /tmp, where others may own files
        raise UsageError(str(place), "is writable by everyone", advice)
    if (owner := status.st_uid) in {0, os.geteuid()}:
        return
    known = users.read_text().split()[2:] if users.exists() else []
    if owner != _NOBODY or known in ([], [str(2**32 - 1)]):
        raise UsageError(str(place), "belongs to another user", advice)


def _caches() -> Path:
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache").expanduser()
