"""What claims are decided by: runs side by side, and comparisons of them of which positive ones support a claim."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from clop.report import saliency
from clop.report.claims import Comparison
from clop.report.outcomes import Cell, cells
from clop.report.paper_agents import steps_text
from clop.report.paper_vision import Group, groups
from clop.report.runs import Runs
from clop.report.stats import Estimate, contrast_estimate, welch_estimate
from clop.rl.games import GAMES, normalised_return

ALL = tuple(GAMES)


class Evidence:
    """Runs, put in order once for all claims."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    @cached_property
    def _cells(self) -> dict[tuple[str, str, str], dict[int, dict[str, Cell]]]:
        """By game, mode and scale, then by steps and method."""
        found: dict[tuple[str, str, str], dict[int, dict[str, Cell]]] = {}
        for cell in cells(self.runs.agents):
            where = cell.game, cell.runs[0].mode, cell.scale_key
            found.setdefault(where, {}).setdefault(cell.env_steps, {})[cell.variant] = cell
        return found

    def agents(self, names: Sequence[str], games: Sequence[str], mode: str = "easy") -> Iterator[tuple[Cell, ...]]:
        """The cells of these methods on each game and at each scale, after the steps that most seeds have, and the
        most of those. A name that ends with ``*`` stands for all variants that begin like it."""
        for (game, cell_mode, _), by_steps in self._cells.items():
            if cell_mode != mode or game not in games:
                continue
            found: dict[tuple[int, int], list[tuple[Cell, ...]]] = {}
            for steps, named in by_steps.items():
                for several in _combined(names, list(named.values()), lambda cell: cell.variant):
                    found.setdefault((min(len(cell.runs) for cell in several), steps), []).append(several)
            if found:
                steps = max(found)[1]
                yield from (several for where, every in found.items() if where[1] == steps for several in every)

    @cached_property
    def _groups(self) -> dict[str, list[Group]]:
        tasks = dict.fromkeys(run.summary.task for run in self.runs.classifiers)
        return {task: groups(self.runs.classifiers, task) for task in tasks}

    def groups(self, task: str) -> list[Group]:
        """Classifiers on a task."""
        return self._groups.get(task, [])

    def classifiers(self, names: Sequence[str], task: str) -> Iterator[tuple[Group, ...]]:
        """The classifiers of these methods at each scale; names as in :meth:`agents`."""
        by_protocol: dict[str, list[Group]] = {}
        for group in self.groups(task):
            by_protocol.setdefault(group.protocol, []).append(group)
        for same in by_protocol.values():
            yield from _combined(names, same, lambda group: group.label)


_T = TypeVar("_T")


def _combined(names: Sequence[str], found: Sequence[_T], name_of: Callable[[_T], str]) -> Iterator[tuple[_T, ...]]:
    columns = [[one for one in found if _is(name_of(one), name)] for name in names]
    return (each for each in itertools.product(*columns) if len(set(map(name_of, each))) == len(names))


def _is(variant: str, name: str) -> bool:
    return variant.startswith(name[:-1]) if name.endswith("*") else variant == name


Find = Callable[[Evidence], list[Comparison]]


def all_of(*finds: Find) -> Find:
    return lambda evidence: [one for find in finds for one in find(evidence)]


def formula(names: Sequence[str], weights: Sequence[float]) -> str:
    """``clop − 0.8 × ppo``."""
    terms = sorted(zip(weights, names, strict=True), key=lambda term: term[0] < 0)
    words = [("− " if w < 0 else "+ ") + (name if abs(w) == 1 else f"{abs(w):g} × {name}") for w, name in terms]
    return " ".join(words).removeprefix("+ ")


def cell_scale(cell: Cell) -> str:
    return f"{cell.scale}, {steps_text(cell.env_steps)} steps"


def paths_of(several: Sequence[Cell] | Sequence[Group]) -> tuple[Path, ...]:
    return tuple(run.path for one in several for run in one.runs)


# ---- agents -------------------------------------------------------------------------------------------------------


