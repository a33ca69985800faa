"""Toys with weights to carry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import parse_manifest
from menagerie.format.folder import seal

if TYPE_CHECKING:
    from tasks.job import Job

MIB = 2**20


def load_with_weights(job: Job, mebibytes: int) -> None:
    """Put so much of random weights into the bundle of a toy, and seal it again."""
    with (job.bundle / "weights.safetensors").open("wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(MIB))
    document = (job.bundle / "manifest.json").read_bytes()
    seal(job.bundle, parse_manifest(document, job.model))
