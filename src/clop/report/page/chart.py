"""A chart of learning curves as SVG, which scripts can switch and which needs none to be read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clop.report.page.curves import Curve, Point
from clop.report.page.html import escape, spaced

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 40
COLOURS = 8
"""How many there are before they come again, with another mark."""
_SPLITS = ("train", "test")
_SHAPES = (  # around a point: a disc, a square, a triangle, a diamond
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-3-3h6v6h-6z",
    "m0-4l4 7h-8z",
    "m0-4.5l4 4.5l-4 4.5l-4-4.5z",
)


@dataclass(frozen=True)
class Scale:
    """From steps and returns to pixels."""

    steps: float
    low: float
    high: float

    def x(self, steps: float) -> float:
        return round(LEFT + steps / self.steps * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.x(steps):g} {self.y(value):g}" for steps, value in points)


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


def chart(title: str, curves: Mapping[str, Mapping[str, Curve]], colours: Mapping[str, int]) -> str:
    """The picture.

    Args:
        title: For who does not see it.
        curves: By method, then ``train`` and ``test``.
        colours: Number of each method, which decides its colour and its mark.
    """
    scale = scale_of(curves)
    drawn = "".join(_method(scale, name, splits, colours[name]) for name, splits in curves.items())
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" tabindex="0">'
        f'{_axes(scale)}{drawn}<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="0" x2="0"></line></svg>'
    )


def _method(scale: Scale, name: str, splits: Mapping[str, Curve], index: int) -> str:
    shapes = {"train": None, "test": _SHAPES[index // COLOURS % len(_SHAPES)]}
    return "".join(
        f'<g class="line {split} m{index % COLOURS}" data-method="{escape(name)}" data-split="{split}">'
        f"{_curve(scale, splits[split], shapes[split])}</g>"
        for split in _SPLITS
        if split in splits and splits[split].seeds
    )


def _curve(scale: Scale, curve: Curve, shape: str | None) -> str:
    parts = []
    band = [point for point in curve.mean if point.low is not None]
    if len(band) > 1:
        ends = [(p.steps, p.high or 0.0) for p in band], [(p.steps, p.low or 0.0) for p in reversed(band)]
        parts.append(f'<path class="band" d="{scale.path([*ends[0], *ends[1]])}Z"/>')
    if len(curve.seeds) > 1:
        parts += [f'<path class="seed" d="{scale.path(_thinned(seed))}"/>' for seed in curve.seeds]
    if curve.mean:
        parts.append(f'<path class="mean" d="{scale.path([(p.steps, p.value) for p in curve.mean])}"/>')
    if shape is not None:
        parts += [_mark(scale, point, shape) for point in curve.mean]
    return "".join(parts)


def _mark(scale: Scale, point: Point, shape: str) -> str:
    return f'<path class="mark" d="M{scale.x(point.steps):g} {scale.y(point.value):g}{shape}"/>'


def _thinned(seed: Sequence[tuple[int, float]], most: int = 120) -> Sequence[tuple[int, float]]:
    every = -(-len(seed) // most)
    return [pair for index, pair in enumerate(seed) if (len(seed) - 1 - index) % every == 0]


def _axes(scale: Scale) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in ticks(scale.low, scale.high, 5):
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4}">{value:g}</text>')
    for steps in ticks(0, scale.steps, 5):
        parts.append(f'<text class="tick middle" x="{scale.x(steps)}" y="{bottom + 18}">{steps_text(steps)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="tick end" x="{right}" y="{HEIGHT - 5}">env steps</text>')
    parts.append(f'<text class="tick" x="{LEFT}" y="{TOP - 3}">return</text>')
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
