"""A table of how concentrated maps are, from the record of a measurement."""

from collections.abc import Mapping
from typing import Any

from clop.errors import UsageError
from clop.experiments.record import RunRecord
from clop.report.tables import markdown

_TITLES = {"entropy": "entropy of the map", "half_mass": "positions that hold half of it, %"}


def table(record: RunRecord) -> str:
    """One line for each method, and one for the networks with random weights."""
    if record.kind != "saliency":
        raise UsageError(f"expected a record of kind 'saliency', got {record.kind!r}")
    metrics = record.metrics
    several = max(len(group["seeds"]) for group in metrics["groups"] if group["label"] != "random weights") > 1
    rows = [
        [
            group["label"],
            str(len(group["seeds"])),
            _text(_interval(group, metrics, "entropy"), 1, 3),
            _text(_interval(group, metrics, "half_mass"), 100, 1),
            f"{100 * group['empty']:.1f}",
        ]
        for group in metrics["groups"]
    ]
    over = "over networks of different seeds" if several else "over levels, and over networks for random weights"
    header = ["network", "seeds", *_TITLES.values(), "empty maps, %"]
    return (
        f"{markdown(header, rows)}\n\n"
        f"{metrics['frames']} frames of {metrics['levels']} levels ({metrics['source']}), the same for all; score: "
        f"{record.config['target']}. Entropy is in units of its maximum. In brackets an interval of 95 % {over}; none "
        "below three seeds.\n"
    )


def _interval(group: Mapping[str, Any], metrics: Mapping[str, Any], name: str) -> Mapping[str, float | None]:
    """Over seeds; of a single network over levels."""
    if len(group["seeds"]) > 1:
        return group[name]
    return next(row[name] for row in metrics["networks"] if row["label"] == group["label"])


def _text(interval: Mapping[str, float | None], scale: float, digits: int) -> str:
    mean, low, high = (interval[name] for name in ("mean", "low", "high"))
    if mean is None:
        return "n/a"
    text = f"{scale * mean:.{digits}f}"
    return text if low is None or high is None else f"{text} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"
