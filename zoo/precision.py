"""The precision of a release's weights; a separate module, because `zoo --help` imports it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum


class Precision(StrEnum):
    """What a release's weights are kept in; its inputs and outputs stay float32.

    With `int8` and `int8-static` products are of integers, too; with all others of float32. The
    range of what a weight meets is known to `int8` when it is there, to `int8-static` beforehand.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT8_STATIC = "int8-static"
    INT8_WEIGHT_ONLY = "int8-weight-only"
    INT4_WEIGHT_ONLY = "int4-weight-only"

    @property
    def multiplies_integers(self) -> bool:
        """Whether the other operand of a product is rounded too."""
        return self in (Precision.INT8, Precision.INT8_STATIC)

    @property
    def has_groups(self) -> bool:
        """Whether a row of integers has several scales."""
        return self in (Precision.INT8_WEIGHT_ONLY, Precision.INT4_WEIGHT_ONLY)

    @property
    def suffix(self) -> str:
        """The suffix of the model's name for a release in this precision."""
        return self.value.replace("-", "_")


@dataclass(frozen=True)
class WeightPrecision:
    """The storage of a release's weights.

    Attributes:
        precision: the precision of the weights.
        keep: names of parameters that stay float32, or prefixes of their names, such as a
        layer's name.
        group: number of integers of a row that share a scale; None: the precision's default.
    """

    precision: Precision = Precision.FLOAT32
    keep: tuple[str, ...] = ()
    group: int | None = None

    def within(self, own: Collection[str], others: Collection[Collection[str]]) -> WeightPrecision:
        """Return the precision for a program with `own` parameters.

        Kept layers that only `others` have are left out.
        """

        def has(parameters: Collection[str], layer: str) -> bool:
            return any(is_called(name, layer) for name in parameters)

        elsewhere = {k for k in self.keep if not has(own, k) and any(has(o, k) for o in others)}
        return replace(self, keep=tuple(k for k in self.keep if k not in elsewhere))


def is_called(name: str, layer: str) -> bool:
    """Return whether a parameter's name is `layer`, or starts with it and a dot or underscore.

    The prefix `model.` may be omitted: it is an entry's module or a part of that name.
    """
    begins = f"{layer}.", f"{layer}_"
    return any(f"{n}.".startswith(begins) for n in (name, name.removeprefix("model.")))


FLOATS = WeightPrecision()  # all weights in float32
