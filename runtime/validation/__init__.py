"""Proof that a bundle reproduces eager PyTorch, made in a fresh process without torch."""

from runtime.validation.validate import Limits, validate

__all__ = ["Limits", "validate"]
