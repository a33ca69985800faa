"""One small configuration of many architectures of transformers, with random weights.

Text encoders, decoders (a prompt, and a generation step with its cache), encoder-decoders, vision,
speech and multi-modal ones. A row of a table is: the class, what its configuration has besides the
sizes that all share, and the kind of call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tests.sweep.case import Case, Sample, ids, image, mask, noise
from zoo.models.torchvision_operators import torchvision_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WORDS = 100
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": _WORDS,
    "max_position_embeddings": 64,
}
_NONE = dict.fromkeys(_SIZES)  # where the sizes that all share mean something else
_NO_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TEXT = {"batch": (1, 4), "length": (4, 24)}
_ROWS = ("batch", "length")
_FEW = {"batch": (1, 3)}

_HALVES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}  # fmt: skip

_ENCODERS: dict[str, dict[str, Any]] = {
    "BertModel": {},
    "RobertaModel": {"pad_token_id": 1},
    "DistilBertModel": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "AlbertModel": {"embedding_size": 16},
    "ElectraModel": {"embedding_size": 16},
    "DebertaV2Model": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "MPNetModel": {},
    "ModernBertModel": {**_NO_TOKENS, "cls_token_id": 1, "sep_token_id": 2},
    "FunnelModel": {
        **_NONE,
        "vocab_size": _WORDS,
        "block_sizes": [1, 1],
        "d_model": 32,
        "n_head": 4,
        "d_head": 8,
        "d_inner": 64,
    },
    "ConvBertModel": {"embedding_size": 32},
    "SqueezeBertModel": {"embedding_size": 32},
    "FNetModel": {},
    "RoFormerModel": {"embedding_size": 32},
    "MobileBertModel": {"embedding_size": 16, "intra_bottleneck_size": 16},
    "EsmModel": {"pad_token_id": 1, "mask_token_id": 3, "position_embedding_type": "rotary"},
    "XLNetModel": {
        **_NONE,
        "vocab_size": _WORDS,
        "d_model": 32,
        "n_layer": 2,
        "n_head": 4,
        "d_inner": 64,
    },
}
_DECODERS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "GPTNeoForCausalLM": {
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
    },
    "GPTNeoXForCausalLM": {},
    "GPTJForCausalLM": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "OPTForCausalLM": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "BloomForCausalLM": {"n_layer": 2, "n_head": 4},
    "LlamaForCausalLM": {"num_key_value_heads": 2},
    "MistralForCausalLM": {"num_key_value_heads": 2, "sliding_window": 8},
    "Qwen2ForCausalLM": {"num_key_value_heads": 2},
    "Qwen3ForCausalLM": {"num_key_value_heads": 2, "head_dim": 8},
    "GemmaForCausalLM": {"num_key_value_heads": 1, "head_dim": 8},
    "Gemma2ForCausalLM": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8},
    "Gemma3ForCausalLM": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8},
    "PhiForCausalLM": {},
    "Phi3ForCausalLM": {"num_key_value_heads": 2, **_NO_TOKENS},
    "FalconForCausalLM": {},
    "StableLmForCausalLM": {"num_key_value_heads": 2},
    "Olmo2ForCausalLM": {"num_key_value_heads": 2, **_NO_TOKENS},
    "Starcoder2ForCausalLM": {"num_key_value_heads": 2},
    "CohereForCausalLM": {"num_key_value_heads": 2},
    "GraniteForCausalLM": {"num_key_value_heads": 2},
    "SmolLM3ForCausalLM": {"num_key_value_heads": 2, **_NO_TOKENS},
    "MixtralForCausalLM": {"num_key_value_heads": 2, "num_local_experts": 4},
    "MambaForCausalLM": {"state_size": 4},
}
_SEQ2SEQ: dict[str, dict[str, Any]] = {
    "T5ForConditionalGeneration": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "BartForConditionalGeneration": {},
    "MarianMTModel": {"decoder_start_token_id": 0, "pad_token_id": 0},
    "PegasusForConditionalGeneration": {},
    "M2M100ForConditionalGeneration": {},
    "ProphetNetForConditionalGeneration": {**_NONE, **dict.fromkeys(("d_model", "encoder_layers", "decoder_layers")), "hidden_size": 32, "vocab_size": _WORDS, "max_position_embeddings": 64, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64},
}  # fmt: skip
_STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
_IMAGES: dict[str, tuple[int, dict[str, Any]]] = {
    "ViTForImageClassification": (32, {"image_size": 32, "patch_size": 8}),
    "DeiTForImageClassification": (32, {"image_size": 32, "patch_size": 8}),
    "BeitForImageClassification": (32, {"image_size": 32, "patch_size": 8, "use_relative_position_bias": True}),
    "Dinov2ForImageClassification": (28, {"image_size": 28, "patch_size": 7}),
    "DINOv3ViTModel": (32, {"image_size": 32, "patch_size": 8}),
    "SwinForImageClassification": (32, {**_NONE, "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}),
    "Swinv2ForImageClassification": (32, {**_NONE, "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}),
    "ConvNextForImageClassification": (64, {**_NONE, **_STAGES}),
    "ConvNextV2ForImageClassification": (64, {**_NONE, **_STAGES}),
    "SegformerForSemanticSegmentation": (64, {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}),
    "MobileViTForImageClassification": (64, {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 32]}),
    "MobileViTV2ForImageClassification": (64, {"image_size": 64, "width_multiplier": 0.25}),
    "PoolFormerForImageClassification": (64, {**_STAGES}),
    "EfficientNetForImageClassification": (64, {**_NONE, "image_size": 64, "depth_coefficient": 0.25}),
    "RegNetForImageClassification": (64, {**_NONE, **_STAGES, "embedding_size": 8, "groups_width": 8}),
    "ResNetForImageClassification": (64, {**_STAGES, "embedding_size": 8}),
    "MobileNetV1ForImageClassification": (64, {"image_size": 64, "depth_multiplier": 0.25}),
    "MobileNetV2ForImageClassification": (64, {"image_size": 64, "depth_multiplier": 0.25}),
    "LevitForImageClassification": (64, {"image_size": 64, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1], "key_dim": [8, 8, 8]}),
    "PvtForImageClassification": (64, {"image_size": 64, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 3, 4]}),
    "PvtV2ForImageClassification": (64, {"image_size": 64, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 3, 4]}),
    "FocalNetForImageClassification": (64, {"image_size": 64, "embed_dim": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3]}),
    "BitForImageClassification": (64, {**_NONE, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "embedding_size": 16, "num_groups": 4}),
    "DPTForDepthEstimation": (32, {"image_size": 32, "patch_size": 8, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8, "is_hybrid": False}),
    "GLPNForDepthEstimation": (64, {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}),
    "YolosForObjectDetection": (32, {"image_size": [32, 32], "patch_size": 8, "num_detection_tokens": 5}),
    "HieraForImageClassification": (64, {"image_size": [64, 64], "embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2]}),
    "SwiftFormerForImageClassification": (64, {"image_size": 64, "embed_dims": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "ViTMAEForPreTraining": (32, {"image_size": 32, "patch_size": 8, "decoder_hidden_size": 16, "decoder_num_attention_heads": 2, "decoder_num_hidden_layers": 1, "decoder_intermediate_size": 32}),
    "Swin2SRForImageSuperResolution": (16, {**_NONE, "image_size": 16, "embed_dim": 16, "depths": [2], "num_heads": [2], "window_size": 4, "num_feat": 16}),
    "IJepaModel": (32, {"image_size": 32, "patch_size": 8}),
    "RTDetrForObjectDetection": (64, {**_NONE, "backbone_config": {"model_type": "rt_detr_resnet", **_STAGES, "embedding_size": 8, "out_features": ["stage2", "stage3", "stage4"]}, "encoder_in_channels": [16, 24, 32], "feat_strides": [8, 16, 32], "encoder_hidden_dim": 32, "encoder_layers": 1, "encoder_ffn_dim": 64, "encoder_attention_heads": 4, "d_model": 32, "num_queries": 2, "decoder_in_channels": [32, 32, 32], "decoder_ffn_dim": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "num_denoising": 0}),
    "DetrForObjectDetection": (64, {**_NONE, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": {"model_type": "resnet", **_STAGES, "embedding_size": 8, "out_features": ["stage4"]}, **_HALVES, "num_queries": 5}),
    "SuperPointForKeypointDetection": (64, {"encoder_hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16, "keypoint_decoder_dim": 65, "descriptor_decoder_dim": 16}),
}  # fmt: skip
_CONVOLUTIONS = {"conv_dim": [16, 16, 16], "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2],
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip
_SPEECH: dict[str, dict[str, Any]] = {
    "Wav2Vec2ForCTC": _CONVOLUTIONS,
    "HubertForCTC": _CONVOLUTIONS,
    "WavLMForCTC": _CONVOLUTIONS,
    "UniSpeechForCTC": _CONVOLUTIONS,
    "SEWForCTC": {**_CONVOLUTIONS, "squeeze_factor": 2},
    "Data2VecAudioForCTC": {
        **_CONVOLUTIONS,
        "num_conv_pos_embeddings": 2,
        "conv_pos_kernel_size": 5,
    },
    "Wav2Vec2ConformerForCTC": {**_CONVOLUTIONS, "conv_depthwise_kernel_size": 7},
}
_LISTENERS = {"input_features": (2, 80, 100)}


def cases() -> Iterator[Case]:
    """Every row of the tables above, then those that have a builder of their own."""
    tables: tuple[tuple[str, Any, Callable[[str, Any], Sample]], ...] = (
        ("text encoders", _ENCODERS, _encoder),
        ("text decoders", _DECODERS, _decoder),
        ("encoder-decoders", _SEQ2SEQ, _seq2seq),
        ("vision", _IMAGES, _image),
        ("speech", _SPEECH, _speech),
    )
    for family, table, build in tables:
        for name, given in table.items():
            yield Case(name, "transformers", family, functools.partial(build, name, given))
    for family, name, make in _OTHERS:
        yield Case(name, "transformers", family, make)


def _made(name: str, **config: Any) -> Any:
    """The class with a configuration of its own kind; nothing is cached or dropped out."""
    with torchvision_operators():
        import transformers
    kind = getattr(transformers, name)
    given = {key: value for key, value in config.items() if value is not None}
    return kind(
        kind.config_class(use_cache=False, experts_implementation="batched_mm", **given)
    ).eval()


def _encoder(name: str, config: dict[str, Any]) -> Sample:
    inputs = {"input_ids": ids(2, 12, _WORDS), "attention_mask": mask(2, 12)}
    axes = dict.fromkeys(inputs, _ROWS)
    return Sample(_Tensors(_made(name, **{**_SIZES, **config}), tuple(inputs)), inputs, axes, _TEXT)


def _decoder(name: str, config: dict[str, Any]) -> Sample:
    module = _made(name, **{**_SIZES, **config})
    inputs = {"input_ids": ids(2, 12, _WORDS)}
    return Sample(_Tensors(module, tuple(inputs)), inputs, {"input_ids": _ROWS}, _TEXT)


def _seq2seq(name: str, config: dict[str, Any]) -> Sample:
    module = _made(name, **{**_SIZES, **_HALVES, **config})
    inputs = {
        "input_ids": ids(2, 12, _WORDS),
        "attention_mask": mask(2, 12),
        "decoder_input_ids": ids(2, 5, _WORDS),
    }
    axes = {**dict.fromkeys(inputs, _ROWS), "decoder_input_ids": ("batch", "written")}
    ranges = {**_TEXT, "written": (2, 8)}
    return Sample(_Tensors(module, tuple(inputs)), inputs, axes, ranges)


def _image(name: str, given: tuple[int, dict[str, Any]]) -> Sample:
    size, config = given
    module = _made(name, **{**_SIZES, **config})
    inputs = {"pixel_values": image(size)}
    if name == "ViTMAEForPreTraining":  # else it draws its noise, which no artifact does
        inputs["noise"] = torch.rand(2, (size // config["patch_size"]) ** 2)
    return Sample(_Tensors(module, tuple(inputs)), inputs, _batched(inputs), _FEW)


def _speech(name: str, config: dict[str, Any]) -> Sample:
    inputs = {"input_values": noise(2, 2000)}
    axes = {"input_values": ("batch", "samples")}
    ranges = {"batch": (1, 3), "samples": (1200, 3000)}
    return Sample(
        _Tensors(_made(name, **{**_SIZES, **config}), tuple(inputs)), inputs, axes, ranges
    )


class _Tensors(nn.Module):
    """A model that takes tensors by position, and keeps of its results the tensors by name."""

    def __init__(self, module: nn.Module, names: tuple[str, ...], **arguments: Any) -> None:
        super().__init__()
        self.module, self.names, self.arguments = module, names, arguments

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        """The results that are tensors."""
        made = self.module(**dict(zip(self.names, tensors, strict=True)), **self.arguments)
        return {name: value for name, value in made.items() if isinstance(value, Tensor)}


class _Step(nn.Module):
    """A decoder's next token, of one token and the keys and values of those before it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (batch, 1, words) and the longer cache.

        The cache is (layers, 2, batch, heads, length, size).
        """
        from transformers import DynamicCache

        cache = DynamicCache([(layer[0], layer[1]) for layer in past])
        made = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        layers = made.past_key_values.layers
        return made.logits, torch.stack([torch.stack([kept.keys, kept.values]) for kept in layers])


def _step(name: str) -> Sample:
    config = {**_SIZES, **_DECODERS[name]}
    module = _made(name, **config)
    heads = module.config.num_key_value_heads if "num_key_value_heads" in config else 4
    inputs = {"input_ids": ids(2, 1, _WORDS), "past": noise(2, 2, 2, heads, 6, 8)}
    axes = {"input_ids": ("batch",), "past": (None, None, "batch", None, "length")}
    return Sample(_Step(module), inputs, axes, {"batch": (1, 4), "length": (2, 24)})


def _of(
    name: str, inputs: dict[str, Tensor], axes: dict[str, tuple[str | None, ...]],
    ranges: dict[str, tuple[int, int]], arguments: dict[str, Any] | None = None, **config: Any,
) -> Sample:  # fmt: skip
    return Sample(
        _Tensors(_made(name, **config), tuple(inputs), **(arguments or {})), inputs, axes, ranges
    )


def _batched(inputs: dict[str, Tensor]) -> dict[str, tuple[str | None, ...]]:
    return dict.fromkeys(inputs, ("batch",))


def _whisper() -> Sample:
    sizes = {**_HALVES, "vocab_size": _WORDS, "num_mel_bins": 16, "max_source_positions": 20,
        "max_target_positions": 32, **_NO_TOKENS, "decoder_start_token_id": 1}  # fmt: skip
    inputs = {"input_features": noise(2, 16, 40), "decoder_input_ids": ids(2, 5, _WORDS)}
    axes: dict[str, tuple[str | None, ...]] = {
        "input_features": ("batch",),
        "decoder_input_ids": ("batch", "written"),
    }
    return _of(
        "WhisperForConditionalGeneration",
        inputs,
        axes,
        {"batch": (1, 3), "written": (2, 8)},
        **sizes,
    )


def _speech_to_text() -> Sample:
    sizes = {**_HALVES, "vocab_size": _WORDS, "input_feat_per_channel": 16, "max_source_positions": 100,
        "max_target_positions": 32, "conv_channels": 32}  # fmt: skip
    inputs = {
        "input_features": noise(2, 40, 16),
        "attention_mask": torch.ones(2, 40, dtype=torch.int64),
        "decoder_input_ids": ids(2, 5, _WORDS),
    }
    return _of("Speech2TextForConditionalGeneration", inputs, _batched(inputs), _FEW, **sizes)


def _moonshine() -> Sample:
    sizes = {**_SIZES, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2,
        "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4}  # fmt: skip
    inputs = {"input_values": noise(2, 4000), "decoder_input_ids": ids(2, 5, _WORDS)}
    axes: dict[str, tuple[str | None, ...]] = {
        "input_values": ("batch",),
        "decoder_input_ids": ("batch", "written"),
    }
    return _of(
        "MoonshineForConditionalGeneration",
        inputs,
        axes,
        {"batch": (1, 3), "written": (2, 8)},
        **sizes,
    )


def _spectrogram() -> Sample:
    inputs = {"input_values": noise(2, 64, 16)}
    return _of(
        "ASTForAudioClassification",
        inputs,
        _batched(inputs),
        _FEW,
        **_SIZES,
        max_length=64,
        num_mel_bins=16,
        patch_size=8,
        frequency_stride=4,
        time_stride=4,
    )


def _w2v_bert() -> Sample:
    inputs = {"input_features": noise(2, 24, 16)}
    axes = {"input_features": ("batch", "frames")}
    return _of(
        "Wav2Vec2BertForCTC",
        inputs,
        axes,
        {"batch": (1, 3), "frames": (8, 40)},
        **_SIZES,
        feature_projection_input_dim=16,
        conv_depthwise_kernel_size=7,
    )


def _parakeet() -> Sample:
    encoder = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "num_mel_bins": 16, "subsampling_conv_channels": 8, "max_position_embeddings": 100, "conv_kernel_size": 5}  # fmt: skip
    inputs = {
        "input_features": noise(2, 48, 16),
        "attention_mask": torch.ones(2, 48, dtype=torch.int64),
    }
    axes = dict.fromkeys(inputs, ("batch", "frames"))
    return _of(
        "ParakeetForCTC",
        inputs,
        axes,
        {"batch": (1, 3), "frames": (32, 96)},
        encoder_config=encoder,
        vocab_size=_WORDS,
    )


def _encodec() -> Sample:
    class Decoded(nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, audio: Tensor) -> Tensor:
            """What the codec makes of audio (batch, 1, samples)."""
            embedded = self.model.encoder(audio)
            made: Tensor = self.model.decoder(embedded)
            return made

    module = _made(
        "EncodecModel",
        num_filters=4,
        hidden_size=16,
        codebook_dim=16,
        num_residual_layers=1,
        upsampling_ratios=[4, 2],
        codebook_size=32,
    )
    return Sample(Decoded(module), {"audio": noise(2, 1, 64)}, {"audio": ("batch",)}, _FEW)


def _dac() -> Sample:
    inputs = {"input_values": noise(2, 1, 256)}
    return _of(
        "DacModel",
        inputs,
        _batched(inputs),
        _FEW,
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=32,
        upsampling_ratios=[4, 2],
        hidden_size=32,
        n_codebooks=2,
        codebook_size=32,
        codebook_dim=4,
    )


_TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_READER = {**_TOWER, "vocab_size": _WORDS, "max_position_embeddings": 64, **_NO_TOKENS}
_SEEING = {**_TOWER, "image_size": 32, "patch_size": 8}


def _pair(name: str, **config: Any) -> Sample:
    inputs = {
        "input_ids": ids(2, 12, _WORDS),
        "pixel_values": image(32),
        "attention_mask": mask(2, 12),
    }
    inputs["input_ids"][:, -1] = 2
    given = {"text_config": _READER, "vision_config": _SEEING, "projection_dim": 16, **config}
    return _of(name, inputs, dict.fromkeys(inputs, ("batch",)), {"batch": (2, 3)}, **given)


def _clipseg() -> Sample:
    inputs = {"input_ids": ids(2, 12, _WORDS), "pixel_values": image(32)}
    return _of(
        "CLIPSegForImageSegmentation",
        inputs,
        _batched(inputs),
        _FEW,
        text_config=_READER,
        vision_config=_SEEING,
        projection_dim=32,
        reduce_dim=16,
        extract_layers=[0, 1],
        decoder_num_attention_heads=4,
        decoder_intermediate_size=32,
    )


def _owl() -> Sample:
    inputs = {
        "input_ids": ids(4, 12, _WORDS),
        "pixel_values": image(32),
        "attention_mask": mask(4, 12),
    }
    return _of(
        "OwlViTForObjectDetection",
        inputs,
        {},
        {},
        text_config=_READER,
        vision_config=_SEEING,
        projection_dim=32,
    )


def _vilt() -> Sample:
    inputs = {"input_ids": ids(2, 12, _WORDS), "pixel_values": image(32)}
    return _of("ViltModel", inputs, _batched(inputs), _FEW, **_SIZES, image_size=32, patch_size=8)


def _blip() -> Sample:
    inputs = {"input_ids": ids(2, 12, _WORDS), "pixel_values": image(32)}
    return _of(
        "BlipForImageTextRetrieval",
        inputs,
        _batched(inputs),
        _FEW,
        text_config={**_READER, "encoder_hidden_size": 32},
        vision_config=_SEEING,
        projection_dim=16,
        image_text_hidden_size=16,
    )


def _git() -> Sample:
    inputs = {"input_ids": ids(2, 6, _WORDS), "pixel_values": image(32)}
    return _of("GitForCausalLM", inputs, _batched(inputs), _FEW, **_READER, vision_config=_SEEING)


def _layoutlm() -> Sample:
    inputs = {
        "input_ids": ids(2, 12, _WORDS),
        "bbox": torch.sort(torch.randint(0, 60, (2, 12, 4)), -1)[0],
    }
    return _of(
        "LayoutLMModel",
        inputs,
        dict.fromkeys(inputs, ("batch", "length")),
        _TEXT,
        **_SIZES,
        max_2d_position_embeddings=128,
    )


def _llava() -> Sample:
    class Joined(nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs_embeds: Tensor) -> Tensor:
            """Logits of embedded words and image patches (batch, length, 32)."""
            made: Tensor = self.model(inputs_embeds=inputs_embeds).logits
            return made

    vision = {**_SEEING, "model_type": "clip_vision_model", "projection_dim": 32}
    text = {**_READER, "model_type": "llama", "num_key_value_heads": 2}
    module = _made(
        "LlavaForConditionalGeneration", vision_config=vision, text_config=text, image_token_index=5
    )
    return Sample(
        Joined(module),
        {"inputs_embeds": noise(2, 12, 32)},
        {"inputs_embeds": ("batch", "length")},
        _TEXT,
    )


def _video(name: str, **config: Any) -> Sample:
    inputs = {"pixel_values": noise(2, 4, 3, 32, 32)}
    return _of(
        name,
        inputs,
        _batched(inputs),
        _FEW,
        **_TOWER,
        image_size=32,
        patch_size=8,
        num_frames=4,
        **config,
    )


def _patchtst(name: str) -> Sample:
    inputs = {"past_values": noise(2, 32, 3)}
    return _of(
        name,
        inputs,
        _batched(inputs),
        _FEW,
        num_input_channels=3,
        context_length=32,
        prediction_length=8,
        patch_length=4,
        patch_stride=4,
        d_model=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=32,
        num_layers=2,
    )


def _depth_anything() -> Sample:
    backbone = {"model_type": "dinov2", **_TOWER, "image_size": 28, "patch_size": 7, "num_hidden_layers": 4,
        "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False, "apply_layernorm": True}  # fmt: skip
    inputs = {"pixel_values": image(28)}
    with torchvision_operators():
        from transformers import Dinov2Config
    return _of(
        "DepthAnythingForDepthEstimation",
        inputs,
        _batched(inputs),
        _FEW,
        backbone_config=Dinov2Config(**backbone),
        patch_size=7,
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
        head_hidden_size=8,
    )


def _sam() -> Sample:
    vision = {"hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": 64, "patch_size": 16, "mlp_dim": 64, "global_attn_indexes": [1], "window_size": 2, "num_pos_feats": 8}  # fmt: skip
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 16}
    decoder = {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    }
    inputs = {"pixel_values": image(64), "input_points": torch.rand(2, 1, 2, 2) * 60}
    return _of(
        "SamModel",
        inputs,
        _batched(inputs),
        _FEW,
        vision_config=vision,
        prompt_encoder_config=prompt,
        mask_decoder_config=decoder,
    )


_OTHERS: tuple[tuple[str, str, Callable[[], Sample]], ...] = (
    *(
        ("generation steps", f"{name}, a step with its cache", functools.partial(_step, name))
        for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "GPTNeoXForCausalLM", "MistralForCausalLM")
    ),
    ("text encoders", "LayoutLMModel", _layoutlm),
    ("speech", "WhisperForConditionalGeneration", _whisper),
    ("speech", "Speech2TextForConditionalGeneration", _speech_to_text),
    ("speech", "MoonshineForConditionalGeneration", _moonshine),
    ("speech", "ASTForAudioClassification", _spectrogram),
    ("speech", "Wav2Vec2BertForCTC", _w2v_bert),
    ("speech", "ParakeetForCTC", _parakeet),
    ("speech", "EncodecModel", _encodec),
    ("speech", "DacModel", _dac),
    ("vision", "VideoMAEForVideoClassification", functools.partial(_video, "VideoMAEForVideoClassification", tubelet_size=2)),
    ("vision", "TimesformerForVideoClassification", functools.partial(_video, "TimesformerForVideoClassification")),
    ("vision", "DepthAnythingForDepthEstimation", _depth_anything),
    ("vision", "SamModel", _sam),
    ("multi-modal", "CLIPModel", functools.partial(_pair, "CLIPModel")),
    ("multi-modal", "SiglipModel", functools.partial(_pair, "SiglipModel")),
    ("multi-modal", "AltCLIPModel", functools.partial(_pair, "AltCLIPModel", text_config={**_READER, "project_dim": 32})),
    ("multi-modal", "ChineseCLIPModel", functools.partial(_pair, "ChineseCLIPModel")),
    ("multi-modal", "BlipForImageTextRetrieval", _blip),
    ("multi-modal", "CLIPSegForImageSegmentation", _clipseg),
    ("multi-modal", "OwlViTForObjectDetection", _owl),
    ("multi-modal", "ViltModel", _vilt),
    ("multi-modal", "GitForCausalLM", _git),
    ("multi-modal", "LlavaForConditionalGeneration", _llava),
    ("time series", "PatchTSTForPrediction", functools.partial(_patchtst, "PatchTSTForPrediction")),
    ("time series", "PatchTSMixerForPrediction", functools.partial(_patchtst, "PatchTSMixerForPrediction")),
)  # fmt: skip
