"""What a release promises, compared with eager PyTorch in float32."""

from __future__ import annotations

import pytest

from menagerie.numerics import Dtype
from zoo.manifest import load_manifest
from zoo.precision import Precision


@pytest.fixture
def promised(model: str) -> float:
    """The lowest SNR of the test's model in dB: 80 in float32, else what the entry says."""
    spec = load_manifest().spec(model)
    if spec.precision is Precision.FLOAT32:
        return 80.0
    tolerance = spec.tolerance(Dtype.FLOAT32)
    assert tolerance is not None
    assert tolerance.snr_db is not None
    return tolerance.snr_db
