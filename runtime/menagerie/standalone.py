"""A folder that proves and measures a bundle without Python, on any Linux with glibc 2.28.

::

    menagerie-run          the program; without arguments it uses the bundle next to it
    libmenagerie_cpu.so    the runtime, with the libraries libdnnl.so.3 and libgomp.so.1
    bundle/                as pulled, with its signature
    roots/                 the trusted roots of this machine's owner whose keys signed it
    include/menagerie.h    for programs in C, C++ and Swift, such as examples/run.c
    NOTICE, README.txt
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from menagerie.durable import disk_errors, make_folders, sync
from menagerie.errors import ArtifactError, SessionError, Untrusted, UsageError
from menagerie.format.archive import require_free_place
from menagerie.format.folder import Bundle, open_bundle
from menagerie.paths import built
from menagerie.store.pull import appearing
from menagerie.trust import check_signature, trusted_roots

GLIBC = "2.28"
_PROGRAM, _RUNTIME, _NOTICE = "menagerie-run", "libmenagerie_cpu.so", "NOTICE"
_HEADER = "include/menagerie.h"
_NEEDED = (_PROGRAM, _RUNTIME, _NOTICE, _HEADER, "libgomp.so.1")
_OPTIONAL = ("libdnnl.so.3", "examples/run.c")  # missing on arm64; missing in older wheels
_README = """\
{0.model} for {0.platform}, by itself: a bundle, its runtime, and a program that proves it.

    ./menagerie-run                the golden cases, against what PyTorch made of them
    ./menagerie-run --bench 100    the same, and how long a call takes
    ./menagerie-run --help

It takes Linux on {machine} with glibc {glibc} or later, and the system's C++ library; no Python.
It checks the bundle's signature by the keys in roots/.
Anyone who can change those can change the program as well: keep the folder where only you may
write, and check a copy that came another way by keys of your own, with --trust.

A program of your own takes include/menagerie.h and the library{example}
"""
_EXAMPLE = """, as examples/run.c does:

    cc examples/run.c -Iinclude -L. -lmenagerie_cpu -Wl,-rpath,'$ORIGIN' -o run"""


def make_standalone(
    place: Path, fetch: Callable[[Path], object], runtime: Path | None = None
) -> Path:
    """Make `place`, absent or an empty folder, such a folder; it appears when it is complete.

    `fetch` puts the bundle into the folder that it gets; called again after an interruption, it
    finds what it has put there. `runtime` is a wheel of `menagerie` for the bundle's platform, by
    default the installed package.

    Raises:
        UsageError: something is at `place`; the bundle is not for Linux; or the runtime is not one
            that other machines accept.
        StoreError: there is no space, or `fetch` raises it.
    """
    require_free_place(place)
    if runtime is not None and not runtime.is_file():
        raise UsageError(str(runtime), "there is no such file", "Make one with `make wheel`")
    place = place.absolute()
    partial = place.with_name(f".{place.name}.standalone")
    with disk_errors(place.parent):
        make_folders(place.parent)
        with appearing(place, partial) as inner:
            try:
                _fill(inner, fetch, runtime)
            except UsageError:  # otherwise the next call, for another bundle, would find this one's
                shutil.rmtree(inner / "bundle", ignore_errors=True)
                raise
    return place


def _fill(inner: Path, fetch: Callable[[Path], object], runtime: Path | None) -> None:
    fetch(inner / "bundle")
    bundle = open_bundle(inner / "bundle", check_hashes=False)
    manifest, machine = bundle.manifest, bundle.manifest.requires.machine
    if manifest.requires.system != "linux" or manifest.runtime != "cpu":
        fact = "a standalone folder is for Linux, on its processor"
        place = f"{manifest.model} for {manifest.platform}"
        raise UsageError(place, fact, "Pull it without --standalone")
    files = _runtime_files(runtime, machine)
    for name, content in files.items():
        _write(inner / name, content, executable=name == _PROGRAM)
    shutil.rmtree(inner / "roots", ignore_errors=True)
    for number, root in enumerate(_roots_of(bundle)):
        _write(inner / "roots" / f"{number}.json", root)
    example = _EXAMPLE if "examples/run.c" in files else "."
    readme = _README.format(manifest, machine=machine, glibc=GLIBC, example=example)
    _write(inner / "README.txt", readme.encode())


def _runtime_files(runtime: Path | None, machine: str) -> Mapping[str, bytes]:
    """Return the runtime's files by path; UsageError if a wheel does not fit such machines."""
    if runtime is None:
        found = {}
        for name in (*_NEEDED, *_OPTIONAL):
            with suppress(SessionError):
                found[name] = built(name)
        if missing := [name for name in _NEEDED if name not in found]:
            fact = f"the runtime installed here was built for this machine alone (no {missing[0]})"
            advice = "Name a wheel of menagerie with --runtime (`make wheel` puts one into dist/)"
            raise UsageError("--standalone", fact, advice)
        return {name: path.read_bytes() for name, path in found.items()}
    if not runtime.name.endswith(f"_{machine}.whl"):
        fact = f"is not a wheel for {machine}"
        raise UsageError(str(runtime), fact, "Name menagerie-*.whl for the bundle's platform")
    try:
        with zipfile.ZipFile(runtime) as wheel:
            inside = set(wheel.namelist())
            names = [n for n in (*_NEEDED, *_OPTIONAL) if f"menagerie/{n}" in inside]
            if missing := [name for name in _NEEDED if name not in names]:
                fact = f"is not a wheel of menagerie: it has no {missing[0]}"
                raise UsageError(str(runtime), fact, "Make one with `make wheel`")
            return {name: wheel.read(f"menagerie/{name}") for name in names}
    except (zipfile.BadZipFile, OSError) as error:
        raise UsageError(str(runtime), f"cannot be read: {error}", "Run `make wheel`") from None


def _roots_of(bundle: Bundle) -> Iterator[bytes]:
    """Yield the trusted roots whose keys have signed the bundle; none if it is unsigned."""
    for root in trusted_roots():
        with suppress(Untrusted, ArtifactError):
            check_signature(bundle.document, bundle.signature, str(bundle.folder), roots=[root])
            yield root.document


def _write(path: Path, content: bytes, *, executable: bool = False) -> None:
    make_folders(path.parent)
    path.write_bytes(content)
    path.chmod(0o755 if executable else 0o644)
    sync(path)
