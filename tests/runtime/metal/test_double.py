"""The Apple device, compiled with the build's own flags, runs here over doubles of Apple's classes.

The doubles compute by the emulated device and enforce what Apple documents (`double/`). Faults of
timing and of drivers they cannot show.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).parent / "double"))

from load_double import build_double, build_mistake

if TYPE_CHECKING:
    from collections.abc import Callable

_DOUBLE = Path(__file__).parent / "double"

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="a Mac runs Apple's own classes")

_SCENARIOS = re.findall(
    r"^def ([a-z]\w*)\(device: Device\) -> None",
    (_DOUBLE / "scenarios.py").read_text(),
    re.MULTILINE,
)


@pytest.fixture(scope="session")
def double() -> Path:
    """The library, built where it is missing."""
    return build_double()


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A script of the double in its own process, which a fault may end."""
    command = [sys.executable, str(_DOUBLE / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def scenarios(library: Path, *names: str) -> dict[str, str]:
    """What scenarios printed, and how they ended."""
    done = run("scenarios.py", library, *names)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    parts = re.split(r"^scenario (\w+)\n", done.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture(scope="module")
def ends(double: Path) -> dict[str, str]:
    """Of all scenarios."""
    return scenarios(double, *_SCENARIOS)


@pytest.mark.parametrize("name", _SCENARIOS)
def test_scenario_holds(ends: dict[str, str], name: str) -> None:
    """Each scenario ends well: numbers, errors, weights beyond a buffer, Macs of other kinds."""
    lines = ends[name].splitlines()
    assert (lines[0], lines[-1]) == ("held", "ended with 0"), lines


def test_every_operator_case(double: Path) -> None:
    """All cases of all operators, and all stories, give eager's results through Apple's layer."""
    done = run("run_cases.py", double)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    failures = {line["ends"]: line["failure"] for line in lines if line.get("failure")}
    assert failures == {}
    assert done.returncode == 0, f"{lines[-1]}: {done.stderr[-2000:]}"
    assert len(lines) > 1000


# What a run makes the device do. A number that is changed on purpose is changed here, and the table
# in benchmarks/metal.md is made anew.
_COUNTS = {
    "net": {"dispatches": 5, "encoders": 1, "commits": 1},
    "mixer": {"dispatches": 4, "encoders": 1, "commits": 1},
    "packed": {"dispatches": 44, "encoders": 2, "commits": 2},
}


@pytest.mark.parametrize("name", ["net", "mixer", "packed"])
def test_bundle(double: Path, metal_bundles: Callable[[str], Path], name: str) -> None:
    """A lowered model's numbers are eager's, and it makes the device do what it is known to do."""
    done = run("run_bundle.py", double, metal_bundles(name))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    counts = found.pop("main/counts")
    assert {key: counts[key] for key in _COUNTS[name]} == _COUNTS[name]
    assert found
    assert all(error < 1e-4 for error in found.values()), found


# A file of metal/apple, its text and the mistaken one; the scenario that shows
# it, and the message of the failure.
_MISTAKES = {
    "encoder not ended": (
        "stream", {"[std::exchange(encoder_, nil) endEncoding];": "auto open = std::exchange(encoder_, nil);"},
        "numbers", "commit while an encoder is open",
    ),
    "used after commit": (
        "stream", {"[std::exchange(encoder_, nil) endEncoding];": "[encoder_ endEncoding];"},
        "numbers", "after endEncoding",
    ),
    "not waited for": (
        "stream", {"[buffer waitUntilCompleted]": "(void)buffer"}, "numbers", "AssertionError",
    ),
    "wrong length of bytes": (
        "stream", {"length:argument.value_bytes": "length:argument.value_bytes + 4096"},
        "numbers", "setBytes with a length of",
    ),
    "wrong length of pages": (
        "device", {"const size_t whole = whole_pages(bytes);": "const size_t whole = bytes + 1;"},
        "long_weights", "bytes is wrapped that are not whole pages",
    ),
    "lost error": (
        "stream", {"for (id<MTLCommandBuffer> buffer : committed) {\n        require": "if (id<MTLCommandBuffer> buffer = committed.empty() ? nil : committed.back()) {\n        require"},
        "first_error", "the GPU's error is lost",
    ),
    "released while resident": (
        "device", {"[residency.set_ removeAllocation:buffer];": "(void)buffer;"},
        "weights_stay_resident", "released that a residency set holds",
    ),
    "residency not committed": (
        "device", {"  [set_ commit];\n  [set_ requestResidency];": "  [set_ requestResidency];"},
        "weights_stay_resident", "AssertionError",
    ),
    "empty wraps": (
        "device", {"buffer == nil || buffer.length < length": "buffer == nil"},
        "virtual_mac", "of a buffer of 0",
    ),
    "default device alone": (
        "device", {"if (device == nil) device = MTLCopyAllDevices().firstObject;": ""},
        "only_device", "offers no Metal device",
    ),
}  # fmt: skip


# Each compiles a file anew: those that Metal's rules of use name always, the others in the sweep.
_ALWAYS = {"encoder not ended", "used after commit"}


@pytest.mark.parametrize(
    "mistake",
    [
        name if name in _ALWAYS else pytest.param(name, marks=pytest.mark.sweep)
        for name in _MISTAKES
    ],
)
def test_mistake_is_noticed(double: Path, mistake: str, tmp_path: Path) -> None:
    """A deliberate mistake in the Apple device turns a scenario red, for the mistake's reason."""
    source, changes, name, said = _MISTAKES[mistake]
    printed = scenarios(build_mistake(tmp_path, source, changes), name)[name]
    assert "held" not in printed.splitlines()
    assert said in printed


def test_reference_counting_is_required(double: Path, tmp_path: Path) -> None:
    """Without ARC the device does not compile, and says how it is built."""
    with pytest.raises(RuntimeError, match="is built with -fobjc-arc"):
        build_mistake(tmp_path, "stream", {}, without="-fobjc-arc")


def test_missing_reference_counting_is_noticed(double: Path, tmp_path: Path) -> None:
    """Were it to compile, the encoder would die with the pool around it, as it would on a Mac."""
    library = build_mistake(
        tmp_path, "stream", {"#if !__has_feature(objc_arc)": "#if 0"}, without="-fobjc-arc"
    )
    assert "released without endEncoding" in scenarios(library, "numbers")["numbers"]
