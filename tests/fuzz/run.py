"""Fuzzes every reader for some seconds: `make fuzz`, or `python tests/fuzz/run.py --seconds 600`.

The C++ targets are built with the sanitizers into `build/fuzz`; the Python readers run under
atheris, whose wheel also brings libFuzzer's library for GCC. On a platform that atheris has no
wheel for, the C++ targets need Clang (`CXX=clang++ make fuzz`) and the Python readers are left to
`test_readers.py`. What is found is in `build/fuzz/found`; after the mending it goes to `corpus/`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "fuzz"
NATIVE = ("bundle", "json", "manifest", "safetensors", "trust")
MOST_BYTES, MOST_MEGABYTES, LONGEST_SECONDS = 4096, 2048, 10
GRACE_SECONDS = 120
_COUNT = re.compile(r"^Done (\d+) runs|^#(\d+)\s", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How a target fared."""

    name: str
    runs: int
    found: tuple[Path, ...]
    status: int

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return self.status == 0 and not self.found


def build() -> Path:
    """The C++ targets in one program.

    Raises:
        subprocess.CalledProcessError: they do not build.
    """
    archive = find_spec("asan_with_fuzzer")
    library = Path(str(archive.origin)).with_name("libclang_rt.fuzzer_no_main.a") if archive else ""
    tools = Path(sys.executable).parent
    cmake = str(tools / "cmake")
    words = [f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", f"-DPython_EXECUTABLE={sys.executable}"]
    words += [f"-DMENAGERIE_LIBFUZZER={library}"] if library else []
    subprocess.run([cmake, "-S", HERE, "-B", BUILD, "-G", "Ninja", *words], check=True)
    subprocess.run([cmake, "--build", BUILD], check=True)
    return BUILD / "menagerie-fuzz"


def fuzz(name: str, command: list[str], seconds: int, environment: dict[str, str]) -> Outcome:
    """Runs one target; its output goes to a log next to what it finds."""
    kind, _, reader = name.partition("-")
    found, grown = BUILD / "found" / name, BUILD / "grown" / name
    for folder in (found, grown):
        folder.mkdir(parents=True, exist_ok=True)
    words = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-rss_limit_mb={MOST_MEGABYTES}",
        f"-timeout={LONGEST_SECONDS}",
        f"-artifact_prefix={found}/",
        str(grown),
        str(HERE / "corpus" / reader),
    ]
    if reader == "metal":
        words.append(str(ROOT / "runtime" / "metal" / "kernels"))
    log = BUILD / f"{kind}-{reader}.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [*command, *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=seconds + GRACE_SECONDS,
            check=False,
            env=os.environ | environment,
        )
    counts = _COUNT.findall(log.read_text(errors="replace"))
    runs = max((int(a or b) for a, b in counts), default=0)
    return Outcome(name, runs, tuple(sorted(found.iterdir())), done.returncode)


def main() -> int:
    """Fuzzes the named targets; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at once")
    parser.add_argument("targets", nargs="*", help="e.g. native-json python-npy; default: all")
    asked = parser.parse_args()
    program = [str(build())]
    jobs = {f"native-{name}": (program, {"MENAGERIE_FUZZ": name}) for name in NATIVE}
    if find_spec("atheris") is None:
        print("The Python readers are left out: there is no wheel of atheris for this platform")
    else:
        readers = sorted(path.name for path in (HERE / "corpus").iterdir())
        python = [sys.executable, str(HERE / "python.py")]
        jobs |= {f"python-{name}": ([*python, name], {}) for name in readers}
    chosen = {name: job for name, job in jobs.items() if name in asked.targets or not asked.targets}
    with ThreadPoolExecutor(asked.jobs) as pool:
        waiting = [
            pool.submit(fuzz, name, command, asked.seconds, environment)
            for name, (command, environment) in chosen.items()
        ]
        outcomes = [each.result() for each in waiting]
    for outcome in outcomes:
        word = "nothing found" if outcome.sound else f"FOUND, see {BUILD}/{outcome.name}.log"
        print(f"{outcome.name:20} {outcome.runs:12,} inputs  {word}")
        for path in outcome.found:
            print(f"{'':20} {path}")
    print(f"{sum(o.runs for o in outcomes):,} inputs to {len(outcomes)} targets")
    return int(not all(outcome.sound for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
