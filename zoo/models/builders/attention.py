"""What decoders that attend to a whole window share: keys heard once, tokens' kept as state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CrossKeys", "TokenDecoder"]


class CrossKeys(nn.Module):
    """Gives every layer of a decoder the keys and values of an encoder's result, once a window.

    Args:
        attentions: of each layer, to the encoder's result: with `k_proj` and `v_proj`.
        heads: of each of them.
    """

    def __init__(self, attentions: Iterable[Any], heads: int) -> None:
        super().__init__()
        each = list(attentions)
        self.heads = heads
        self.keys = nn.ModuleList([attention.k_proj for attention in each])
        self.values = nn.ModuleList([attention.v_proj for attention in each])

    def of(self, encoded: Tensor) -> dict[str, Tensor]:
        """`keys` and `values`, (layers, heads, positions, head's width), of (1, positions, n)."""
        return {
            "keys": torch.stack([self._by_head(each(encoded)) for each in self.keys]),
            "values": torch.stack([self._by_head(each(encoded)) for each in self.values]),
        }

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows[0].view(rows.shape[1], self.heads, -1).transpose(0, 1)


class TokenDecoder(nn.Module):
    """One step of a decoder; keys and values of the tokens before it are the program's state.

    The state is of static capacity. A token attends to those at its own position and before it, so
    that decoding may begin anew at position 0 whatever was decoded before.

    Args:
        layers: of the decoder.
        heads: of each layer's attention.
        capacity: the most tokens.
        width: of a head.
    """

    def __init__(self, layers: int, heads: int, capacity: int, width: int) -> None:
        super().__init__()
        self.heads, self.capacity = heads, capacity
        shape = (1, heads, capacity, width)
        for layer in range(layers):
            self.register_buffer(f"keys_{layer}", torch.zeros(shape), persistent=False)
            self.register_buffer(f"values_{layer}", torch.zeros(shape), persistent=False)

    def seen(self, position: Tensor) -> Tensor:
        """Which places a token at `position` (1,) attends to: (1, 1, 1, capacity) bool."""
        return (torch.arange(self.capacity, device=position.device) <= position)[None, None, None]

    def remembered(
        self, layer: int, key: Tensor, value: Tensor, position: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A layer's keys and values with those of this token, by head, written at its position."""
        keys, values = getattr(self, f"keys_{layer}"), getattr(self, f"values_{layer}")
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        return keys, values

    def by_head(self, rows: Tensor) -> Tensor:
        """(1, heads, 1, width) of a token's (1, 1, n)."""
        return rows.view(1, 1, self.heads, -1).transpose(1, 2)
