"""The one table of operator cases: what every device's runtime must compute, and refuse."""

from __future__ import annotations

import attention
import convolutions
import finished
import indexing
import linear_algebra
import ordering
import pooling
import products
import recurrent

_TABLES = [
    module.TABLE
    for module in (
        products,
        convolutions,
        finished,
        attention,
        pooling,
        ordering,
        indexing,
        recurrent,
        linear_algebra,
    )
]
CASES = [case for table in _TABLES for case in table.cases]
REFUSALS = [refusal for table in _TABLES for refusal in table.refusals]
