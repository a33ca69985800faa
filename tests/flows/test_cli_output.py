"""What commands write: JSON that every reader of JSON takes, and figures with their true names."""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
from toy_zoo import toy_divergence, toy_job, toy_judgement

from flows.cli import invoke
from menagerie.errors import NotInStore
from menagerie.figures import error, milliseconds
from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype
from menagerie.terminal import write_in_any_encoding, write_json, written_out
from menagerie.validation.findings import KernelTime, Peaks, Profile
from transforms.goldens.cases import GoldenCase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from menagerie.validation.findings import ValidationReport


def strictly(text: str) -> Any:
    """The value of a JSON text by the standard, which has neither NaN nor Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_closed_standard_output_is_reported(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sys.stdout` is None then; nothing is started."""
    monkeypatch.setattr(sys, "stdout", None)
    assert invoke(["list"]) == 2
    assert "standard output: is closed" in capfd.readouterr().err


def test_a_list_has_one_whole_name_a_line() -> None:
    """In a pipe, also of 60 columns: nothing of a row goes to the next line; so on a terminal."""
    zoo = Path(sys.executable).with_name("zoo")
    given = [str(zoo), "list", "--tag", "speech"]
    names = {row["name"] for row in json.loads(subprocess.check_output([*given, "--json"]))}
    narrow = {**os.environ, "COLUMNS": "60"}
    piped = subprocess.check_output(given, text=True, env=narrow)
    shown = subprocess.check_output(
        ["script", "-qec", f"stty cols 60; {shlex.join(given)}", "/dev/null"],  # noqa: S607
        text=True,
        env={**narrow, "TERM": "xterm", "NO_COLOR": "1"},
    )
    for text in (piped, shown):
        lines = [line.split()[0] for line in text.splitlines() if line.strip()]
        assert {line for line in lines if line in names} == names
        assert len(lines) == len(names) + 2  # the head, and the line below it
    assert max(map(len, shown.splitlines()[3:])) <= 60


@pytest.mark.parametrize("command", ["compile --help", "debug explain --help", "list"])
def test_a_terminal_of_ascii_is_written_to(command: str) -> None:
    """Bullets, boxes and dashes are replaced; the answer is whole."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    zoo = Path(sys.executable).with_name("zoo")
    given = [zoo, *command.split()]
    done = subprocess.run(given, env=os.environ | plain, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"\\u" not in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["menagerie --help", "menagerie version", "zoo -h", "zoo list"])
def test_a_full_standard_output_is_said(command: str, unbuffered: str) -> None:
    """One line with what to do, and an exit code that scripts see."""
    program, *given = command.split()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *given],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    fact = "takes no more: No space left on device"
    said = f"standard output: {fact}. Send it to where there is room\n"
    assert (done.stderr, done.returncode) == (said, 1)


def test_an_error_is_said_though_the_reader_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure stays one for scripts: `menagerie verify out | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as left:  # noqa: PTH123 - it has no path
        monkeypatch.setattr(sys, "stdout", left)

        def fail() -> int:
            left.write("a line")
            raise NotInStore("here", "is not there")

        def report() -> int:
            left.write("a line")
            return 1

        with pytest.raises(NotInStore):
            written_out(fail)
        assert written_out(report) == 1


@pytest.mark.parametrize("command", ["menagerie --help", "menagerie version", "zoo list"])
def test_a_program_without_standard_output_says_so(command: str) -> None:
    """As a shell's `>&-` starts it."""
    program, *given = command.split()
    place = Path(sys.executable).with_name(program)
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", place, *given],  # noqa: S607
        capture_output=True,
        check=False,
        text=True,
    )
    said = "standard output: is closed. Send it to /dev/null to be rid of it\n"
    assert (closed.stderr, closed.returncode) == (said, 2)


