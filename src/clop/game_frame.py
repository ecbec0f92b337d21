"""A frame of a game that does not exist, for pictures without an image at hand. Needs no torch."""

import numpy as np
from numpy.typing import NDArray


def draw_frame() -> NDArray[np.uint8]:
    """A small synthetic game frame, (64, 64, 3): hills, a player, an enemy and coins."""
    y, x = np.mgrid[:64, :64]
    frame = np.zeros((64, 64, 3), np.uint8)
    frame[:] = np.stack([90 + y, 150 + y, 235 - y // 2], -1)  # a sky
    hills = y > 44 - 6 * np.sin(x / 9.0) - 3 * np.sin(x / 4.0 + 1)
    frame[hills] = (86, 140, 92)
    _disc(frame, x, y, 52, 10, 6, (255, 226, 110))  # a sun
    for left, right, top in ((0, 22, 54), (28, 46, 50), (52, 64, 54)):  # ground, with gaps to jump
        block = (left <= x) & (x < right) & (y >= top)
        frame[block] = (128, 84, 52)
        frame[block & ((x + 5 * (y // 5 % 2)) % 10 == 0)] = (100, 64, 40)
        frame[block & (y < top + 2)] = (96, 180, 70)
    for column, row in ((32, 44), (37, 42), (42, 44), (56, 46)):  # coins
        _disc(frame, x, y, column, row, 2, (255, 204, 0))
    frame[(abs(x - 9) <= 3) & (abs(y - 48) <= 5)] = (214, 58, 58)  # the player
    _disc(frame, x, y, 9, 40, 3, (250, 214, 176))
    frame[(abs(x - 18) <= 2) & (abs(y - 51) <= 2)] = (70, 40, 120)  # an enemy
    frame[50, 17:20:2] = (255, 255, 255)
    return frame


def _disc(
    frame: NDArray[np.uint8],
    x: NDArray[np.int_],
    y: NDArray[np.int_],
    column: int,
    row: int,
    radius: int,
    colour: tuple[int, ...],
) -> None:
    frame[(x - column) ** 2 + (y - row) ** 2 <= radius**2 + 1] = colour
