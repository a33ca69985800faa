"""MTCNN, three networks that detect faces (Zhang, Zhang, Li and Qiao 2016).

Names are those of facenet-pytorch's checkpoints. Each network takes pictures (n, high, wide, 3)
with values from 0 to 255.
"""

from __future__ import annotations

from torch import Tensor, nn


class _Network(nn.Module):
    """Convolutions, each followed by a PReLU and some by a pool.

    `layers` has the width, kernel and pool of each convolution; pool 0 means none.
    """

    def __init__(self, layers: tuple[tuple[int, int, int], ...]) -> None:
        super().__init__()
        taken = 3
        for number, (width, kernel, pool) in enumerate(layers, 1):
            self.add_module(f"conv{number}", nn.Conv2d(taken, width, kernel))
            self.add_module(f"prelu{number}", nn.PReLU(width))
            if pool:
                self.add_module(f"pool{number}", nn.MaxPool2d(pool, 2, ceil_mode=True))
            taken = width
        self._count = len(self._modules)

    def _features(self, picture: Tensor) -> Tensor:
        x = (picture.permute(0, 3, 1, 2) - 127.5) / 128.0
        for layer in [*self.children()][: self._count]:
            x = layer(x)
        return x


class Proposals(_Network):
    """A network that classifies every window of 12 pixels, at stride 2, as face or not."""

    def __init__(self) -> None:
        super().__init__(((10, 3, 2), (16, 3, 0), (32, 3, 0)))
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, picture: Tensor) -> dict[str, Tensor]:
        """Return `probability` (n, rows, columns) and `offsets` (n, 4, rows, columns)."""
        x = self._features(picture)
        return {"probability": self.conv4_1(x).softmax(1)[:, 1], "offsets": self.conv4_2(x)}


class Refinement(_Network):
    """A network that classifies pictures of 24 pixels as faces or not."""

    def __init__(self) -> None:
        super().__init__(((28, 3, 3), (48, 3, 3), (64, 2, 0)))
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, picture: Tensor) -> dict[str, Tensor]:
        """Return `probability` (n, 1) and `offsets` (n, 4)."""
        x = self._features(picture).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu4(self.dense4(x))
        return {"probability": self.dense5_1(x).softmax(1)[:, 1:], "offsets": self.dense5_2(x)}


class Output(_Network):
    """A network that classifies pictures of 48 pixels and locates eyes, nose and mouth."""

    def __init__(self) -> None:
        super().__init__(((32, 3, 3), (64, 3, 3), (64, 3, 2), (128, 2, 0)))
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2 = nn.Linear(256, 2), nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)

    def forward(self, picture: Tensor) -> dict[str, Tensor]:
        """Return `probability` (n, 1), `offsets` (n, 4) and `points` (n, 10), all x before y."""
        x = self._features(picture).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu5(self.dense5(x))
        return {
            "probability": self.dense6_1(x).softmax(1)[:, 1:],
            "offsets": self.dense6_2(x),
            "points": self.dense6_3(x),
        }


def mtcnn() -> nn.ModuleDict:
    """Return the three networks with untrained weights."""
    return nn.ModuleDict({
        "proposals": Proposals(), "refinement": Refinement(), "output": Output(),
    })  # fmt: skip
