"""Proof that a bundle reproduces eager PyTorch, made in a fresh process without torch."""

from menagerie.validation.validate import Limits, validate

__all__ = ["Limits", "validate"]