def test_figures_are_legible_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """Powers of ten and micro keep their meaning, and a letter that is not ours is written out."""
    sheet = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sheet, "ascii"))
    write_in_any_encoding()
    sys.stdout.write(f"{error(2.1e-6)} {milliseconds(0.5)} a → b é\n")
    write_json("é")
    sys.stdout.flush()
    assert sheet.getvalue() == b'2.1 x 10^-6 500 us a -> b \\xe9\n"\\u00e9"\n'


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("ascii", "2.1 x 10^-10 10^-12 10^4 10^10 3.0 x 10^21"),
        ("latin-1", "2.1\xa0\xd7\xa010^-10 10^-12 10^4 10^10 3.0\xa0\xd7\xa010^21"),
        ("cp1252", "2.1\xa0\xd7\xa010^-10 10^-12 10^4 10^10 3.0\xa0\xd7\xa010^21"),
        ("utf-8", "2.1\xa0\xd7\xa010⁻¹⁰ 10⁻¹² 10⁴ 10⁺¹⁰ 3.0\xa0\xd7\xa010⁺²¹"),
    ],
)
def test_a_power_is_whole_or_replaced(
    monkeypatch: pytest.MonkeyPatch, encoding: str, said: str
) -> None:
    """Also where the encoding has some of its digits: Latin-1 has one, two and three."""
    sheet = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sheet, encoding))
    write_in_any_encoding()
    sys.stdout.write(" ".join(map(error, (2.1e-10, 1e-12, 1e4, 1e10, 3e21))))
    sys.stdout.flush()
    assert sheet.getvalue().decode(encoding) == said


def test_what_json_has_no_number_for_becomes_a_string(capfd: pytest.CaptureFixture[str]) -> None:
    """At any depth, and as report.json writes it; all else stays what it is."""
    write_json(
        {"a": [1.5, math.inf, (-math.inf,)], "b": {"c": math.nan}, "d": [None, True, 7, "é"]}
    )
    assert strictly(capfd.readouterr().out) == {
        "a": [1.5, "Infinity", ["-Infinity"]],
        "b": {"c": "NaN"},
        "d": [None, True, 7, "é"],
    }


def bit_equal() -> ValidationReport:
    """A judgement whose only output has an infinite ratio of signal to noise."""
    judged = toy_judgement()
    [program] = judged.programs
    parity = replace(program.parity[0], max_abs=0.0, snr_db=math.inf)
    return replace(judged, programs=(replace(program, parity=(parity,)),))


