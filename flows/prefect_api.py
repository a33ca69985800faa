"""Prefect's API for the command line, and the processes in which Prefect runs.

The API is the configured server's, or that of an embedded server for the run. Prefect is not
imported before the server answers: it reads its settings once, on import, so all environment
variables must be set before. The embedded server listens on loopback, keeps its SQLite file under
`$MENAGERIE_HOME`, and ends with this process, however that ends.

`python -m flows.prefect_api serve FD PARENT` is that server, on an inherited socket;
`python -m flows.prefect_api run` is the process of one flow run on a worker. Both end with the
process that started them.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from flows.connection import OF_ALL_WORKERS, ClusterState
from menagerie.paths import home
from tasks.failures import last_line
from zoo.errors import MenagerieError

STARTUP_SECONDS = 120.0  # a fresh database took 14 s on two idle cores, an existing one 4 s
_ATTEMPTS = 2  # the first start on a fresh home can fail after it created tables
_STOP_SECONDS = 5.0
_LOOK_SECONDS = 1.0  # between checks of the parent process
_GRACE_SECONDS = 20.0  # in which a run whose worker died can report its end
_REQUEST_SECONDS = "30"  # a busy machine sometimes loses an answer; Prefect retries

_QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # we show progress; runs keep logs
}
_SERVER_ONLY = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
    # Ephemeral servers start no schedulers or late-run marking and send no telemetry.
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}


@contextmanager
def prefect_api(
    status: Callable[[str], None] = lambda _: None, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Make Prefect's API available to this process and its children; yield its URL.

    `PREFECT_API_URL` in the environment is set to it. `status` is called with a line for the user
    when something slow begins. `meanwhile` is called while the embedded server starts, with the
    environment set, and may import modules that import Prefect. Raise MenagerieError if the
    configured server does not answer or the embedded one does not start.
    """
    configured = os.environ.get("PREFECT_API_URL")
    wanted = _QUIET | OF_ALL_WORKERS if configured else _QUIET
    os.environ.update({key: os.environ.get(key, value) for key, value in wanted.items()})
    if configured:
        probe(configured)
        meanwhile()
        yield configured
        return
    folder = home() / "prefect"
    folder.mkdir(exist_ok=True)
    os.environ["PREFECT_HOME"] = str(folder)
    os.environ.setdefault("PREFECT_API_REQUEST_TIMEOUT", _REQUEST_SECONDS)
    first = "" if (folder / "prefect.db").exists() else " (first time: up to a minute)"
    status(f"starting Prefect's embedded API{first}")
    # The server inherits a bound socket, so its address is known and reserved at once.
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
            os.environ["PREFECT_API_URL"] = url
            server = _start(folder, listener, url, meanwhile)
        try:
            yield url
        finally:
            _flush()
            _stop(server)
    finally:
        os.environ.pop("PREFECT_API_URL", None)


def probe(url: str, *, seconds: float = 10.0) -> None:
    """Check the API at `url`; raise MenagerieError if the server does not answer."""
    state = ClusterState.load()
    advice = "Start that server, or unset PREFECT_API_URL to use the embedded one"
    if state is not None and state.api_url == url:
        advice = "Run `zoo cluster status` to see what is down, or convert with --local"
    try:
        _health(url, seconds)
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if error.response.is_server_error:  # 401 and 403 are fine, since Prefect has the key
            raise MenagerieError(url, f"Prefect's API answers {status}", advice) from error
    except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
        raise MenagerieError(url, f"Prefect's API does not answer ({error})", advice) from error


def _start(
    folder: Path, listener: socket.socket, url: str, meanwhile: Callable[[], None]
) -> subprocess.Popen[bytes]:
    """Start the server, one at a time per machine, so that two never create the same tables."""
    log = folder / "server.log"
    with (folder / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for attempt in range(_ATTEMPTS):
            server = _spawn(log, listener.fileno())
            try:
                if attempt == 0:
                    meanwhile()
                if _await_health(server, url):
                    return server
            except BaseException:
                _stop(server)
                raise
            _stop(server)
    raise MenagerieError(
        "Prefect's embedded API",
        f"did not start: {last_line(log)}",
        f"See {log}; deleting {folder} starts with an empty database",
    )


def _spawn(log: Path, listener: int) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.prefect_api", "serve", str(listener), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[listener],
            env={**os.environ, **_SERVER_ONLY},
            start_new_session=True,  # Ctrl-C is for us; we stop the server at the end
        )


def _await_health(server: subprocess.Popen[bytes], url: str) -> bool:
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            _health(url, 1.0)
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return True
    return False


def _health(url: str, seconds: float) -> None:
    address = f"{url.rstrip('/')}/health"
    httpx.get(address, timeout=seconds, verify=server_trust()).raise_for_status()


def server_trust() -> ssl.SSLContext:
    """Return a TLS context with the authorities that Prefect's client trusts.

    Raise OSError if the file that PREFECT_API_SSL_CERT_FILE names cannot be read.
    """
    return ssl.create_default_context(cafile=os.environ.get("PREFECT_API_SSL_CERT_FILE") or None)


def _flush() -> None:
    """Make Prefect's background threads send pending logs and the last states of tasks."""
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        EventsWorker.drain_all(timeout=_STOP_SECONDS, at_exit=False)
        APILogWorker.drain_all(timeout=_STOP_SECONDS, at_exit=False)


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()  # not killed, so that it records the run's last states
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def main(role: str, *arguments: str) -> None:
    """Run the embedded server, or a flow run, until the parent process ends.

    An orphaned run could not be cancelled, would keep its place in the queue, and could collide
    with its own retry.
    """
    parent = int(arguments[1]) if role == "serve" else os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if role == "serve":
        import uvicorn
        from prefect.server.api.server import create_app

        fd = int(arguments[0])
        uvicorn.run(create_app, factory=True, fd=fd, log_level="error", lifespan="on", workers=1)
    else:
        del sys.argv[1:]  # Prefect's engine would read the first argument as a run's id
        runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)  # Prefect marks the run as crashed and retries it
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
