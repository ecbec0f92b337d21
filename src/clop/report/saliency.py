"""A table of how concentrated maps are, from the record of a measurement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clop.errors import UsageError
from clop.experiments.record import RunRecord
from clop.report import stats
from clop.report.stats import Estimate
from clop.report.tables import markdown

KIND = "saliency"
"""Of the records."""
HEADER = ("network", "seeds", "entropy of the map", "positions that hold half of it, %", "empty maps, %")


@dataclass(frozen=True)
class Group:
    """Networks of one method, which differ in their seeds."""

    label: str
    rows: Sequence[Mapping[str, Any]]

    def estimate(self, name: str) -> Estimate | None:
        """The mean over networks with Student's interval; of a single network, that over levels. None if all of its
        maps are empty."""
        found = [row[name] for row in self.rows if row[name]["mean"] is not None]
        if not found:
            return None
        if len(found) == 1:
            return Estimate(found[0]["mean"], found[0]["low"], found[0]["high"], 1)
        return stats.student_estimate([each["mean"] for each in found])

    def means(self, name: str) -> list[float]:
        """Of each network that has a map that is not empty."""
        return [row[name]["mean"] for row in self.rows if row[name]["mean"] is not None]

    @property
    def empty(self) -> float:
        """Share of maps that are zero everywhere."""
        return sum(row["empty"] for row in self.rows) / len(self.rows)

    @property
    def cells(self) -> list[str]:
        """What stands under :data:`HEADER`."""
        numbers = [_text(self.estimate("entropy"), 1, 3), _text(self.estimate("half_mass"), 100, 1)]
        return [self.label, str(len(self.rows)), *numbers, f"{100 * self.empty:.1f}"]


def groups(record: RunRecord) -> list[Group]:
    """The networks of a record by method, those with random weights last."""
    if record.kind != KIND:
        raise UsageError(f"expected a record of kind {KIND!r}, got {record.kind!r}")
    return by_label(record.metrics["networks"])


def by_label(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """The networks of a record by what they are called."""
    labels = dict.fromkeys(row["label"] for row in rows)
    return [Group(label, [row for row in rows if row["label"] == label]) for label in labels]


def table(record: RunRecord) -> str:
    """One line for each method, and one for the networks with random weights."""
    return f"{markdown(list(HEADER), [group.cells for group in groups(record)])}\n\n{note(record)}\n"


def note(record: RunRecord) -> str:
    """What the numbers are of."""
    metrics = record.metrics
    return (
        f"{metrics['frames']} frames of {metrics['levels']} levels ({metrics['source']}), the same for all; score: "
        f"{record.config['target']}. Entropy is in units of its maximum. In brackets an interval of 95 %: over "
        "networks from three seeds on, over levels where there is one network, and none of two."
    )


def _text(estimate: Estimate | None, scale: float, digits: int) -> str:
    if estimate is None:
        return "n/a"
    text = f"{scale * estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"