def agent_sum(
    names: Sequence[str],
    weights: Sequence[float],
    quantity: str = "test",
    games: Sequence[str] = ALL,
    mode: str = "easy",
) -> Find:
    """A weighted sum of the means of methods, game by game."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        for several in evidence.agents(names, games, mode):
            one = several[0]
            value = contrast_estimate([cell.values(quantity) for cell in several], weights)
            text = f"{one.game}, {quantity}: {formula([cell.variant for cell in several], weights)}"
            found.append(Comparison(one.game, text, value, cell_scale(one), paths_of(several)))
        return found

    return find


def agents(
    better: str,
    worse: str,
    quantity: str = "test",
    games: Sequence[str] = ALL,
    mode: str = "easy",
    *,
    share: float = 1.0,
    less: bool = False,
) -> Find:
    """One method above ``share`` of another, or below it where ``less`` is better."""
    sign = -1 if less else 1
    return agent_sum((better, worse), (sign, -sign * share), quantity, games, mode)


def same(method: str, base: str, quantity: str = "test", games: Sequence[str] = ALL) -> Find:
    """A method has between 80 and 120 % of what another has."""
    return all_of(
        agent_sum((method, base), (1, -0.8), quantity, games), agent_sum((method, base), (-1, 1.2), quantity, games)
    )


def over_games(names: Sequence[str], weights: Sequence[float], split: str = "test", games: Sequence[str] = ALL) -> Find:
    """A weighted sum of mean normalised returns × 100 over games, where all of them were run at one scale."""

    def find(evidence: Evidence) -> list[Comparison]:
        by_scale: dict[tuple[str, int], dict[str, tuple[Cell, ...]]] = {}
        for several in evidence.agents(names, games):
            by_scale.setdefault((several[0].scale_key, several[0].env_steps), {})[several[0].game] = several
        found = []
        for by_game in by_scale.values():
            if len(by_game) == len(games):
                every = [cell for game in games for cell in by_game[game]]
                samples = [normalised_return(cell.values(split), cell.game) for cell in every]
                value = contrast_estimate(samples, [100 * w / len(games) for _ in games for w in weights])
                text = f"mean of {len(games)} games, {split}: {formula(names, weights)}"
                found.append(Comparison("mean", text, value, cell_scale(every[0]), paths_of(every)))
        return found

    return find


# ---- classifiers --------------------------------------------------------------------------------------------------


def classifier_sum(
    names: Sequence[str], weights: Sequence[float], tasks: Sequence[str], quantity: str = "test"
) -> Find:
    """A weighted sum of accuracies, or gaps, task by task and at every scale."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        for task in tasks:
            for several in evidence.classifiers(names, task):
                value = contrast_estimate([group.values(quantity) for group in several], weights)
                words = formula([group.label for group in several], weights)
                text = f"{task}{'' if quantity == 'test' else f', {quantity}'}: {words}"
                found.append(Comparison(task, text, value, several[0].scale, paths_of(several)))
        return found

    return find


def vision(better: str, worse: str, tasks: Sequence[str], quantity: str = "test", *, share: float = 1.0) -> Find:
    """One method above ``share`` of another; of gaps, below it."""
    sign = -1 if quantity == "gap" else 1
    return classifier_sum((better, worse), (sign, -sign * share), tasks, quantity)


# ---- how little alpha matters -------------------------------------------------------------------------------------


def insensitive(games: Sequence[str], tasks: Sequence[str]) -> Find:
    """Another alpha changes the outcome by less than half of what CLOP gains; asked only where it gains."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        names = ("clop", "clop(alpha=*")
        pairs: list[tuple[str, str, str, tuple[Path, ...], list[list[float]]]] = []
        for several in evidence.agents((*names, "ppo"), games):
            one, other, _ = several
            values = [cell.values("test") for cell in several]
            pairs.append((one.game, other.variant, cell_scale(one), paths_of(several), values))
        for task in tasks:
            for group in evidence.classifiers((*names, "plain"), task):
                values = [each.values("test") for each in group]
                pairs.append((task, group[1].label, group[0].scale, paths_of(group), values))
        for subject, variant, scale, paths, (clop, other_values, base) in pairs:
            gain = welch_estimate(clop, base)
            if gain.low is not None and gain.low <= 0:
                continue
            up = 1 if sum(clop) / len(clop) > sum(other_values) / len(other_values) else -1
            room = contrast_estimate([clop, other_values, base], [0.5 - up, up, -0.5])
            text = f"{subject}: half of the gain of clop − its distance from {variant}"
            found.append(Comparison(subject, text, room, scale, paths))
        return found

    return find


# ---- where networks look ------------------------------------------------------------------------------------------


def focus(wide: str, narrow: str) -> Find:
    """The heat of one kind of network is spread more widely than that of another, by its entropy."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        for path, record in evidence.runs.saliency.items():
            named = {group.label: group for group in saliency.by_label(record["metrics"]["networks"])}
            if wide in named and narrow in named:
                a, b = named[wide].means("entropy"), named[narrow].means("entropy")
                if a and b:
                    text = f"entropy of the heat: {wide} − {narrow}"
                    scale = f"{record['metrics']['frames']} frames, {record['metrics']['source']}"
                    found.append(Comparison("looks", text, welch_estimate(a, b), scale, (path,)))
        return found

    return find


def shifted(found: Estimate, by: float) -> Estimate:
    """The same with a number added."""
    low, high = (None if end is None else end + by for end in (found.low, found.high))
    return Estimate(found.value + by, low, high, found.n)
