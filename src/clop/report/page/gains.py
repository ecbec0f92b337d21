"""What CLOP gains over the same network without it, wherever both were run: the numbers of the page's first screen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clop.report import stats
from clop.report.outcomes import Cell, cells
from clop.report.paper_agents import steps_text
from clop.report.paper_vision import Group, groups
from clop.report.runs import AgentRun, Runs, VisionRun
from clop.report.stats import Estimate


@dataclass(frozen=True)
class Gain:
    """CLOP against none on one game or data set, at one scale."""

    what: str
    """``bigfish``"""
    measured: str
    """``return on unseen levels``"""
    scale: str
    base_name: str
    base: tuple[float, ...]
    """Of each seed without CLOP."""
    clop: tuple[float, ...]
    base_runs: tuple[Path, ...]
    clop_runs: tuple[Path, ...]
    unit: str
    """``points`` or none."""
    digits: int

    @property
    def difference(self) -> Estimate:
        """Of the means, with Welch's interval from three seeds on."""
        return stats.welch_estimate(self.clop, self.base)

    @property
    def percent(self) -> Estimate | None:
        """The difference in percent of the mean without CLOP, which makes games comparable; None of one below zero."""
        mean = sum(self.base) / len(self.base)
        if mean <= 0:
            return None
        d = self.difference
        low, high = (None if end is None else 100 * end / mean for end in (d.low, d.high))
        return Estimate(100 * d.value / mean, low, high, d.n)

    @property
    def seeds(self) -> int:
        """Of the side that has fewer."""
        return min(len(self.base), len(self.clop))

    @property
    def verdict(self) -> str:
        d = self.difference
        if d.low is None or d.high is None:
            return "too few seeds"
        return "better" if d.low > 0 else "worse" if d.high < 0 else "undecided"


def agent_gains(runs: Sequence[AgentRun]) -> list[Gain]:
    """CLOP against PPO on each game and scale, after the steps that most seeds have; those with most seeds first."""
    found: dict[tuple[str, str], dict[int, dict[str, Cell]]] = {}
    for cell in cells(runs):
        found.setdefault((cell.game, cell.scale_key), {}).setdefault(cell.env_steps, {})[cell.variant] = cell
    chosen = []
    for by_steps in found.values():
        pairs = [(named["ppo"], named["clop"]) for named in by_steps.values() if {"ppo", "clop"} <= named.keys()]
        if pairs:
            chosen.append(max(pairs, key=_weight))
    return [_agent_gain(base, clop) for base, clop in sorted(chosen, key=_weight, reverse=True)]


def _weight(pair: tuple[Cell, Cell]) -> tuple[int, int]:
    """How much a comparison says: its seeds, and its steps."""
    return min(len(cell.runs) for cell in pair), pair[0].env_steps


def _agent_gain(base: Cell, clop: Cell) -> Gain:
    scale = f"{base.scale}; {steps_text(base.env_steps)} steps"
    without, with_it = tuple(base.values("test")), tuple(clop.values("test"))
    return Gain(base.game, "return on unseen levels", scale, "PPO", without, with_it, *_paths(base, clop), "", 2)


def classifier_gains(runs: Sequence[VisionRun]) -> list[Gain]:
    """CLOP against the plain network on each task, scale and test set; those with most seeds first.

    Of several test sets the last one, which is least like the training set, comes first.
    """
    tasks = dict.fromkeys(run.summary.task for run in runs)
    pairs = [pair for task in tasks for pair in _pairs(groups(runs, task))]

    def weight(pair: tuple[Group, Group]) -> tuple[int, int]:
        return min(len(group.runs) for group in pair), pair[0].first.summary.train_images

    return [
        _classifier_gain(base, clop, name)
        for base, clop in sorted(pairs, key=weight, reverse=True)
        for name in reversed(base.first.summary.test_accuracy)
    ]


def _pairs(found: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    """The plain network and CLOP at each scale: with the paper's alpha, or if there is no such run, with another."""
    for base in (group for group in found if group.label == "plain"):
        same = {group.label: group for group in found if group.protocol == base.protocol}
        other = [group for label, group in same.items() if label.startswith("clop(alpha=") and "," not in label]
        for clop in [same["clop"]] if "clop" in same else other:
            yield base, clop


def _classifier_gain(base: Group, clop: Group, name: str) -> Gain:
    task, measured = base.first.summary.task, f"accuracy on {name}"
    without, with_it = (tuple(run.summary.test_accuracy[name] for run in group.runs) for group in (base, clop))
    return Gain(task, measured, base.scale, "plain", without, with_it, *_paths(base, clop), "points", 1)


def _paths(base: Cell | Group, clop: Cell | Group) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    return tuple(run.path for run in base.runs), tuple(run.path for run in clop.runs)


def all_gains(runs: Runs) -> list[Gain]:
    """Those of agents, then those of classifiers."""
    return [*agent_gains(runs.agents), *classifier_gains(runs.classifiers)]
