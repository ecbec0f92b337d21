"""Heat over a frame: where a map is large, the frame glows; elsewhere it is grey and dark."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

_RAMP = ((36, 11, 84), (114, 31, 129), (196, 60, 100), (244, 125, 60), (253, 231, 120))
"""From cold to hot; lightness grows all the way, so it can be read without telling the colours apart."""
_DIM = 0.55  # of the frame under it
_MOST = 0.85  # of the colour over the frame, where the map is largest


def heat_over(frame: "Image", heat: NDArray[np.float32]) -> "Image":
    """A picture of the frame with a map (H, W) of numbers over it, in units of the largest of them."""
    from PIL import Image

    top = float(heat.max())
    units = heat / top if top > 0 else np.zeros_like(heat)
    levels = Image.fromarray((255 * units).round().astype(np.uint8)).resize(frame.size, Image.Resampling.BILINEAR)
    colours = levels.copy()
    colours.putpalette(_palette())
    ground = frame.convert("L").point([round(_DIM * value) for value in range(256)]).convert("RGB")
    return Image.composite(colours.convert("RGB"), ground, levels.point([round(_MOST * value) for value in range(256)]))


@lru_cache(maxsize=1)
def _palette() -> bytes:
    places = np.linspace(0, 255, len(_RAMP))
    ramp = np.array(_RAMP, np.float64)
    columns = [np.interp(np.arange(256), places, ramp[:, channel]) for channel in range(3)]
    return np.stack(columns, 1).round().astype(np.uint8).tobytes()


def ramp_image(width: int, height: int) -> "Image":
    """The colours from cold on the left to hot on the right."""
    from PIL import Image

    row = np.linspace(0, 255, width).round().astype(np.uint8)
    ramp = Image.fromarray(np.repeat(row[None], height, 0))
    ramp.putpalette(_palette())
    return ramp.convert("RGB")
