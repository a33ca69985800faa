"""Makes `corrupt_target` importable, and knows no reproducers of others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def own_home(
    tmp_path_factory: pytest.TempPathFactory, lend_compiled: Callable[[Path], Path]
) -> Iterator[None]:
    """Where it is kept which programs were written here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "MENAGERIE_HOME", str(lend_compiled(tmp_path_factory.mktemp("bisect") / "home"))
        )
        yield
