"""Figures; the only file that imports matplotlib."""

import itertools
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clop.errors import UsageError
from clop.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure  # so that others need not import matplotlib for it

_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860")
_MARKERS = {"train": "^", "test": "o"}
_DPI = 150
_FEW = 4  # curves that are still easy to read with all their details


def accuracy_bars(
    title: str, accuracies: Mapping[str, Mapping[str, float]], examples: Mapping[str, Sequence[Any]] | None = None
) -> "Figure":
    """Grouped bars, one group per method and one colour per test set, with example images on the left.

    Args:
        title: What was trained, at what scale.
        accuracies: Percent, by method and test set.
        examples: Grey images as arrays, by the name under which they are shown.
    """
    figure = new_figure(width=9 if examples else 6.5, height=3.6)
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 2.6)) if examples else figure.add_gridspec(1, 1)
    axes = figure.add_subplot(grid[-1])
    sets = list(next(iter(accuracies.values())))
    width = 0.8 / len(sets)
    for s, name in enumerate(sets):
        places = [m + (s - (len(sets) - 1) / 2) * width for m in range(len(accuracies))]
        bars = axes.bar(
            places, [values[name] for values in accuracies.values()], width * 0.94, label=name, color=_COLOURS[s]
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=8, padding=1)
    axes.set_xticks(range(len(accuracies)), list(accuracies))
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 108)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=len(sets), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    if examples:
        rows = max(len(images) for images in examples.values())
        tiles = grid[0].subgridspec(rows, len(examples), wspace=0.08, hspace=0.08)
        for c, (name, images) in enumerate(examples.items()):
            for r, image in enumerate(images):
                tile = figure.add_subplot(tiles[r, c])
                tile.imshow(image, cmap="gray")
                tile.set_axis_off()
                if r == 0:
                    tile.set_title(name, fontsize=8)
    return figure


def accuracies_beside_published(
    title: str,
    ours: Mapping[str, Sequence[float]],
    published: Mapping[str, tuple[float, float | None]],
    names: tuple[str, str],
) -> "Figure":
    """Bars of ours, with the spread over seeds and each seed as a dot, beside the published ones.

    Args:
        title: What was tested.
        ours: Percent of each seed, by method.
        published: Mean and spread in percent, by method; not every method needs to have them.
        names: Of the two kinds of bars, with their scale.
    """
    figure = new_figure(width=max(6.0, 2.0 + 1.1 * len(ours)), height=4.2)
    axes = figure.subplots()
    width = 0.38
    for place, (method, values) in enumerate(ours.items()):
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        own_place = place - width / 2 if method in published else place
        _bar(axes, own_place, statistics.mean(values), spread, width, 0, top=max(values))
        axes.plot([own_place] * len(values), values, "o", markersize=2.5, color="black", alpha=0.6)
        if method in published:
            mean, std = published[method]
            _bar(axes, place + width / 2, mean, std or 0.0, width, 1)
    from matplotlib.patches import Patch

    handles = [Patch(color=_COLOURS[number], label=name) for number, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=8)
    labels = [name.replace("(", "\n(").replace("+", "+\n").replace(", ", ",\n") for name in ours]
    axes.set_xticks(range(len(ours)), labels, fontsize=8)
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(0, 108)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    return figure


def _bar(axes: Any, place: float, mean: float, spread: float, width: float, colour: int, top: float = 0.0) -> None:
    """With its number above all that is drawn on it, which reaches up to ``top``."""
    axes.bar(
        place, mean, width * 0.94, color=_COLOURS[colour], yerr=spread or None, ecolor="black", error_kw={"capsize": 2}
    )
    axes.annotate(
        f"{mean:.1f}",
        (place, max(mean + spread, top)),
        textcoords="offset points",
        xytext=(0, 4),
        ha="center",
        fontsize=8,
    )


