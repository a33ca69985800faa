"""Element types, and the tolerances within which an output equals eager PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class TextEnum(str, Enum):  # enum.StrEnum is new in Python 3.11
    """An enumeration whose members are, and print as, their values."""

    __str__ = str.__str__

    def __reduce_ex__(self, _: object) -> tuple[type[TextEnum], tuple[str]]:
        """Pickle by value: early 3.11 versions name `getattr`, which safe unpicklers refuse."""
        return type(self), (self.value,)


class Dtype(TextEnum):
    """Element types; the values are torch's and numpy's names (numpy has no bfloat16)."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def is_floating(self) -> bool:
        """Whether values of this type can be NaN or infinite."""
        return self in {Dtype.FLOAT32, Dtype.FLOAT16, Dtype.BFLOAT16, Dtype.FLOAT64}


# Below this scale an output is mostly the remainder of cancelling terms, with the error of those
# terms, so no smaller error is required.
_SMALLEST_SCALE = 1e-3
# The SNR averages over all elements and hides a single wrong one. However good it is, no element's
# error may exceed this multiple of `absolute`, relative to the output's scale.
_OUTLIER_FACTOR = 10.0


@dataclass(frozen=True)
class Tolerance:
    """When an output equals eager's, given its scale s, the largest finite |eager| in it.

    Either max |a-b| <= absolute * min(1, max(s, 1e-3)); or, where `snr_db` is given, SNR >= snr_db
    and max |a-b| <= 10 * absolute * s. So `absolute` is in the output's own units where s is 1 or
    more, and a fraction of s where it is less; `snr_db` is 20 log10(|ref| / |ref - out|). Where
    it is given, a part of the output (`menagerie.validation.compare`) has an SNR of its own of at
    least snr_db - 30, or a mean error of snr_db + 30 below the whole's mean. The same rule is
    in runtime/tools/parity.cpp.

    Raises:
        ValueError: a bound is not finite or not greater than 0.
    """

    absolute: float
    snr_db: float | None = None

    def __post_init__(self) -> None:
        for bound in (self.absolute, 1.0 if self.snr_db is None else self.snr_db):
            if not (math.isfinite(bound) and bound > 0):
                raise ValueError(f"a tolerance is finite and greater than 0, not {bound:g}")

    def everywhere(self, scale: float) -> float:
        """Return the largest error that passes at any SNR, for an output of this scale."""
        return self.absolute * min(1.0, max(scale, _SMALLEST_SCALE))

    def outlier(self, scale: float) -> float:
        """Return the largest error that passes at a good SNR, for an output of this scale."""
        return _OUTLIER_FACTOR * self.absolute * scale


DEFAULT_TOLERANCES: Final[Mapping[Dtype, Tolerance]] = {
    # float64 has 16 digits; another order of summation may cost half of them
    Dtype.FLOAT64: Tolerance(absolute=1e-9, snr_db=160.0),
    Dtype.FLOAT32: Tolerance(absolute=1e-4, snr_db=80.0),
    Dtype.FLOAT16: Tolerance(absolute=1e-2, snr_db=40.0),
    Dtype.BFLOAT16: Tolerance(absolute=1e-2, snr_db=30.0),
}
# For low precision that is judged by accuracy: NaN and infinities must be where eager's are
ANY_FINITE: Final = Tolerance(absolute=1e38)
