"""Proof that a bundle reproduces eager PyTorch, made in a fresh process without torch."""

from menagerie.validation.findings import Limits
from menagerie.validation.validate import validate

__all__ = ["Limits", "validate"]
