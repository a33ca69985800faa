"""What every process of the suites needs, imported once: the server of forks preloads it."""

import menagerie
import tests.suites.choice
import tests.suites.values
import transforms  # noqa: F401
