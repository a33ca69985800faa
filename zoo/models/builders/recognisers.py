"""Speech recognisers of the transformers library as programs: wav2vec 2.0, Whisper, Moonshine.

`parts` returns the programs that a head's recipe calls (`menagerie.speech.recipe`): `listen`, which
takes samples, and `emit`, one step of a decoder.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import (
        HubertForCTC,
        MoonshineForConditionalGeneration,
        Wav2Vec2ForCTC,
        WhisperConfig,
        WhisperForConditionalGeneration,
    )
    from transformers.audio_utils import mel_filter_bank
    from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from collections.abc import Callable

RATE = 16_000  # samples per second
HOP = 160  # samples between frames of features
_EPSILON = 1e-7  # added to a variance before the square root
_FFT = 400
_FLOOR = 1e-10  # the least power
_RANGE = 8.0  # decades kept below a window's loudest bin


def level(samples: Tensor) -> Tensor:
    """Scale samples (batch, n) to mean 0 and deviation 1, as Wav2Vec2FeatureExtractor does."""
    centred = samples - samples.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + _EPSILON)


class MelPowers(nn.Module):
    """Mel powers of frames every 10 ms, on Slaney's scale; the base of features.

    `bins` is the number of mel bins, `size` is that of the Fourier transform, and `window`, which
    is at most as long, weights a frame.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, bins: int, size: int, window: Tensor) -> None:
        super().__init__()
        filters = mel_filter_bank(
            size // 2 + 1, bins, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney"
        )
        self.size = size
        self.register_buffer("filters", torch.from_numpy(filters).float(), persistent=False)
        self.register_buffer("window", window, persistent=False)

    def powers(self, samples: Tensor, **options: Any) -> Tensor:
        """Return (batch, n / 160, bins) of (batch, n) samples; `options` go to `torch.stft`."""
        spectrum = torch.stft(
            samples, self.size, hop_length=HOP, window=self.window, return_complex=True, **options
        )
        power = torch.view_as_real(spectrum).square().sum(-1)[:, :, :-1]
        return power.transpose(1, 2) @ self.filters


class LogMel(MelPowers):
    """Whisper's features: log mel powers of a window, in `bins` bins, scaled by its loudest bin.

    The values equal those of `transformers.WhisperFeatureExtractor`: periodic Hann windows of 25 ms
    every 10 ms, mirrored at both ends, of a recording that is padded with zeros to the window.
    """

    def __init__(self, bins: int = 80) -> None:
        super().__init__(bins, _FFT, torch.hann_window(_FFT))

    def forward(self, samples: Tensor) -> Tensor:
        """Return features (1, bins, n / 160) float32 of a window.

        Samples are (1, n) float32 from -1 to 1 at 16 kHz, n a multiple of 160.
        """
        mels = self.powers(samples).clamp(min=_FLOOR).log10()
        return (torch.maximum(mels, mels.amax() - _RANGE).transpose(1, 2) + 4.0) / 4.0


class CtcScores(nn.Module):
    """A map from samples to the scores of a model's CTC head.

    With `normalise`, samples are scaled to mean 0 and deviation 1.
    """

    def __init__(self, model: nn.Module, normalise: bool) -> None:
        super().__init__()
        self.model = model
        self.normalise = normalise

    def forward(self, samples: Tensor) -> dict[str, Tensor]:
        """Encode n samples at 16 kHz, at least 720, in frames of 400 every 320 samples (20 ms).

        Samples are (1, n) float32 from -1 to 1; return `logits` (1, (n - 80) // 320, tokens)
        float32. There is no padding or masking: group normalisation, attention and the positional
        convolution use all samples.
        """
        return {"logits": self.model(level(samples) if self.normalise else samples).logits}


class CrossKeys(nn.Module):
    """A map from a window of samples to the keys and values of a decoder's cross-attention.

    The encoder's result is projected here, once per window, for the `heads` of every layer's
    attention. `log_mel` computes the encoder's features; without it the encoder takes samples, and
    `normalise` scales them to mean 0 and deviation 1.
    """

    def __init__(
        self, model: Any, heads: int, log_mel: LogMel | None = None, normalise: bool = False
    ) -> None:
        super().__init__()
        attentions = [layer.encoder_attn for layer in model.decoder.layers]
        self.heads = heads
        self.keys = nn.ModuleList([attention.k_proj for attention in attentions])
        self.values = nn.ModuleList([attention.v_proj for attention in attentions])
        self.log_mel = log_mel
        self.encoder = model.encoder
        self.normalise = normalise

    def forward(self, samples: Tensor) -> dict[str, Tensor]:
        """Return `keys` and `values` of a window, (layers, heads, frames, width of a head) float32.

        Samples are (1, n) float32 from -1 to 1 at 16 kHz. Whisper's window has 320 samples for each
        of its encoder's positions, zeros after the recording's end. Moonshine takes at least 1279
        samples, about 384 (24 ms) to a frame.
        """
        features = level(samples) if self.normalise else samples
        if self.log_mel is not None:
            features = self.log_mel(features)
        encoded = self.encoder(features).last_hidden_state
        return {
            "keys": torch.stack([self._by_head(each(encoded)) for each in self.keys]),
            "values": torch.stack([self._by_head(each(encoded)) for each in self.values]),
        }

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows[0].view(rows.shape[1], self.heads, -1).transpose(0, 1)


