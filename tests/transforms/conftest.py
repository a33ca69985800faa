"""What tests of exported programs share: torch lists its operators once a decomposition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from torch._export import utils
from torch.export import ExportedProgram

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTS = "_materialize_cpp_cia_ops"


@pytest.fixture(autouse=True, scope="module")
def operators_listed_once() -> Iterator[None]:
    """For every namespace, torch has all composite operators found again: a third of the time.

    What was found stays an attribute of `torch.ops`, and during a decomposition none is added.
    """
    listed, decomposed = getattr(utils, _LISTS), ExportedProgram.run_decompositions

    def decompose(program: ExportedProgram, *how: Any, **more: Any) -> ExportedProgram:
        listed()
        with patch.object(utils, _LISTS, lambda: None):
            return decomposed(program, *how, **more)

    with patch.object(ExportedProgram, "run_decompositions", decompose):
        yield
