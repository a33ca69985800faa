"""How many examples a property test draws: few in the suite, many in `make test-all`."""

from __future__ import annotations

import os


def examples(few: int, many: int) -> int:
    """Return `few`, or `many` where fresh examples are explored."""
    return many if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else few