def depth_curve(title: str, by_stage: Mapping[int, Sequence[float]], plain: Sequence[float] = ()) -> "Figure":
    """Test accuracy against the stage after which CLOP comes, with the spread over seeds, and the plain network's.

    Args:
        title: What was trained, at what scale.
        by_stage: Percent of each seed, by the number of the stage.
        plain: Percent of each seed without CLOP.
    """
    figure = new_figure(width=5.0, height=3.6)
    axes = figure.subplots()
    stages = sorted(by_stage)
    means = [statistics.mean(by_stage[stage]) for stage in stages]
    spreads = [statistics.stdev(by_stage[s]) if len(by_stage[s]) > 1 else 0.0 for s in stages]
    axes.errorbar(stages, means, spreads, marker="o", capsize=3, color=_COLOURS[0], label="CLOP after this stage")
    for stage in stages:
        values = by_stage[stage]
        axes.plot([stage] * len(values), values, ".", markersize=4, color="black", alpha=0.6)
    if plain:
        mean = statistics.mean(plain)
        axes.axhline(mean, color=_COLOURS[1], linestyle="--", label="plain network")
        if len(plain) > 1:
            spread = statistics.stdev(plain)
            axes.axhspan(mean - spread, mean + spread, color=_COLOURS[1], alpha=0.15, linewidth=0)
    axes.set_xticks(stages)
    axes.set_xlim(min(stages) - 0.4, max(stages) + 0.4)
    axes.set_xlabel("stage that CLOP follows, from the image to the classifier")
    axes.set_ylabel("test accuracy, %")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    return figure


