"""Figures; the only file that imports matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clop.errors import UsageError
from clop.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860")


def accuracy_bars(
    title: str, accuracies: Mapping[str, Mapping[str, float]], examples: Mapping[str, Sequence[Any]] | None = None
) -> "Figure":
    """Grouped bars, one group per method and one colour per test set, with example images on the left.

    Args:
        title: What was trained, at what scale.
        accuracies: Percent, by method and test set.
        examples: Grey images as arrays, by the name under which they are shown.
    """
    figure = _figure(width=9 if examples else 6.5, height=3.6)
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


def save(figure: "Figure", path: Path) -> None:
    write_whole(path, lambda draft: figure.savefig(draft, dpi=150))


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError('figures need matplotlib, which is not installed: pip install "clop[vision]"') from None
    return Figure(figsize=(width, height), layout="constrained")  # no pyplot, so no display and no global state
