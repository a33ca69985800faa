"""Service files are well-formed, agree with one another, and keep secrets out of themselves."""

from __future__ import annotations

import configparser
import os
import plistlib
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.connection import OF_ALL_WORKERS

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
UNITS = sorted((INFRA / "systemd").glob("*.service"))
PREFECT = "/opt/menagerie/.venv/bin/prefect"
EXAMPLES = sorted(INFRA.rglob("*.example"))


class Unit(configparser.ConfigParser):
    """systemd's files: keys keep their case and may be given more than once."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, interpolation=None, comment_prefixes=("#", ";"))
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read_string(path.read_text())


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_hardened_and_hold_no_secret(path: Path) -> None:
    """A user of its own, secrets from a file, a start after the network, restarted."""
    unit = Unit(path)
    service = unit["Service"]
    assert service["User"] == "menagerie"
    assert service["EnvironmentFile"].startswith("/etc/menagerie/")
    assert service["ExecStart"].startswith(PREFECT)
    assert service["Restart"] == "always"
    assert service["NoNewPrivileges"] == "true"
    assert service["ProtectSystem"] == "strict"
    assert "network-online.target" in unit["Unit"]["After"]
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert not re.search(r"AUTH_STRING|SECRET_KEY|PASSWORD", path.read_text())


def test_the_worker_stays_within_its_host() -> None:
    """Memory is bounded, and what its runs started ends with it."""
    service = Unit(INFRA / "systemd" / "menagerie-worker@.service")["Service"]
    assert service["MemoryMax"]
    assert service["KillMode"] == "mixed"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_units(path: Path, tmp_path: Path) -> None:
    """Where there is systemd, its own check finds nothing; else every key is one that it knows."""
    known = {
        "Unit": {"Description", "Documentation", "Wants", "After"},
        "Install": {"WantedBy"},
    }
    unit = Unit(path)
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    for section, keys in known.items():
        assert set(unit[section]) <= keys
    if (analyze := shutil.which("systemd-analyze")) is None:
        return
    name = path.name.replace("@.", "@linux-cpu.")
    # The check insists on programs that are there.
    (tmp_path / name).write_text(path.read_text().replace(PREFECT, sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    complaints = [line for line in done.stderr.splitlines() if name in line]
    assert complaints == []


def test_the_mac_starts_a_worker_of_its_pool() -> None:
    """A property list as launchd knows it; the script it starts is there and can be run."""
    with (INFRA / "launchd" / "org.menagerie.worker.plist").open("rb") as file:
        agent: dict[str, Any] = plistlib.load(file)
    kinds = {
        "Label": str,
        "ProgramArguments": list,
        "LimitLoadToSessionType": str,
        "RunAtLoad": bool,
        "KeepAlive": bool,
        "ThrottleInterval": int,
        "ExitTimeOut": int,
        "ProcessType": str,
    }
    assert {key: type(value) for key, value in agent.items()} == kinds
    assert agent["Label"] == "org.menagerie.worker"
    _, script, pool = agent["ProgramArguments"]
    assert pool == "macos-metal"
    found = INFRA / "launchd" / Path(script).name
    assert found.stat().st_mode & stat.S_IXUSR
    assert subprocess.run(["/bin/sh", "-n", found], check=False).returncode == 0


def test_every_worker_tolerates_outages_and_has_a_heartbeat() -> None:
    """As those of `zoo cluster up`: automations know a lost run by heartbeats of 30 seconds."""
    assert OF_ALL_WORKERS["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    wanted = [f"{name}={value}" for name, value in OF_ALL_WORKERS.items()]
    for path in (
        "systemd/menagerie-worker@.service",
        "launchd/worker.sh",
        "container/Containerfile",
    ):
        text = (INFRA / path).read_text()
        assert [each for each in wanted if each not in text] == [], path


def test_the_image_runs_as_an_unprivileged_user() -> None:
    """Known base, a user without rights, a worker that gets its signals, no secret."""
    text = (INFRA / "container" / "Containerfile").read_text()
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if not line.startswith("#")]
    words = [line.split(maxsplit=1) for line in lines if line.strip()]
    known = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "EXPOSE", "VOLUME", "CMD"}
    assert {word[0] for word in words} <= known
    assert words[0] == ["ARG", "BASE=docker.io/library/debian:bookworm-slim"]
    assert words[1] == ["FROM", "${BASE} AS python"]
    begun = [number for number, word in enumerate(words) if word[0] == "FROM"]
    stages = {words[at][1].rpartition(" AS ")[2]: words[at:] for at in begun}
    for name in ("server", "worker"):
        stage = stages[name][
            : next((i for i, w in enumerate(stages[name][1:], 1) if w[0] == "FROM"), None)
        ]
        assert [word[1] for word in stage if word[0] == "USER"] == ["menagerie"], name
        assert [word[1] for word in stage if word[0] == "VOLUME"] == ["/var/lib/menagerie"], name
    assert "exec /opt/menagerie/.venv/bin/prefect" in words[-1][1]
    assert not re.search(r"AUTH_STRING|SECRET_KEY", text)


def ignored(path: str) -> bool:
    """Whether an image is built without this file, by the patterns of `.dockerignore`.

    As far as ours go: `*` is any text without a slash, `**/` any folders or none, and what is in
    an ignored folder is ignored. See "dockerignore file" in Docker's reference.
    """
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    for pattern in (line for line in patterns if line and not line.startswith("#")):
        assert not re.search(r"[!?\[\\]", pattern), "not understood here"
        parts = [re.escape(part).replace(r"\*", "[^/]*") for part in pattern.split("**/")]
        if re.fullmatch("(?:.*/)?".join(parts) + "(?:/.*)?", path):
            return True
    return False


@pytest.mark.parametrize(
    "path",
    [
        ".venv/.ready",
        ".venv/bin/python",
        ".git",  # a file, in a second work tree
        ".git/config",
        "worker.env",
        ".env",
        "infra/container/worker.env",
        "build/cp311/libruntime.so",
        "dist/menagerie.whl",
        "zoo/__pycache__/home.pyc",
        "menagerie.egg-info/PKG-INFO",
        ".mypy_cache/x",
        ".ruff_cache/x",
        ".pytest_cache/x",
        ".hypothesis/x",
        "out/x",
    ],
)
def test_the_image_is_made_of_sources_alone(path: str) -> None:
    """A used checkout gives it no environment of another place, no history and no secrets."""
    assert ignored(path)


def test_the_image_has_all_that_the_repository_has() -> None:
    """No folder or file besides `.gitignore`'s is left out; the examples of settings stay."""
    for folder in ("flows", "tasks", "transforms", "runtime", "zoo", "infra"):
        sources = [p for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".cpp", ".yaml"}]
        assert sources
        for source in sources:
            assert not ignored(source.relative_to(ROOT).as_posix())
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"):
        assert (ROOT / name).is_file()
        assert not ignored(name)
    for example in EXAMPLES:
        assert not ignored(example.relative_to(ROOT).as_posix())


