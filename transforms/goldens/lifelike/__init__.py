"""Golden inputs with the statistics of what a model meets: pictures and speech, beside noise.

Noise has no two neighbours alike, and so no smooth region, no edge and no pause: what a network
makes of these it never shows. Everything here is computed in float64 and rounded to what cameras
and microphones give, so that the same seed gives the same bytes on any processor.
"""

from __future__ import annotations

from transforms.goldens.lifelike.content import Content, content_of, sizes_of
from transforms.goldens.lifelike.draw import Values, draw

__all__ = ["Content", "Values", "content_of", "draw", "sizes_of"]
