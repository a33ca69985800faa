"""timm and ultralytics, where they are installed: each by the library's own factory."""

from __future__ import annotations

import functools
import importlib.util
from typing import TYPE_CHECKING

from torch import Tensor, nn

from tests.sweep.case import Case, Sample, image
from zoo.models.torchvision_operators import torchvision_operators

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCH = {"batch": (1, 3)}
_TIMM = {
    "mobilenetv4_conv_small": 64, "efficientvit_b0": 64, "repvgg_a0": 64, "ghostnet_100": 64,
    "hardcorenas_a": 64, "fastvit_t8": 64, "edgenext_xx_small": 64, "mixer_s32_224": 224,
    "gmlp_ti16_224": 224, "resmlp_12_224": 224, "convmixer_768_32": 64, "cait_xxs24_224": 224,
    "xcit_nano_12_p16_224": 224, "coat_lite_tiny": 224, "eva02_tiny_patch14_224": 224,
    "lcnet_050": 64, "tinynet_e": 64, "nfnet_f0": 64, "levit_128s": 224,
    "vit_tiny_patch16_224": 224,
}  # fmt: skip
_YOLO = ("yolov8n.yaml", "yolov8n-seg.yaml", "yolov8n-pose.yaml", "yolo11n.yaml", "yolov5n.yaml")


def cases() -> Iterator[Case]:
    """Those of the libraries that there are."""
    if importlib.util.find_spec("timm") is not None:
        for name, size in _TIMM.items():
            yield Case(name, "timm", "timm", functools.partial(_timm, name, size))
    if importlib.util.find_spec("ultralytics") is not None:
        for name in _YOLO:
            yield Case(
                name.removesuffix(".yaml"),
                "ultralytics",
                "ultralytics",
                functools.partial(_yolo, name),
            )


def _timm(name: str, size: int) -> Sample:
    with torchvision_operators():
        import timm
    module = timm.create_model(name, pretrained=False, num_classes=10).eval()
    return Sample(module, {"x": image(size)}, {"x": ("batch",)}, _BATCH)


class _First(nn.Module):
    """The first of what a detector returns: boxes and scores of every anchor."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, anchors)."""
        made = self.module(x)
        return made[0] if isinstance(made, (tuple, list)) else made


def _yolo(name: str) -> Sample:
    with torchvision_operators():
        from ultralytics.nn import tasks
    kind = {"-seg": "SegmentationModel", "-pose": "PoseModel"}
    chosen = next((k for mark, k in kind.items() if mark in name), "DetectionModel")
    module = getattr(tasks, chosen)(name, verbose=False).eval()
    return Sample(_First(module), {"x": image(64)}, {"x": ("batch",)}, _BATCH)