@dataclass(frozen=True)
class Curve:
    """Returns of one run over its steps: pairs of steps and return."""

    name: str
    training: Sequence[tuple[int, float]]
    """The running return of the last episodes, as the agent learns."""
    tests: Sequence[tuple[int, float]] = ()
    """On unseen levels, while training."""
    final: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean and standard error of the evaluations at the end, by ``train`` and ``test`` levels."""
    notes: Sequence[str] = ()
    """What these have to be read with."""


def learning_curves(
    title: str, curves: Sequence[Curve], anchors: Mapping[str, tuple[int, float]] | None = None
) -> "Figure":
    """Return over steps: a line as the agent trains, small dots for tests on the way, and at the end a triangle for
    training levels and a circle for unseen ones, with standard errors. Many curves have a panel each, beside the first.

    Args:
        title: The game, and the scale.
        curves: One for each run.
        anchors: Published returns to compare with, as a cross at these steps.
    """
    if len(curves) > _FEW:
        figure = _panels(curves, anchors or {})
    else:
        figure = new_figure(width=7.0, height=4.2)
        axes = figure.subplots()
        for curve, colour in zip(curves, _COLOURS, strict=False):
            _draw(axes, curve, colour)
        _draw_anchors(axes, anchors or {})
        for levels, marker in _MARKERS.items():
            if any(levels in curve.final for curve in curves):
                axes.plot([], [], marker, color="grey", label=f"{levels} levels, at the end")
        if any(curve.tests for curve in curves):
            axes.plot([], [], "o:", color="grey", markersize=3, linewidth=0.8, label="test levels, while training")
        _label_axes(axes)
        axes.legend(frameon=False, fontsize=7.5)
        figure.supxlabel(_notes(curves, 100), fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def _panels(curves: Sequence[Curve], anchors: Mapping[str, tuple[int, float]]) -> "Figure":
    first, *others = curves
    columns = 4
    rows = math.ceil(len(others) / columns)
    figure = new_figure(width=2.5 * columns, height=2.2 * rows + 0.6)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in panels[len(others) :]:
        axes.set_visible(False)
    for number, (curve, axes) in enumerate(zip(others, panels, strict=False)):
        _draw(axes, first, "#b0b0b0")
        _draw(axes, curve, _COLOURS[0])
        _draw_anchors(axes, anchors)
        axes.set_title(curve.name + _ends(curve, "\n"), fontsize=8)
        _label_axes(axes)
        axes.label_outer()
        if number + columns >= len(others):  # the lowest of its column
            axes.set_xlabel("env steps", fontsize=8)
            axes.tick_params(labelbottom=True)
    key = f"grey: {first.name}{_ends(first, '; ')}; triangles and circles: train and test levels, at the end"
    if any(curve.tests for curve in curves):
        key += "; small dots: test levels, while training"
    if anchors:
        key += "; crosses: " + ", ".join(f"{name}: {value:g}" for name, (_, value) in anchors.items())
    figure.supxlabel(f"{key}\n{_notes(curves, 170)}".rstrip(), fontsize=7)
    return figure


def _notes(curves: Sequence[Curve], width: int) -> str:
    """Of all curves, each once, in lines of this many characters."""
    return textwrap.fill("; ".join(dict.fromkeys(note for curve in curves for note in curve.notes)), width)


def _draw(axes: Any, curve: Curve, colour: str) -> None:
    axes.plot(*_columns(curve.training), color=colour, linewidth=1.2, label=curve.name + _ends(curve, ": "))
    if curve.tests:
        axes.plot(*_columns(curve.tests), "o:", color=colour, markersize=3, linewidth=0.8)
    last = curve.training[-1][0] if curve.training else 0
    for levels, (mean, error) in curve.final.items():
        axes.errorbar([last], [mean], [error], fmt=_MARKERS[levels], color=colour, capsize=3, markersize=6)


def _ends(curve: Curve, separator: str) -> str:
    """``: 9.56 ± 0.23 train, 9.20 ± 0.24 test``, or nothing for a run that has not ended."""
    ends = [
        f"{curve.final[levels][0]:.2f} ± {curve.final[levels][1]:.2f} {levels}"
        for levels in _MARKERS
        if levels in curve.final
    ]
    return separator + ", ".join(ends) if ends else ""


def _draw_anchors(axes: Any, anchors: Mapping[str, tuple[int, float]]) -> None:
    for (name, (steps, value)), colour in zip(anchors.items(), itertools.cycle(("black", "grey")), strict=False):
        axes.plot([steps], [value], "x", color=colour, markersize=8, markeredgewidth=2, label=f"{name}: {value:g}")


def _label_axes(axes: Any) -> None:
    axes.set_xlabel("env steps", fontsize=8)
    axes.set_ylabel("return", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.margins(x=0.03)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: _steps_text(value))
    axes.spines[["top", "right"]].set_visible(False)


def _steps_text(steps: float) -> str:
    if steps >= 1e6:
        return f"{steps / 1e6:g} M"
    return f"{steps / 1e3:g} k" if steps else "0"


def _columns(pairs: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [steps for steps, _ in pairs], [value for _, value in pairs]


def save(figure: "Figure", path: Path) -> None:
    """Write a figure; the same figure is the same bytes, so neither date nor version nor random names go with it."""
    import matplotlib
    from matplotlib.backend_bases import FigureCanvasBase

    if (kind := path.suffix.removeprefix(".").lower()) not in FigureCanvasBase.get_supported_filetypes():
        raise UsageError(
            f"cannot write a figure as {kind or 'a file without a suffix'!r}; expected such as .png or .svg"
        )
    with matplotlib.rc_context({"svg.hashsalt": "clop", "svg.fonttype": "none"}):
        write_atomic(path, lambda draft: _print(figure, draft, kind))


def _print(figure: "Figure", path: Path, kind: str) -> None:
    """``savefig`` would draw everything twice, the first time only to find the layout; here one drawing does both."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    canvas: Any
    if kind == "svg":
        canvas = FigureCanvasSVG(figure)
        canvas.print_svg(path, metadata={"Date": None, "Creator": None})
    elif kind == "png":
        figure.set_dpi(_DPI)  # an SVG leaves another
        canvas = FigureCanvasAgg(figure)
        canvas.print_png(path, metadata={"Software": None})
    else:
        figure.savefig(path, dpi=_DPI)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError('figures need matplotlib, which is not installed: pip install "clop[report]"') from None
    figure = Figure(figsize=(width, height))  # no pyplot, so no display and no global state
    figure.set_layout_engine("constrained", w_pad=0.08)  # letters of a PNG are a little wider than the SVG's
    return figure
