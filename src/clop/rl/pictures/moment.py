"""A moment of play as a picture: the frame, what the agent thinks of it, and what it does."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clop.rl.envs.spec import EnvSpec
from clop.rl.pictures.heat import heat_over, ramp_image
from clop.rl.pictures.layout import MARGIN, Bars, Box, Panel, panels_together, single_panel, size_of
from clop.rl.pictures.text import font, write

if TYPE_CHECKING:
    from PIL.Image import Image

PAPER, INK, FAINT, GROOVE = (250, 250, 248), (32, 32, 32), (120, 120, 120), (228, 228, 226)
BAR, CHOSEN = (138, 170, 208), (214, 108, 46)


class Moment(NamedTuple):
    """One frame, and what the agent thought and did."""

    frame: NDArray[np.uint8]
    """(H, W, C)"""
    probabilities: NDArray[np.float32]
    """(A,) of the actions"""
    action: int
    values: tuple[float, ...]
    """What the critic said in each step of the episode so far, the last for this frame"""
    level: int
    step: int
    total: float
    """Return so far; of the whole episode when it has ended"""
    outcome: str = ""
    """Empty while the episode runs; after it, the last frame is shown again with ``solved`` or ``ended``"""
    heat: NDArray[np.float32] | None = None
    """(H, W) What the agent looks at, to be shown beside the frame"""


class Scene(NamedTuple):
    """What all moments of a video have in common."""

    title: str
    """The game"""
    known: str
    """Whether the agent has seen the level in training, in words"""
    spec: EnvSpec
    """What the game takes"""
    heat_text: str = ""
    """What the heat beside frames is, in words; empty if there is none"""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.spec.name_of(action) for action in range(self.spec.num_actions))

    def level_text(self, level: int) -> str:
        return f"level {level}, {self.known}" if self.known else f"level {level}"


def draw(moment: Moment, scene: Scene) -> "Image":
    """A picture of one agent."""
    from PIL import ImageDraw

    panel = single_panel(scene.names, bool(scene.heat_text))
    picture = _single_blank(scene.title, scene.heat_text, panel).copy()
    left, right, _ = panel.numbers
    write(ImageDraw.Draw(picture), (left, 56), scene.level_text(moment.level), FAINT, 15, right - left)
    _draw_moment(picture, panel, moment)
    return picture


def draw_together(moments: Mapping[str, Moment], scene: Scene) -> "Image":
    """A picture with a panel for each agent, by label; two to four, all on one level."""
    from PIL import ImageDraw

    panels = panels_together(len(moments), scene.names, bool(scene.heat_text))
    picture = _blank_together(scene.title, scene.heat_text, tuple(moments), panels).copy()
    level = next(iter(moments.values())).level
    place = (picture.width - MARGIN, 34)
    write(ImageDraw.Draw(picture), place, scene.level_text(level), FAINT, 15, picture.width // 3, "rs")
    for panel, moment in zip(panels, moments.values(), strict=True):
        _draw_moment(picture, panel, moment)
    return picture


def as_image(frame: NDArray[np.uint8], side: int) -> "Image":
    """A frame (H, W, C) as large as fits into a square; by a whole factor, if that leaves less than a third of it free.

    One channel is grey, three are red, green and blue. Of several such triples the last is shown, as in stacked frames,
    and of other numbers of channels the last one.
    """
    from PIL import Image

    height, width, channels = frame.shape
    shown = frame[..., -3:] if channels % 3 == 0 else frame[..., -1]
    longest = max(height, width)
    whole = side // longest
    factor = whole if 3 * whole * longest >= 2 * side else side / longest
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return Image.fromarray(np.ascontiguousarray(shown)).convert("RGB").resize(size, Image.Resampling.NEAREST)


def _draw_moment(picture: "Image", panel: Panel, moment: Moment) -> None:
    from PIL import ImageDraw

    pen = ImageDraw.Draw(picture)
    left, _, right, bottom = panel.frames
    frame = as_image(moment.frame, panel.frame[2] - panel.frame[0])
    _paste(picture, panel.frame, frame)
    if panel.heat is not None and moment.heat is not None:
        _paste(picture, panel.heat, heat_over(frame, moment.heat))
    if moment.outcome:
        height = 8 + 2 * panel.outcome_size
        pen.rectangle((left, bottom - height, right - 1, bottom - 1), INK)
        text = f"{moment.outcome} after {moment.step} steps, return {moment.total:.4g}"
        middle = ((left + right) // 2, bottom - height // 2)
        write(pen, middle, text, PAPER, panel.outcome_size, right - left - 16, "mm")
    numbers = (f"{moment.step}", f"{moment.total:.4g}", f"{moment.values[-1]:.2f}")
    for (x, y, width), number in zip(panel.number_places, numbers, strict=True):
        write(pen, (x, y + panel.number_size + 4), number, INK, panel.number_size, width)
    _draw_trace(pen, panel.trace, moment.values)
    _draw_bars(pen, panel.bars, moment.probabilities, moment.action)


def _paste(picture: "Image", box: Box, image: "Image") -> None:
    """In the middle of a box."""
    left, top, right, bottom = box
    picture.paste(image, ((left + right - image.width) // 2, (top + bottom - image.height) // 2))


def _draw_still(pen: Any, panel: Panel) -> None:
    """What is the same in every picture of a panel."""
    for box in (panel.frame, panel.heat):
        if box is not None:
            pen.rectangle((*box[:2], box[2] - 1, box[3] - 1), GROOVE)
    for (x, y, width), name in zip(panel.number_places, ("step", "return", "value"), strict=True):
        write(pen, (x, y), name, FAINT, 13, width)
    pen.rectangle(panel.trace, GROOVE)
    bars = panel.bars
    first = bars.boxes[0]
    pen.text((first[0] - bars.label_width, first[1] - 10), "action probabilities", FAINT, font(13), anchor="ls")
    for action, box in zip(bars.actions(), bars.boxes, strict=False):
        pen.rectangle(box, GROOVE)
        _draw_label(pen, bars, box, bars.labels[action], INK)
    if bars.hidden:
        left, top, _, bottom = bars.boxes[-1]
        pen.text((left, (top + bottom) / 2), f"and {bars.hidden} more", FAINT, font(bars.text_size), anchor="lm")


def _draw_bars(pen: Any, bars: Bars, probabilities: NDArray[np.float32], chosen: int) -> None:
    shares = probabilities.tolist()
    for action, box in zip(bars.actions(chosen), bars.boxes, strict=False):
        left, top, right, bottom = box
        colour = CHOSEN if action == chosen else BAR
        end = left + round(shares[action] * (right - left))
        if end > left:
            pen.rectangle((left, top, end, bottom), colour)
        if bars.percent_width:
            place = (right + bars.percent_width, (top + bottom) / 2)
            percent_colour = CHOSEN if action == chosen else FAINT
            pen.text(place, f"{shares[action]:.0%}", percent_colour, font(bars.text_size), anchor="rm")
        if action == chosen:
            pen.rectangle((left - bars.label_width, top - 3, left - 1, bottom + 3), PAPER)
            _draw_label(pen, bars, box, bars.labels[action], CHOSEN)


def _draw_label(pen: Any, bars: Bars, box: Box, label: str, colour: tuple[int, int, int]) -> None:
    left, top, _, bottom = box
    pen.text((left - 8, (top + bottom) / 2), label, colour, font(bars.text_size), anchor="rm")


def _draw_trace(pen: Any, box: Box, values: tuple[float, ...]) -> None:
    """The value's course in the last steps, from right to left into the past."""
    left, top, right, bottom = box
    recent = np.array(values[-((right - left) // 2 - 4) :])
    low, high = min(recent.min(), 0.0), max(recent.max(), 1.0)
    y = bottom - 2 - (recent - low) / (high - low) * (bottom - top - 4)
    x = right - 4 - 2.0 * np.arange(len(recent))[::-1]
    if len(recent) > 1:
        pen.line(list(zip(x.tolist(), y.tolist(), strict=True)), BAR, 2)
    pen.ellipse((x[-1] - 3, y[-1] - 3, x[-1] + 3, y[-1] + 3), CHOSEN)


@lru_cache(maxsize=4)
def _single_blank(title: str, heat_text: str, panel: Panel) -> "Image":
    """What is the same in every picture."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", size_of((panel,)), PAPER)
    pen = ImageDraw.Draw(picture)
    left, right, _ = panel.numbers
    write(pen, (left, 34), title, INK, 24, right - left)
    if panel.heat is not None:
        left, _, right, bottom = panel.heat
        write(pen, (left, bottom + 24), f"heat: {heat_text}", INK, 15, right - left)
        picture.paste(ramp_image(160, 10), (left, bottom + 36))
        write(pen, (left + 168, bottom + 46), "none to most in this frame", FAINT, 13, right - left - 168)
    _draw_still(pen, panel)
    return picture


@lru_cache(maxsize=4)
def _blank_together(title: str, heat_text: str, labels: tuple[str, ...], panels: tuple[Panel, ...]) -> "Image":
    from PIL import Image, ImageDraw

    size = size_of(panels)
    picture = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(picture)
    write(pen, (MARGIN, 34), title, INK, 24, size[0] // 2)
    if heat_text:
        write(pen, (MARGIN, 52), f"heat: {heat_text}", FAINT, 13, size[0] - 2 * MARGIN)
    for label, panel in zip(labels, panels, strict=True):
        left, top, right, _ = panel.frames
        write(pen, (left, top - 12), label, INK, 20, right - left)
        _draw_still(pen, panel)
    return picture
