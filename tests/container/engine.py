"""Images built and run by buildah and podman, from Debian packages, without a daemon or a registry.

What was built stays in `build/containers`, so that a second run finds its layers.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "containers"
BASE = "localhost/menagerie-base:bookworm"
DEBIAN = "bookworm"
SLIM = ("doc", "info", "locale", "man")  # of /usr/share
# More than the machine's own limit is refused; and where the kernel has both kinds of
# cgroups, one runtime or the other refuses.
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
ENGINES: tuple[list[str], ...] = (
    [],
    ["--cgroup-manager", "cgroupfs"],
    ["--runtime", "runc", "--cgroup-manager", "cgroupfs"],
)


def call(*command: str | Path, log: Path | None = None) -> str:
    """Run a command that must go well; what it prints, or nothing where that goes to a log."""
    if log is not None:
        with log.open("ab") as file:
            done = subprocess.run(command, stdout=file, stderr=file, check=False)
        assert done.returncode == 0, log.read_text(errors="replace")[-3000:]
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[-3000:]}"
    return done.stdout


def storage(program: str) -> list[str]:
    """A program and where its images are."""
    return [program, "--root", str(PLACE / "graph"), "--runroot", str(PLACE / "run")]


def make_base() -> None:
    """What Docker Hub's `debian:bookworm-slim` is, from Debian itself."""
    PLACE.mkdir(parents=True, exist_ok=True)
    found = call(*storage("buildah"), "images", "--json")
    if found.strip() and BASE in found:
        return
    folder = PLACE / "base"
    shutil.rmtree(folder, ignore_errors=True)
    bootstrap = ["debootstrap", "--variant=minbase", "--include=ca-certificates"]
    call(*bootstrap, DEBIAN, folder, log=PLACE / "debootstrap.log")
    # The packages that it was made of and their list; and what a slim image never installs.
    for place in ("var/cache/apt", "var/lib/apt/lists", *(f"usr/share/{name}" for name in SLIM)):
        shutil.rmtree(folder / place)
    (folder / "etc" / "dpkg" / "dpkg.cfg.d" / "slim").write_text(
        "".join(f"path-exclude /usr/share/{name}/*\n" for name in SLIM)
    )
    [container] = call(*storage("buildah"), "from", "scratch").split()
    call(*storage("buildah"), "add", "--quiet", container, folder, "/")
    call(*storage("buildah"), "commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(folder)


def pip_settings() -> dict[str, str]:
    """How pip on this machine finds packages; the environment's settings beat those of files."""
    lines = call(sys.executable, "-m", "pip", "config", "list").splitlines()
    said = [line.partition("=") for line in lines]
    found = {}
    for kind in ("global.", ":env:."):
        for name, _, value in said:
            if name.startswith(kind):
                found[name.removeprefix(kind)] = str(ast.literal_eval(value))
    return found


def folders_of(settings: Mapping[str, str]) -> list[str]:
    """The places of this machine that settings of pip name, for the builder to see."""
    words = [word.removeprefix("file://") for each in settings.values() for word in each.split()]
    paths = [Path(word) for word in words if word.startswith("/")]
    # What an index links to is next to it.
    paths = [path.parent if path.name == "simple" else path for path in paths]
    return sorted({f"{path}:{path}:ro" for path in paths if path.exists()})


def torch_index() -> str:
    """An index with a CPU build of torch: the variable TORCH_INDEX, else of what pip finds here."""
    if given := os.environ.get("TORCH_INDEX"):
        return given
    [torch] = re.findall(r"^TORCH := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    folder = PLACE / "index" / "torch"
    if not (folder / "index.html").exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        call(*pip, "--dest", folder, torch)
        [wheel] = folder.iterdir()
        assert "+cpu" in wheel.name, "pip finds no CPU build: make test-container TORCH_INDEX=URL"
        (folder / "index.html").write_text(f'<a href="{quote(wheel.name)}">{wheel.name}</a>')
    return folder.parent.as_uri()


def build(target: str, context: Path) -> float:
    """Build an image of the Containerfile; the seconds that it took."""
    index, settings = torch_index(), pip_settings()
    settings.pop("find-links", None)  # torch comes from the index that is named
    secret = PLACE / "pip.conf"
    secret.write_text("[global]\n" + "".join(f"{n} = {v}\n" for n, v in settings.items()))
    folders = folders_of(settings | {"index": index})
    seen = [word for folder in folders for word in ("--volume", folder)]
    begun = time.monotonic()
    call(
        *storage("buildah"),
        *("build", "--isolation", "chroot", "--layers", "--pull-never", *LIMITS[:2]),
        *("--file", context / "infra" / "container" / "Containerfile", "--target", target),
        *("--build-arg", f"BASE={BASE}", "--build-arg", f"TORCH_INDEX={index}"),
        *("--secret", f"id=pip,src={secret}", *seen),
        *("--tag", f"localhost/menagerie-{target}", context),
        log=PLACE / f"{target}.log",
    )
    return time.monotonic() - begun


def image(target: str) -> dict[str, Any]:
    """What is known of an image: `Size` in bytes, `Config`."""
    [found] = json.loads(call(*storage("podman"), "inspect", f"localhost/menagerie-{target}"))
    return dict(found)


def engine() -> list[str]:
    """Podman with the options with which it runs anything here."""
    refusals = []
    for options in ENGINES:
        command = [*storage("podman"), *options]
        probe = [*command, "run", "--rm", "--network", "host", *LIMITS, BASE, "true"]
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return command
        refusals.append(done.stderr.strip())
    raise AssertionError("\n".join(refusals))


def run_options(service: Mapping[str, Any], volumes: Mapping[str, Path]) -> list[str]:
    """What compose says of a service, in podman's words; its volumes are folders here."""
    options = ["--read-only"] if service.get("read_only") else []
    options += [f"--tmpfs={place}" for place in service.get("tmpfs", ())]
    options += [f"--cap-drop={each}" for each in service.get("cap_drop", ())]
    options += [f"--security-opt={each}" for each in service.get("security_opt", ())]
    for volume in service.get("volumes", ()):
        name, _, place = volume.partition(":")
        options.append(f"--volume={volumes[name]}:{place}")
    return options


def environment_options(values: Mapping[str, str]) -> Sequence[str]:
    """As words of a command: nothing of these tests' is secret."""
    return [f"--env={name}={value}" for name, value in values.items()]
