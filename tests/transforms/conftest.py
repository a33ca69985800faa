"""What tests of exported programs share: torch prepares its operators once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from torch.export import ExportedProgram

from transforms.graph.retrace import composites_prepared_once

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def operators_prepared_once() -> Iterator[None]:
    """Spares most decompositions a tenth of a second."""
    decomposed = ExportedProgram.run_decompositions

    def decompose(program: ExportedProgram, *how: Any, **more: Any) -> ExportedProgram:
        with composites_prepared_once():
            return decomposed(program, *how, **more)

    with patch.object(ExportedProgram, "run_decompositions", decompose):
        yield