def test_what_git_ignores_no_image_has() -> None:
    """Both lists name the same; a filled-in file of settings is in neither place."""
    patterns = (ROOT / ".gitignore").read_text().splitlines()
    names = [line.strip("/") for line in patterns if line and not line.startswith("#")]
    assert "*.env" in names
    for name in names:
        assert ignored(name.replace("*", "x"))


OF_THE_STORE = {"AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_hold_no_real_secret(path: Path) -> None:
    """Whatever is secret is to be replaced; names are ones that Prefect or the store knows."""
    import prefect.settings

    for line in path.read_text().splitlines():
        name, _, value = line.partition("=")
        if line.startswith("#"):
            continue
        if re.search(r"AUTH|SECRET|PASSWORD|ACCESS_KEY|CONNECTION", name):
            assert "REPLACE" in value
        if name.startswith("PREFECT_"):
            assert hasattr(prefect.settings, name)
        else:
            assert name in OF_THE_STORE | {"MENAGERIE_STORE", "MENAGERIE_ROLE", "POSTGRES_PASSWORD"}


def compose() -> dict[str, Any]:
    """The server side."""
    found: dict[str, Any] = YAML(typ="safe").load(INFRA / "compose" / "compose.yaml")
    return found


def test_compose_is_complete() -> None:
    """Keys that the format has; what a service depends on has a health check."""
    document = compose()
    assert set(document) == {"name", "x-prefect", "services", "volumes"}
    services: dict[str, dict[str, Any]] = document["services"]
    assert set(services) == {"postgres", "redis", "server", "services", "worker"}
    known = {"image", "restart", "env_file", "environment", "volumes", "healthcheck", "command"}
    known |= {"ports", "depends_on"}
    ours = {"build", "read_only", "tmpfs", "cap_drop", "security_opt", "mem_limit", "pids_limit"}
    for name, service in services.items():
        assert set(service) <= known | (ours if "build" in service else set()), name
        assert ":" in service["image"], "a version, not whatever is newest"
        assert not service["image"].endswith(":latest")
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[needed]
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in document["volumes"]
        if (file := service.get("env_file")) is not None:
            folder = "container" if name == "worker" else "compose"
            assert (INFRA / folder / f"{file}.example").is_file()


def test_compose_publishes_the_api_on_loopback_alone() -> None:
    """Neither the database nor Redis can be reached, and the API only through a proxy."""
    ports = {n: s["ports"] for n, s in compose()["services"].items() if "ports" in s}
    assert ports == {"server": ["127.0.0.1:4200:4200"]}


def test_compose_runs_the_pinned_prefect() -> None:
    """Our images, hence the lock's; CSRF protection on, analytics off, events through Redis."""
    import prefect.settings

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    services = compose()["services"]
    for name, target in (("server", "server"), ("services", "server"), ("worker", "worker")):
        assert services[name]["image"] == f"localhost/menagerie-{target}:{version}"
        build = services[name]["build"]
        assert (INFRA / "compose" / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
        assert build["target"] == target
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        [volume] = services[name]["volumes"]
        assert volume.endswith(":/var/lib/menagerie")
    for name in ("server", "services"):
        values = services[name]["environment"]
        assert values["PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED"] == "true"
        assert values["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
        assert values["PREFECT_MESSAGING_BROKER"] == "prefect_redis.messaging"
        ours = [n for n in values if n.startswith("PREFECT_") and "_REDIS_" not in n]
        assert [n for n in ours if not hasattr(prefect.settings, n)] == []
        assert all(isinstance(value, str) for value in values.values())


def test_all_else_names_the_pinned_prefect() -> None:
    """The image of the worker in Kubernetes, and the file of deployments."""
    import prefect

    pods = (INFRA / "kubernetes" / "worker.yaml").read_text()
    assert f"prefecthq/prefect:{prefect.__version__}-python3.11-kubernetes\n" in pods
    deployments = YAML(typ="safe").load(INFRA.parent / "prefect.yaml")
    assert deployments["prefect-version"] == prefect.__version__
