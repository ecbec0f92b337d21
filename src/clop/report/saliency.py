"""Tables of how concentrated maps are, and of what that says of the paper's claims, from records of measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clop.errors import UsageError
from clop.experiments.record import RunRecord
from clop.report import stats
from clop.report.evidence import verdict
from clop.report.stats import Estimate
from clop.report.tables import NOT_RUN, markdown

KIND = "saliency"
"""Of the records."""
RANDOM = "random weights"
"""What the controls are called."""
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
    return f"{markdown(HEADER, [group.cells for group in groups(record)])}\n\n{note(record)}\n"


def note(record: RunRecord) -> str:
    """What the numbers are of."""
    metrics = record.metrics
    return (
        f"{metrics['frames']} frames of {metrics['levels']} levels ({metrics['source']}), the same for all; score: "
        f"{record.config['target']}. Entropy is in units of its maximum. In brackets an interval of 95 %: over "
        "networks from three seeds on, over levels where there is one network, and none of two."
    )


# ---- what decides ----------------------------------------------------------------------------------------------------

COMPARED = (
    ("clop(local=False)", "clop", "an agent trained without locality looks all over the frame"),
    (RANDOM, "clop", "an agent trained with CLOP looks at few places"),
    (RANDOM, "ppo", "so does one of PPO"),
    (RANDOM, "clop(channel_consistent=False)", "so does one of local swaps for each channel"),
    ("ppo", "clop", ""),
)
"""Whose heat is wider than whose, and the claim of the paper that says so, if there is one."""
DECISION_HEADER = ("wider − narrower", "claim", "entropy of the map", "half of the mass, points", "networks", "verdict")
DECISION_NOTE = (
    "Differences of the means over networks; in brackets Welch's interval of 95 % from three networks on. Reproduced "
    "if that of the entropy lies above 0, contradicted if below, else undecided."
)


def decisions(record: RunRecord) -> list[list[str]]:
    """What stands under :data:`DECISION_HEADER`."""
    named = {group.label: group for group in groups(record)}
    rows = []
    for wide, narrow, claim in COMPARED:
        row = [f"{wide} − {narrow}", claim or "none"]
        if wide in named and narrow in named:
            pair = named[wide], named[narrow]
            entropy, half = (_difference(*pair, name) for name in ("entropy", "half_mass"))
            seeds = " and ".join(str(len(group.rows)) for group in pair)
            decided = "too few seeds" if entropy is None else verdict(entropy)
            rows.append([*row, _text(entropy, 1, 3), _text(half, 100, 1), seeds, decided if claim else ""])
        else:
            rows.append([*row, NOT_RUN, NOT_RUN, "", NOT_RUN])
    return rows


def _difference(wide: Group, narrow: Group, name: str) -> Estimate | None:
    a, b = wide.means(name), narrow.means(name)
    return stats.welch_estimate(a, b) if a and b else None


def block_text(records: Sequence[RunRecord]) -> str:
    """What ``docs/saliency.md`` has between its marks."""
    return "\n".join(map(_measurement, records)) or "Not measured yet.\n"


def _measurement(record: RunRecord) -> str:
    commit, _, dirty = (record.commit or "not known").partition("-")
    commit, processor = commit[:9] + ("-dirty" if dirty else ""), record.machine.get("processor", "not known")
    origin = f"`{record.command}`, commit {commit}, {record.started[:10]}, {processor}"
    return f"{table(record)}\n{markdown(DECISION_HEADER, decisions(record))}\n\n{DECISION_NOTE}\n\nMade by {origin}.\n"


def _text(estimate: Estimate | None, scale: float, digits: int) -> str:
    if estimate is None:
        return "n/a"
    value, low, high = (
        None if x is None else f"{scale * x:.{digits}f}".replace("-", "−")
        for x in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value}" if low is None or high is None else f"{value} [{low}, {high}]"
