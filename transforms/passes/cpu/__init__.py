"""CPU-only passes."""
