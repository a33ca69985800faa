"""The number of the contract between a lowered library and the runtime."""

__all__ = ["RUNTIME_ABI"]

# Rises when a library lowered before no longer runs; MENAGERIE_RUNTIME_ABI of menagerie.h.
RUNTIME_ABI = 3
