"""What every process of the suites needs, imported once: the server of forks preloads it."""

import tests.suites.cases  # noqa: F401
import transforms  # noqa: F401
