"""How long and how freely property tests search."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples at every run, so that a green suite stays green; `make test-all` explores.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
