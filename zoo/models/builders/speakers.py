"""Resemblyzer's voice encoder (Wan et al. 2018, "Generalized end-to-end loss").

Names are those of its checkpoint.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from zoo.models.builders.recognisers import MelPowers

_BANDS, _WIDTH, _LAYERS = 40, 256, 3
_WINDOW = 400  # samples at 16 kHz
_LOUDNESS = 10 ** (-30 / 20)  # root mean square to which a quieter block is raised
_SILENT = 1e-5


class VoiceEncoder(nn.Module):
    """An LSTM over mel powers, whose last state is projected and scaled to length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.mel = MelPowers(_BANDS, _WINDOW, torch.hann_window(_WINDOW))
        self.lstm = nn.LSTM(_BANDS, _WIDTH, _LAYERS, batch_first=True)
        self.linear = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the embedding (1, 256) of (1, n) samples from -1 to 1 at 16 kHz."""
        loudness = samples.square().mean(-1, keepdim=True).sqrt().clamp(min=_SILENT)
        raised = samples * (_LOUDNESS / loudness).clamp(min=1.0)
        states, _ = self.lstm(self.mel.powers(raised, center=False))
        return normalize(torch.relu(self.linear(states[:, -1])), dim=-1)
