"""Work beside other work gives what it gives here, and leaves this process as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

from transforms.export.prepare import in_fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


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


def test_it_does_not_outlive_the_process_that_asked_for_it() -> None:
    """Whoever waits for that one's pipes would wait for the fork as well."""
    program = """
import signal
from transforms.export.prepare import in_fork
def wait():
    print("begun", flush=True)
    signal.pause()
in_fork(wait, [])
signal.pause()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
        assert process.stdout.read() == b""
