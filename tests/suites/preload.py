"""What every process of the suites needs, imported once: the server of forks preloads it."""

import transforms  # noqa: F401
from tests.suites import attempt, choice, memory, values  # noqa: F401

memory.keep()
