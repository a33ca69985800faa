"""The one table of operator cases: what every device's runtime must compute, and refuse."""

from __future__ import annotations

import attention
import convolutions
import indexing
import ordering
import pooling
import products

_TABLES = [
    module.TABLE for module in (products, convolutions, attention, pooling, ordering, indexing)
]
CASES = [case for table in _TABLES for case in table.cases]
REFUSALS = [refusal for table in _TABLES for refusal in table.refusals]
