"""What keeps torch from assuming more of a dynamic size than a program asks for."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING
from unittest import mock

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["no_new_guards", "transforms_of_any_length"]

_LOUD = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


@contextlib.contextmanager
def no_new_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Compute on fake values; raise where that would assume something new of a dynamic size."""
    env = mode.shape_env
    guarded = contextlib.nullcontext() if env is None else env.error_on_new_guards()
    with mode, torch.no_grad(), guarded, _quiet():
        yield


def transforms_of_any_length() -> contextlib.AbstractContextManager[object]:
    """Trace Fourier transforms with no assumption on how many frames there are.

    torch 2.13 follows the steps of the MKL kernel on fake values, where a reshape asks whether the
    number of frames divides the batch (`_exec_fft` of torch/_meta_registrations.py): an STFT would
    be fit for some lengths of a signal only. Without MKL it says the shape alone.
    """
    return mock.patch("torch.backends.mkl.is_available", return_value=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from logging the failures that a trial is there to find."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