class _Remembered(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """A layer's keys and values, (1, heads, tokens, width), as a cache for transformers' attention.

    New keys and values are written at `position`, (1,) int64.
    """

    def __init__(self, keys: Tensor, values: Tensor, position: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.position = keys, values, position
        self.is_initialized = True

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the keys and values of this token, and return all of them."""
        self.keys.index_copy_(2, self.position, key)
        self.values.index_copy_(2, self.position, value)
        return self.keys, self.values


class TokenDecoder(nn.Module):
    """One step of a decoder; keys and values of earlier tokens are the program's state.

    The state has a static capacity: as many tokens as the model has positions. A token attends to
    its own and earlier positions, so decoding may restart at position 0 at any time. `head` maps
    the decoder's width to the tokens' scores; each layer's attention has `heads` heads of `width`.
    """

    def __init__(
        self, decoder: Any, head: nn.Module, heads: int, capacity: int, width: int
    ) -> None:
        super().__init__()
        self.capacity = capacity
        shape = (1, heads, capacity, width)
        for layer in range(len(decoder.layers)):
            self.register_buffer(f"keys_{layer}", torch.zeros(shape), persistent=False)
            self.register_buffer(f"values_{layer}", torch.zeros(shape), persistent=False)
        self.decoder = decoder
        self.head = head

    def forward(
        self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor
    ) -> dict[str, Tensor]:
        """Feed a token (1, 1) int64; return `logits` (1, tokens) float32.

        `position`, (1,) int64, is the number of tokens fed before, less than the capacity; `keys`
        and `values` (layers, heads, frames, width of a head) float32 are the window's.
        """
        layers = range(len(self.decoder.layers))
        own = [
            _Remembered(getattr(self, f"keys_{n}"), getattr(self, f"values_{n}"), position)
            for n in layers
        ]
        heard = [_Remembered(keys[n][None], values[n][None], position) for n in layers]
        seen = torch.arange(self.capacity, device=position.device) <= position
        result = self.decoder(
            input_ids=token,
            position_ids=position[None],
            attention_mask=seen[None, None, None],
            encoder_hidden_states=keys[0, :1],  # only for its length: `heard` has the rest
            past_key_values=EncoderDecoderCache(Cache(own), Cache(heard)),
            use_cache=True,
        )
        return {"logits": self.head(result.last_hidden_state)[:, 0]}


def parts(model: Any, normalise: Callable[[], bool | None] = lambda: None) -> nn.ModuleDict:
    """Return the programs of a recogniser, by name; none for another kind of model.

    The model is a wav2vec 2.0 or HuBERT with a CTC head, a Whisper that writes text, or a Moonshine
    with a key for every head. `normalise` returns `do_normalize` of preprocessor_config.json for
    models that take samples; None: the default of the kind. Programs are `listen`, from samples to
    CTC scores, or `listen`, from samples to keys and values, and `emit`, a step.
    """
    config = model.config
    if isinstance(model, Wav2Vec2ForCTC | HubertForCTC):
        return nn.ModuleDict({"listen": CtcScores(model, normalise() is not False)})
    if isinstance(model, WhisperForConditionalGeneration):
        heads = config.decoder_attention_heads
        sizes = heads, config.max_target_positions, config.d_model // heads
        listen = CrossKeys(model.model, heads, LogMel(config.num_mel_bins))
        step = TokenDecoder(model.model.decoder, model.proj_out, *sizes)
        return nn.ModuleDict({"listen": listen, "emit": step})
    if not isinstance(model, MoonshineForConditionalGeneration):
        return nn.ModuleDict()
    heads, decoder = config.decoder_num_attention_heads, model.model.decoder
    if config.decoder_num_key_value_heads != heads:
        return nn.ModuleDict()
    sizes = heads, config.max_position_embeddings, decoder.layers[0].self_attn.head_dim
    listen = CrossKeys(model.model, heads, normalise=normalise() is True)
    for layer in decoder.layers:  # avoids a copy of all keys and values per token for wider heads
        layer.self_attn.head_dim_padding = layer.encoder_attn.head_dim_padding = 0
    step = TokenDecoder(decoder, model.proj_out, *sizes)
    return nn.ModuleDict({"listen": listen, "emit": step})


def whisper_tiny_en() -> nn.ModuleDict:
    """Return the parts of Whisper tiny.en (Radford et al. 2022, table 1) with untrained weights."""
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 4, "attention_heads": 6, "ffn_dim": 1536}.items()
    }
    config = WhisperConfig(d_model=384, vocab_size=51864, **sides)
    return parts(WhisperForConditionalGeneration(config))
