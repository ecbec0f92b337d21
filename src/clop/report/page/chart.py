"""A chart of learning curves as SVG, which scripts can switch and which needs none to be read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clop.report.page.curves import Curve
from clop.report.page.html import escape, spaced

WIDTH, HEIGHT = 1280, 720
"""Twice the pixels of a usual screen, so that whole numbers are exact enough."""
LEFT, RIGHT, TOP, BOTTOM = 104, 32, 28, 80
COLOURS = 8
"""How many there are before they come again, with another mark."""
_MARKS = (0, 1, 2, 3, 1, 2, 0, 0)  # of the colours: those that some eyes confuse have different ones
_SPLITS = ("train", "test")
_DETAILED = 40  # points of a seed's line from which there is room for lines of training and a mark for each test
_SHAPES = (  # around a point: a disc, a square, a triangle, a diamond
    "m-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z",
    "m-6-6h12v12h-12z",
    "m0-8l8 14h-16z",
    "m0-9l9 9l-9 9l-9-9z",
)


def mark_of(index: int) -> int:
    """The mark of a method by its number: with its colour it is one of 32 pairs."""
    return (_MARKS[index % COLOURS] + index // COLOURS) % len(_SHAPES)


@dataclass(frozen=True)
class Scale:
    """From steps and returns to pixels."""

    steps: float
    low: float
    high: float

    def x(self, steps: float) -> int:
        return round(LEFT + steps / self.steps * (WIDTH - LEFT - RIGHT))

    def y(self, value: float) -> int:
        return round(HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM))

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """From point to point, each relative to the one before, which takes half the letters."""
        (x, y), *rest = [(self.x(steps), self.y(value)) for steps, value in points]
        text = f"M{x} {y}"
        for nx, ny in rest:
            text += f"l{nx - x}{ny - y}" if ny < y else f"l{nx - x} {ny - y}"
            x, y = nx, ny
        return text


def scale_of(curves: Mapping[str, Mapping[str, Curve]]) -> Scale:
    """So that all that is drawn has a place."""
    ends = [point for splits in curves.values() for curve in splits.values() for point in curve.mean]
    pairs = [pair for splits in curves.values() for curve in splits.values() for seed in curve.seeds for pair in seed]
    values = [value for _, value in pairs]
    values += [value for p in ends for value in (p.low, p.high) if value is not None]
    steps = max((steps for steps, _ in pairs), default=1)
    low, high = min(values, default=0.0), max(values, default=1.0)
    low = min(low, 0.0) if low > -0.3 * (high - low) else low  # zero is a good place to begin where it is near
    return Scale(steps, low, high if high > low else low + 1)


def chart(title: str, curves: Mapping[str, Mapping[str, Curve]], colours: Mapping[str, int], points: int = 120) -> str:
    """The picture.

    Args:
        title: For who does not see it.
        curves: By method, then ``train`` and ``test``.
        colours: Number of each method, which decides its colour and its mark.
        points: Of the line of a seed, at most; 0 for no such lines.
    """
    scale = scale_of(curves)
    drawn = "".join(_method(scale, name, splits, colours[name], points) for name, splits in curves.items())
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" tabindex="0">'
        f'{_axes(scale)}{drawn}<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="0" x2="0"></line></svg>'
    )


def _method(scale: Scale, name: str, splits: Mapping[str, Curve], index: int, points: int) -> str:
    shapes = {"train": None, "test": _SHAPES[mark_of(index)]}
    return "".join(
        f'<g class="line {split} m{index % COLOURS}" data-method="{escape(name)}" data-split="{split}">'
        f"{_curve(scale, splits[split], shapes[split], points if split == 'test' or points >= _DETAILED else 0)}</g>"
        for split in _SPLITS
        if split in splits and splits[split].seeds
    )


def _curve(scale: Scale, curve: Curve, shape: str | None, points: int) -> str:
    parts = []
    band = [point for point in curve.mean if point.low is not None]
    if len(band) > 1:
        ends = [(p.steps, p.high or 0.0) for p in band], [(p.steps, p.low or 0.0) for p in reversed(band)]
        parts.append(f'<path class="band" d="{scale.path([*ends[0], *ends[1]])}Z"/>')
    if len(curve.seeds) > 1 and points:
        parts += [f'<path class="seed" d="{scale.path(_thinned(seed, points))}"/>' for seed in curve.seeds]
    if curve.mean:
        parts.append(f'<path class="mean" d="{scale.path([(p.steps, p.value) for p in curve.mean])}"/>')
    if shape is not None:
        marked = curve.mean if points >= _DETAILED else curve.mean[-1:]
        marks = "".join(f"M{scale.x(point.steps)} {scale.y(point.value)}{shape}" for point in marked)
        parts.append(f'<path class="mark" d="{marks}"/>')
    return "".join(parts)


def _thinned(seed: Sequence[tuple[int, float]], most: int) -> Sequence[tuple[int, float]]:
    every = -(-len(seed) // most)
    return [pair for index, pair in enumerate(seed) if (len(seed) - 1 - index) % every == 0]


def _axes(scale: Scale) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in ticks(scale.low, scale.high, 5):
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 16}" y="{y + 8}">{value:g}</text>')
    for steps in ticks(0, scale.steps, 5):
        parts.append(f'<text class="tick middle" x="{scale.x(steps)}" y="{bottom + 36}">{steps_text(steps)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="tick end" x="{right}" y="{HEIGHT - 10}">env steps</text>')
    parts.append(f'<text class="tick" x="{LEFT}" y="{TOP - 6}">return</text>')
    return "".join(parts)


def ticks(low: float, high: float, count: int) -> list[float]:
    """About so many round numbers between two."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def steps_text(steps: float) -> str:
    """``250 k``, ``1.5 M``"""
    if steps >= 1e6:
        return f"{steps / 1e6:g} M"
    return f"{steps / 1e3:g} k" if steps >= 1e3 else spaced(int(steps))
