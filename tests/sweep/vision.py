"""Every builder of torchvision's classification, segmentation, detection, video and flow families.

Images are as small as the architecture allows; weights are random.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tests.sweep.case import Case, Sample, image, noise
from zoo.models.torchvision_operators import torchvision_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CLASSES = 10
# Sizes of images, by the start of a builder's name; what no line names takes 64.
_SIZES = {
    "inception_v3": 128, "googlenet": 64, "maxvit_t": 224, "vit_h_14": 56, "swin_v2": 64,
    "densenet": 64, "alexnet": 72,
}  # fmt: skip
_BATCH = {"batch": (1, 3)}
_MAPS = ("batch", None, "height", "width")
_FRAMES = ("batch", None, None, None, None)


def cases() -> Iterator[Case]:
    """The builders by torchvision's own list of them."""
    with torchvision_operators():
        from torchvision import models
    families: dict[str, tuple[Any, Callable[[str], Sample]]] = {
        "classification": (models, _classifier),
        "segmentation": (models.segmentation, _segmentation),
        "detection": (models.detection, _detection),
        "video": (models.video, _video),
        "optical flow": (models.optical_flow, _flow),
    }
    for family, (module, build) in families.items():
        for name in models.list_models(module):
            yield Case(name, "torchvision", family, functools.partial(build, name))


def _made(name: str, **arguments: Any) -> nn.Module:
    with torchvision_operators():
        from torchvision import models
    made: nn.Module = models.get_model(name, weights=None, **arguments)
    return made.eval()


def _size(name: str) -> int:
    return next((size for start, size in _SIZES.items() if name.startswith(start)), 64)


def _classifier(name: str) -> Sample:
    size = _size(name)
    arguments: dict[str, Any] = {"num_classes": _CLASSES}
    if name in {"googlenet", "inception_v3"}:
        arguments |= {"init_weights": False, "aux_logits": False}
    if name.startswith("vit_"):
        arguments |= {"image_size": size}
    return Sample(_made(name, **arguments), {"x": image(size)}, {"x": ("batch",)}, _BATCH)


def _segmentation(name: str) -> Sample:
    module = _made(name, num_classes=_CLASSES, weights_backbone=None, aux_loss=False)
    return Sample(module, {"input": image(64)}, {"input": ("batch",)}, _BATCH)


class _Heads(nn.Module):
    """A detector up to its last convolutions: what chooses among boxes is left to the host."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, getattr(detector, "head", None)
        self.proposals = getattr(detector.rpn, "head", None) if hasattr(detector, "rpn") else None

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Scores and boxes of every anchor, a tensor for each map of the pyramid or all in one."""
        maps = list(self.backbone(images).values())
        if self.head is not None:
            made: dict[str, Tensor] = self.head(maps)
            return made
        scores, boxes = self.proposals(maps)
        return {
            **{f"scores_{i}": value for i, value in enumerate(scores)},
            **{f"boxes_{i}": value for i, value in enumerate(boxes)},
        }


def _detection(name: str) -> Sample:
    size = 320 if name.startswith("ssd") else 64
    detector = _made(name, num_classes=_CLASSES, weights_backbone=None)
    return Sample(
        _Heads(detector), {"images": image(size, batch=2)}, {"images": ("batch",)}, _BATCH
    )


def _video(name: str) -> Sample:
    module = _made(name, num_classes=_CLASSES)
    if name.startswith("mvit"):
        clip = noise(1, 3, 16, 224, 224)  # its positions are of this size
        return Sample(module, {"x": clip})
    frames = 16 if name == "s3d" else 4
    size = 224 if name == "s3d" else 64
    return Sample(module, {"x": noise(2, 3, frames, size, size)}, {"x": _FRAMES}, {"batch": (1, 2)})


class _Flow(nn.Module):
    """RAFT with its last estimate alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Flow (batch, 2, height, width) in pixels between two images of values from -1 to 1."""
        return torch.stack(self.module(first, second, num_flow_updates=2))[-1]


def _flow(name: str) -> Sample:
    images = {"first": image(128), "second": image(128)}
    axes = {"first": ("batch",), "second": ("batch",)}
    return Sample(_Flow(_made(name)), images, axes, _BATCH)
