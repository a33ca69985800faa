"""Work in a fork gives what it gives here, and leaves this process as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from transforms import convert
from transforms.export.prepare import in_fork, prepare
from zoo.errors import ExportError
from zoo.spec import InputSpec, ProgramSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


@dataclass(frozen=True)
class _Pair:
    number: int
    tensor: torch.Tensor


def test_it_is_done_in_another_process_and_arrives_whole() -> None:
    """Objects of the classes that were named, with dtype and strides of their tensors."""
    given = torch.arange(6, dtype=torch.float64).reshape(2, 3).t()
    found = in_fork(lambda: [_Pair(os.getpid(), given * 2)], [_Pair])()
    assert found[0].number != os.getpid()
    assert found[0].tensor.stride() == (1, 3)
    assert found[0].tensor.tolist() == [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]


def test_what_it_changes_stays_as_it_was_here() -> None:
    """As the buffers of a model that counts its calls do."""
    counted = torch.zeros(1)
    assert in_fork(lambda: counted.add_(1).clone(), [])().item() == 1.0
    assert counted.item() == 0.0


def test_where_it_raises_the_error_is_the_one_it_has_here() -> None:
    """With the class and the words that it was raised with."""

    def fail() -> None:
        raise LookupError(str(os.getpid()))

    with pytest.raises(LookupError, match=str(os.getpid())):
        in_fork(fail, [])()


def test_where_its_process_is_killed_it_is_done_here() -> None:
    """The memory may suffice for one after the other."""
    here = os.getpid()

    def die_elsewhere() -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    assert in_fork(die_elsewhere, [])() == here


def test_an_object_of_a_class_that_was_not_named_is_not_read() -> None:
    """The file is no pickle that could run something."""
    with pytest.raises(Exception, match="Weights only load failed"):
        in_fork(lambda: _Pair(1, torch.zeros(1)), [])()


def test_a_thread_that_reads_standard_input_is_no_hindrance() -> None:
    """As the one of a model's process does, which holds that file as it waits."""
    program = """
import sys, threading
from transforms.export.prepare import in_fork
reading = threading.Thread(target=sys.stdin.readline)
reading.start()
print(in_fork(lambda: 7, [])(), flush=True)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"7\n"


def test_it_does_not_outlive_the_process_that_started_it() -> None:
    """A process that waits for that one's pipes would wait for the fork as well."""
    program = """
import signal
from transforms.export.prepare import in_fork
def wait():
    print("begun", flush=True)
    signal.pause()
kept = in_fork(wait, [])
signal.pause()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
        assert process.stdout.read() == b""


class _Table:
    """What a module keeps besides its buffers."""

    held: torch.Tensor | None = None


class _Remembering(nn.Module):
    """Makes what it needs in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.table = _Table()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(2, 2), of (2, 2)."""
        if self.table.held is None:
            self.table.held = torch.ones(2)
        return x + self.table.held


@pytest.mark.parametrize("forks", [False, True])
def test_what_an_export_leaves_behind_is_in_no_golden_case(forks: bool) -> None:
    """Golden cases are made before it, or in a process of their own."""
    spec = ProgramSpec(inputs=(InputSpec(name="x", shape=(2, 2)),))
    made = prepare(_Remembering().eval(), spec, forks=forks)
    for case in made.goldens:
        [output] = case.outputs.values()
        torch.testing.assert_close(output, case.inputs["x"] + 1)


def test_a_module_that_keeps_what_an_export_left_is_refused_with_the_cure(tmp_path: Path) -> None:
    """Which is a call before: what is kept then is a tensor."""
    module, x = _Remembering().eval(), torch.randn(2, 2)
    with pytest.raises(
        ExportError, match=r"keeps a tensor in Python from call to call.*or by a call before"
    ):
        convert(module, (x,), out=tmp_path / "refused")
    module = _Remembering().eval()
    module(x)
    assert convert(module, (x,), out=tmp_path / "made", measure_seconds=0).report.worst_abs == 0
