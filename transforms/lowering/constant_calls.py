"""The description of a model's constants, written as a call for each.

Inductor assigns eleven fields of each constant, with two vectors among them, in the constructor of
the model: of a transformer that is two thirds of the wrapper's lines and a third of its compiler's
time.
"""

from __future__ import annotations

import re
from collections import defaultdict

_FIELD = re.compile(r"\s*constants_info_\[(\d+)\]\.(\w+) = (.*);")
# In the order of the arguments of `describe` in constant_calls.h.
_ARGUMENTS = (
    "name",
    "dtype",
    "device_type",
    "offset",
    "data_size",
    "from_folded",
    "type",
    "shape",
    "stride",
    "layout",
    "original_fqn",
)


def with_constants_described_by_calls(constructor: str) -> str:
    """The constructor of a model with a call in place of the assignments to each constant.

    What it does not know it leaves: a constant with a field more keeps its assignments.

    Args:
        constructor: C++ as Inductor writes it, a statement a line.
    """
    lines = [(line, _FIELD.fullmatch(line)) for line in constructor.splitlines()]
    fields: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for _, found in lines:
        if found is not None:
            number, name, value = found.groups()
            fields[number][name] = value
    described = {number for number, values in fields.items() if set(values) == set(_ARGUMENTS)}
    written: list[str] = []
    for line, found in lines:
        if found is None or found[1] not in described:
            written.append(line)
        elif found[2] == _ARGUMENTS[0]:
            arguments = ", ".join(fields[found[1]][name] for name in _ARGUMENTS)
            written.append(f"    describe(constants_info_[{found[1]}], {arguments});")
    return "\n".join(written)
