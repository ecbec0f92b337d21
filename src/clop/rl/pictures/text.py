"""Text of a picture: as large as asked, and smaller or shorter where it would not fit."""

from functools import lru_cache
from typing import Any

SMALLEST = 10
"""Size of text, at least."""


def write(
    pen: Any,
    place: tuple[int, int],
    text: str,
    colour: tuple[int, int, int],
    size: int,
    width: int,
    anchor: str = "ls",
) -> None:
    """Text of this size, or smaller if it is too wide."""
    shown, size = fitted(text, width, size)
    pen.text(place, shown, colour, font(size), anchor=anchor)


@lru_cache(maxsize=1024)
def fitted(text: str, width: int, size: int, least: int = SMALLEST) -> tuple[str, int]:
    """The text as one line and the size at which it fits; shortened if even the least is too wide."""
    shown = line(text)
    for fitting in range(size, least - 1, -1):
        if font(fitting).getlength(shown) <= width:
            return shown, fitting
    while shown and font(least).getlength(f"{shown}...") > width:
        shown = shown[:-1]
    return f"{shown}...", least


def line(text: str) -> str:
    return " ".join(text.split())


@lru_cache(maxsize=32)
def font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