def test_verifying_what_is_bit_equal_gives_json(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commonest good result of all: every output equal bit for bit."""
    monkeypatch.setattr("menagerie.validation.validate", lambda *_, **__: bit_equal())
    assert invoke(["verify", str(tmp_path), "--json"]) == 0
    document = strictly(capfd.readouterr().out)
    assert document["programs"][0]["parity"][0]["snr_db"] == "Infinity"


class FakeSession:
    """A program whose output is its input `x`, of the given dtype."""

    dtype = Dtype.FLOAT32

    def __init__(self, *_: object) -> None:
        self.inputs = self.outputs = (TensorSpec(name="x", dtype=self.dtype, shape=(3,)),)

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The input."""
        held = np.dtype("uint16" if self.dtype is Dtype.BFLOAT16 else self.dtype.value)
        assert inputs["x"].dtype == held
        return inputs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


def ran(
    values: np.ndarray, dtype: Dtype, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str
) -> int:
    """The exit code of `zoo run` on a program of `dtype` that is the identity."""
    monkeypatch.setattr(FakeSession, "dtype", dtype)
    monkeypatch.setattr("menagerie.session.Session", FakeSession)
    np.save(folder / "x.npy", values)
    return invoke(["run", str(folder), "--input", str(folder / "x.npy"), *more])


def test_running_into_nan_gives_json(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may answer so; what reads the answer must not break on it."""
    values = np.array([1.0, np.nan, -np.inf], np.float32)
    assert ran(values, Dtype.FLOAT32, tmp_path, monkeypatch, "--json") == 0
    document = strictly(capfd.readouterr().out)
    assert document == {
        "x": {"dtype": "float32", "shape": [3], "values": [1.0, "NaN", "-Infinity"]}
    }


def test_bfloat16_is_printed_as_numbers(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as its bits in uint16: in JSON, in the table and in the file that is written."""
    values = np.array([1.0, -2.5, 384.0], np.float32)  # all of them bfloat16's
    place = tmp_path / "y.npy"
    assert ran(values, Dtype.BFLOAT16, tmp_path, monkeypatch, "--json", "-o", str(place)) == 0
    document = strictly(capfd.readouterr().out)["x"]
    assert document == {"dtype": "bfloat16", "shape": [3], "values": [1.0, -2.5, 384.0]}
    written = np.load(place)
    assert written.dtype == np.float32
    assert written.tolist() == values.tolist()
    assert ran(values, Dtype.BFLOAT16, tmp_path, monkeypatch) == 0
    row = capfd.readouterr().out.strip().splitlines()[-1].split()
    assert row == ["x", "bfloat16", "[3]", "-2.5", "384"]


def _profiled(*_: object, **__: object) -> Profile:
    kernels = (
        KernelTime(kernel="cpp_fused_relu_0", calls=4, milliseconds=1.0, flops=0.0, bytes=4e6),
        KernelTime(kernel="mm_out 8x8", calls=2, milliseconds=0.5, flops=5e6, bytes=0.0),
    )
    peaks = Peaks(flops=20e9, bytes=8e9)
    return Profile(threads=1, runs=2, milliseconds=1.0, peaks=peaks, kernels=kernels)


def test_a_profile_is_printed_kernel_by_kernel(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milliseconds of a run, and rates with the machine's peaks; all of it as JSON, too."""
    monkeypatch.setattr("menagerie.timing.measure_kernels", _profiled)
    assert invoke(["bench", str(tmp_path), "--profile"]) == 0
    lines = capfd.readouterr().out.splitlines()
    [loop] = [line.split() for line in lines if "cpp_fused_relu_0" in line]
    assert loop == ["0.500", "50.0", "%", "2", "4.0", "0.50", "cpp_fused_relu_0"]
    [product] = [line.split() for line in lines if "mm_out" in line]
    assert product == ["0.250", "25.0", "%", "1", "10.0", "0.50", "mm_out", "8x8"]
    [rest] = [line.split() for line in lines if "between kernels" in line]
    assert rest == ["0.250", "25.0", "%", "between", "kernels"]
    assert "1 thread; this machine does 20 GFLOP/s and 8.0 GB/s" in lines[0]
    assert invoke(["bench", str(tmp_path), "--profile", "--json"]) == 0
    kernel = strictly(capfd.readouterr().out)["kernels"][1]
    assert (kernel["flops"], kernel["share"], kernel["of_roofline"]) == (5e6, 0.25, 0.5)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replaces the model by one with three golden cases; which of them were looked at, in order.

    The case whose input is 2 diverges, infinitely.
    """
    import torch

    job = toy_job(tmp_path)
    cases = [GoldenCase({}, {"x": torch.tensor(n)}, {}) for n in range(3)]
    program = SimpleNamespace(state_dict={})
    entry = SimpleNamespace(name="main", program=program, goldens=cases, calls=1)
    entry.inputs_of = lambda number: list(cases[number].inputs.values())
    model = job.spec, (entry,)
    monkeypatch.setattr("flows.cli.debug.prepare_model", lambda *_, **__: model)
    looked: list[int] = []

    def locate(_: object, __: object, inputs: list[torch.Tensor], **___: object) -> object:
        looked.append(int(inputs[0]))
        crash = {"max_abs": math.inf, "snr_db": -math.inf}
        return toy_divergence(job).model_copy(update=crash) if looked[-1] == 2 else None

    monkeypatch.setattr("transforms.bisect.search.locate", locate)
    return looked


def test_bisect_looks_at_every_golden_case(
    capfd: pytest.CaptureFixture[str], searched: list[int]
) -> None:
    """A fault at the largest size only is found, and its case is named; the JSON is JSON."""
    assert invoke(["bisect", "toy", "--json"]) == 1
    assert searched == [0, 1, 2]
    document = strictly(capfd.readouterr().out)
    assert (document["program"], document["case"], document["node"]) == ("main", 2, "conv2d_3")
    assert (document["max_abs"], document["snr_db"]) == ("Infinity", "-Infinity")


def test_bisect_says_how_much_agrees(
    capfd: pytest.CaptureFixture[str], searched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a fault all cases were looked at, and the answer says how many that were."""
    monkeypatch.setattr("transforms.bisect.search.locate", lambda *_, **__: searched.append(0))
    assert invoke(["bisect", "toy"]) == 0
    assert len(searched) == 3
    assert "agrees with eager at every output of 3 golden case(s)" in capfd.readouterr().out
