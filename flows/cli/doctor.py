"""`zoo doctor`; each check is a function that never raises."""

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from email.utils import parsedate_to_datetime

from flows.cli.options import StoreOption, use_cluster
from flows.cli.output import AS_JSON, answer, messages, shown_checks
from menagerie.figures import milliseconds, seconds, size
from menagerie.paths import home
from zoo.errors import Check, Health, MenagerieError

_SPACE_WARN = 10_000_000_000  # our largest model needs 9.6 GB for bundle, work and store
_SPACE_FAIL = 1_000_000_000
_SKEW_SECONDS = 5.0


def doctor(*, store: StoreOption = "") -> None:
    """Look at this machine, the store and Prefect's API, and say what to fix.

    **Examples**

    - `zoo doctor`
    - `zoo doctor --store s3://models/zoo`
    """
    use_cluster(lambda cluster: cluster.prefect_environment())
    found = []
    with messages().status("looking at this machine") as status:
        for check in _checks(store, status.update):
            found.append(check)
            if not AS_JSON.get():
                answer(None, *shown_checks([check]))
    fit = all(check.health is not Health.FAIL for check in found)
    answer([asdict(check) for check in found], succeeded=fit)


def _checks(store: str, status: Callable[[str], None]) -> Iterator[Check]:
    """Yield one check after another; call `status` before a slow one."""
    from transforms.targets import all_targets

    for look in (_python, _packages, _compiler):
        yield look()
    for target in all_targets().values():
        yield from target.checks()
    for look in (_runtime, _sandbox, _home):
        yield look()
    status(f"probing the store {store}")
    yield _store(store)
    yield _prefect(status)
    if server := os.environ.get("PREFECT_API_URL"):
        yield _clock(server)


def _python() -> Check:
    from packaging.specifiers import SpecifierSet

    found = platform.python_version()
    wanted = importlib.metadata.metadata("menagerie-zoo")["Requires-Python"]
    if SpecifierSet(wanted).contains(found, prereleases=True):
        return Check("python", Health.OK, f"{found} at {sys.executable}")
    return Check("python", Health.FAIL, found, f"Use a Python that is {wanted}")


def _packages() -> Check:
    """Compare installed packages with Menagerie's requirements."""
    from packaging.requirements import Requirement

    wrong, count = [], 0
    for text in importlib.metadata.requires("menagerie-zoo") or ():  # includes `menagerie`'s
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            found = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{wanted.name} is missing")
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            wrong.append(f"{wanted.name} {found} is not {wanted.specifier}")
    if wrong:
        advice = "Run `make setup`; pulling, verifying and running need no torch and no prefect"
        return Check("packages", Health.WARN, "; ".join(wrong), advice)
    return Check("packages", Health.OK, f"{count} as required")


def _compiler() -> Check:
    from menagerie.compilers import find_host_compiler

    found = find_host_compiler()
    if found is None:
        advice = "Install g++ 11 or clang 15, or newer; only conversion needs it"
        return Check("compiler", Health.WARN, "there is no C++ compiler on the PATH", advice)
    path, version = found
    return Check("compiler", Health.OK, f"{version} at {path}")


def _runtime() -> Check:
    try:
        from menagerie.library import available_targets, library_path, version

        # A Mac has only the Metal runtime, Linux has both.
        targets = available_targets() or (library_path().name,)
        return Check("runtime", Health.OK, version(targets[0]))
    except (MenagerieError, OSError, ImportError) as error:
        return Check("runtime", Health.FAIL, str(error), "Build it with `make setup`")


def _sandbox() -> Check:
    from menagerie.validation.sandbox import NO_SANDBOX, SECCOMP, sandbox_name

    found = sandbox_name()
    if found == NO_SANDBOX:
        detail = "none: a bundle that is being proven or verified runs as you"
        advice = "Prove and verify only your own artifacts here, or use a container"
        return Check("sandbox", Health.WARN, detail, advice)
    if found == SECCOMP:
        detail = f"{found}: no network and no other process, but a bundle may read your files"
        advice = "Let users make namespaces, or start the kernel (5.13 or later) with lsm=landlock"
        return Check("sandbox", Health.WARN, detail, advice)
    return Check("sandbox", Health.OK, found)


def _home() -> Check:
    try:
        folder = home()
        free = shutil.disk_usage(folder).free
    except (MenagerieError, OSError) as error:
        return Check("home", Health.FAIL, str(error))
    detail = f"{folder}, {size(free)} free"
    if not os.access(folder, os.W_OK):
        advice = "Set MENAGERIE_HOME to a folder you can write to"
        return Check("home", Health.FAIL, f"{folder}, read-only", advice)
    if free < _SPACE_WARN:
        health = Health.FAIL if free < _SPACE_FAIL else Health.WARN
        advice = "Free some space, or set MENAGERIE_HOME to a larger disk"
        return Check("home", health, detail, advice)
    return Check("home", Health.OK, detail)


def _store(url: str) -> Check:
    from zoo.store import open_store
    from zoo.store.inspection import probe

    try:
        found = probe(objects := open_store(url).objects)
    except MenagerieError as error:
        return Check("store", Health.FAIL, str(error))
    bad = [f"{f.operation}: {f.detail}" for f in found if f.detail]
    if bad:
        advice = "Publishing or pulling will not work until the store does this"
        return Check("store", Health.FAIL, "; ".join(bad), advice)
    slowest = max(found, key=lambda f: f.milliseconds)
    detail = f"{objects.url}, slowest: {slowest.operation} {milliseconds(slowest.milliseconds)}"
    return Check("store", Health.OK, detail)


def _prefect(status: Callable[[str], None]) -> Check:
    from flows.prefect_api import prefect_api

    configured = bool(os.environ.get("PREFECT_API_URL"))
    began = time.perf_counter()
    try:
        with prefect_api(status) as url:
            taken = time.perf_counter() - began
    except MenagerieError as error:
        return Check("prefect", Health.FAIL, str(error))
    what = f"server {url} answers" if configured else "embedded API starts"
    return Check("prefect", Health.OK, f"{what} in {seconds(taken)}")


def _clock(server: str) -> Check:
    """Compare this machine's clock with the server's, because a worker's must be right.

    A worker fetches runs that are due by its own clock, and S3 servers refuse requests that seem to
    be 15 minutes old.
    """
    import httpx

    from flows.prefect_api import server_trust

    began = time.time()
    try:  # a refusal has a date too
        headers = httpx.get(f"{server}/health", timeout=10, verify=server_trust()).headers
        server_time = parsedate_to_datetime(headers["Date"]).timestamp()
    except (OSError, LookupError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
        return Check("clock", Health.WARN, f"{server} does not say: {error}")
    # The server's second may have begun just before the request, or be about to end.
    ahead = max(began - server_time - 1.0, 0.0) + min(time.time() - server_time, 0.0)
    if abs(ahead) <= _SKEW_SECONDS:
        return Check("clock", Health.OK, "as the server's")
    detail = f"{seconds(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the server's"
    advice = "Set it, best by NTP: workers find their runs late, S3 servers refuse requests"
    return Check("clock", Health.FAIL, detail, advice)
