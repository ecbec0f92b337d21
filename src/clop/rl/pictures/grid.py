"""A grid like the paper's Figure 8: frames from top to bottom, and beside each of them the heat of several agents."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clop.rl.pictures.heat import heat_over, ramp_image
from clop.rl.pictures.moment import FAINT, INK, PAPER, as_image
from clop.rl.pictures.text import write

if TYPE_CHECKING:
    from PIL.Image import Image

_TILE, _GAP, _TOP, _FOOT = 192, 8, 44, 40
_MOST_ROWS = 8  # in one column of the grid; more frames stand beside them


def draw_grid(frames: NDArray[np.uint8], heats: Mapping[str, NDArray[np.float32]], caption: str) -> "Image":
    """The grid as a picture.

    Args:
        frames: (N, H, W, C)
        heats: (N, h, w) for each agent, by label.
        caption: What the heat is.
    """
    from PIL import Image, ImageDraw

    rows = min(len(frames), _MOST_ROWS)
    blocks = -(-len(frames) // rows)
    step, block = _TILE + _GAP, (1 + len(heats)) * (_TILE + _GAP) + 2 * _GAP
    picture = Image.new("RGB", (blocks * block, _TOP + rows * step + _FOOT), PAPER)
    pen = ImageDraw.Draw(picture)
    for index, frame in enumerate(frames):
        number, row = divmod(index, rows)
        left, top = number * block + _GAP, _TOP + row * step
        shown = as_image(frame, _TILE)
        tiles = {"frame": shown} | {label: heat_over(shown, maps[index]) for label, maps in heats.items()}
        for column, (label, tile) in enumerate(tiles.items()):
            corner = left + column * step
            picture.paste(tile, (corner + (_TILE - tile.width) // 2, top + (_TILE - tile.height) // 2))
            if row == 0:
                write(pen, (corner + _TILE // 2, _TOP - 14), label, INK, 18, _TILE, "ms")
    foot = picture.height - _FOOT // 2
    picture.paste(ramp_image(120, 12), (_GAP, foot - 6))
    write(pen, (_GAP + 132, foot), f"{caption}; none to most in each frame", FAINT, 15, picture.width - 150, "lm")
    return picture
