"""Where the parts of a picture are: frames, numbers, the value's course and the bars of the actions."""

from functools import lru_cache
from typing import NamedTuple

from clop.rl.pictures.text import SMALLEST, fitted, font, line

MARGIN = 16
"""Pixels around everything."""
HEIGHT = 544
"""Of a picture of one agent; a multiple of 16, as encoders like it, and so are all widths."""

Box = tuple[int, int, int, int]  # left, top, right, bottom

_SIDE, _SIDE_WITH_HEAT = 512, 384  # of one agent's frame; multiples of Procgen's 64 pixels
_SIDES = {2: 384, 3: 320, 4: 256}  # by the number of agents side by side
_SIDES_WITH_HEAT = {2: 256, 3: 192, 4: 128}
_COLUMN = 304  # width of what stands beside one agent's frame
_BAR_STEPS = (16, 30)  # the least and the most from one bar to the next
_GROUP_GAP = 11
_MAX_ROWS, _ROW = 9, 18  # of bars in a panel side by side; as many as Atari's 18 actions need
_DIRECTIONS = ("left down", "left", "left up", "down", "nothing", "up", "right down", "right", "right up")  # Procgen's

TOGETHER = tuple(_SIDES)
"""How many agents can stand side by side."""


class Bars(NamedTuple):
    """Where the bars of the actions are, and which actions have one."""

    boxes: tuple[Box, ...]
    """Of the bars, in the order of the actions"""
    labels: tuple[str, ...]
    """Of all actions"""
    label_width: int
    percent_width: int
    """0 if shares are not written"""
    text_size: int

    @property
    def hidden(self) -> int:
        """How many actions have no bar; then their number stands in place of the last one."""
        count = len(self.labels)
        return 0 if count <= len(self.boxes) else count - len(self.boxes) + 1

    def actions(self, chosen: int = 0) -> list[int]:
        """Those with a bar: all or the first ones, the last of which makes room for the chosen action."""
        shown = list(range(len(self.labels) - self.hidden))
        if chosen >= len(shown):
            shown[-1] = chosen
        return shown


class Panel(NamedTuple):
    """Where the parts of one agent's picture are."""

    frame: Box
    heat: Box | None
    """The frame once more, under the heat of what the agent looks at"""
    numbers: tuple[int, int, int]
    """Left and right, and the line of the names"""
    number_size: int
    trace: Box
    outcome_size: int
    bars: Bars

    @property
    def frames(self) -> Box:
        """The frame, and beside it the heat."""
        return self.frame if self.heat is None else (*self.frame[:2], *self.heat[2:])

    @property
    def number_places(self) -> list[tuple[int, int, int]]:
        """Where the three numbers are: x, y and width."""
        left, right, y = self.numbers
        third = (right - left) // 3
        return [(left + column * third, y, third - 10) for column in range(3)]


@lru_cache(maxsize=4)
def single_panel(names: tuple[str, ...], heat: bool = False) -> Panel:
    """Frames on the left, the rest in a column on the right."""
    frame, beside = _frames(MARGIN, MARGIN, _SIDE_WITH_HEAT if heat else _SIDE, heat)
    left = (beside or frame)[2] + MARGIN
    right = left + _COLUMN
    bars = _one_column(names, (left, 206, right, 532))
    return Panel(frame, beside, (left, right, 90), 24, (left, 134, right, 174), 20, bars)


@lru_cache(maxsize=4)
def panels_together(count: int, names: tuple[str, ...], heat: bool = False) -> tuple[Panel, ...]:
    """Panels from left to right, in each of them frames above the rest."""
    panels, left, top = [], MARGIN, 88
    side = (_SIDES_WITH_HEAT if heat else _SIDES)[count]
    for _ in range(count):
        frame, beside = _frames(left, top, side, heat)
        _, _, right, under = beside or frame
        trace = (left, under + 54, right - 1, under + 88)
        bars = _two_columns(names, (left, under + 120, right, under + 120 + _MAX_ROWS * _ROW))
        panels.append(Panel(frame, beside, (left, right, under + 22), 20, trace, 16, bars))
        left = right + MARGIN
    return tuple(panels)


def size_of(panels: tuple[Panel, ...]) -> tuple[int, int]:
    """Width and height of the picture that these panels make; both are multiples of 16."""
    if len(panels) == 1:
        return panels[0].numbers[1] + MARGIN, HEIGHT
    lowest = max(bottom for *_, bottom in panels[0].bars.boxes)
    return panels[-1].frames[2] + MARGIN, -(-(lowest + MARGIN) // 16) * 16


def _frames(left: int, top: int, side: int, heat: bool) -> tuple[Box, Box | None]:
    frame = (left, top, left + side, top + side)
    shift = side + MARGIN
    return frame, (left + shift, top, left + shift + side, top + side) if heat else None


def _one_column(names: tuple[str, ...], box: Box) -> Bars:
    """Bars one below the other, closer together the more there are."""
    left, top, right, bottom = box
    group = _group(names)
    room = bottom - top - (_GROUP_GAP if group else 0)
    least, most = _BAR_STEPS
    step = min(max(room // len(names), least), most)
    size = round(0.62 * step)
    text_size, label_width, labels = _labels(names, min(size, 15), 88, (right - left) // 2)
    bars = []
    for row in range(min(len(names), room // step)):
        y = top + row * step + (_GROUP_GAP if group and row >= group else 0)
        bars.append((left + label_width, y, right - 40, y + size))
    return Bars(tuple(bars), labels, label_width, 40, text_size)


def _two_columns(names: tuple[str, ...], box: Box) -> Bars:
    """Small bars, in two columns."""
    left, top, right, bottom = box
    rows = (bottom - top) // _ROW
    first = min(_group(names) or (len(names) + 1) // 2, rows)
    width = (right - left - MARGIN) // 2
    percent_width = 32 if width >= 150 else 0
    text_size, label_width, labels = _labels(names, 12, 0, width - percent_width - 26)
    bars = []
    for place in range(min(len(names), first + rows)):
        column, row = (0, place) if place < first else (1, place - first)
        x, y = left + column * (width + MARGIN), top + row * _ROW
        bars.append((x + label_width, y, x + width - percent_width - 1, y + 12))
    return Bars(tuple(bars), labels, label_width, percent_width, text_size)


def _group(names: tuple[str, ...]) -> int:
    """How many actions stand apart from the rest: those of Procgen that press directions."""
    return len(_DIRECTIONS) if names[: len(_DIRECTIONS)] == _DIRECTIONS else 0


def _labels(names: tuple[str, ...], size: int, least: int, most: int) -> tuple[int, int, tuple[str, ...]]:
    """Size of labels, the width they take with a gap of 8 behind them, and the labels; too long ones are shortened."""
    widest = max(map(line, names), key=font(size).getlength)
    size = fitted(widest, most - 8, size, SMALLEST)[1]
    width = min(max(round(font(size).getlength(widest) + 8.5), least), most)
    return size, width, tuple(fitted(name, width - 8, size, size)[0] for name in names)
