"""Tables that the paper does not have: aggregates over games, outcomes of each game, efficiency."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from clop.report.efficiency import curve_of, return_at, steps_to
from clop.report.outcomes import Cell, cells, compare
from clop.report.paper_agents import METHODS, mean_of, order, steps_text
from clop.report.published import read_table
from clop.report.runs import AgentRun, Runs
from clop.report.scores import Scores
from clop.report.stats import Estimate, student_estimate
from clop.report.tables import Row, Table, Value
from clop.rl.games import GAMES, normalised_return


@dataclass(frozen=True)
class AtScale:
    """The runs of all methods at one scale that were evaluated after so many steps, and their statistics over games."""

    runs: tuple[AgentRun, ...]
    steps: int
    scores: Scores

    @property
    def methods(self) -> list[str]:
        return sorted(self.scores.methods, key=order)

    def paths(self, method: str) -> list[Path]:
        """Of the runs that the statistics of a method are of."""
        return [run.path for run in self.runs if run.variant == method and run.game in self.scores.common]

    @cached_property
    def aggregates(self) -> dict[str, dict[str, Estimate]]:
        """By statistic and method."""
        return self.scores.aggregates()

    @cached_property
    def improvement(self) -> dict[str, Estimate]:
        """The probability over games that a run of a method beats one of PPO; empty without PPO."""
        if "ppo" not in self.scores.methods:
            return {}
        return {m: self.scores.improvement(m, "ppo").over_games for m in self.methods if m != "ppo"}


def at_scales(runs: Runs) -> list[AtScale]:
    """Runs on games of Procgen by scale and steps, wherever the methods have a game in common."""
    if "at_scales" not in runs.kept:
        found: dict[tuple[str, int], list[AgentRun]] = {}
        for run in runs.agents:
            for stage in run.stages:
                if run.game in GAMES:
                    found.setdefault((run.scale_key, stage.env_steps), []).append(run)
        ordered = sorted(found.items(), key=lambda item: (item[1][0].scale, item[0][1]))
        every = [AtScale(tuple(group), steps, Scores.of(group, steps=steps)) for (_, steps), group in ordered]
        runs.kept["at_scales"] = [one for one in every if one.scores.common]
    return runs.kept["at_scales"]


def aggregates(runs: Runs) -> Table:
    """Mean, median, IQM and optimality gap over games of the normalised return on unseen levels."""
    rows = []
    for method in METHODS:
        values = [
            float(normalised_return(float(row["mean"]), row["game"]))
            for row in read_table("procgen_easy_test")
            if row["method"] == method
        ]
        known = {"mean": Value(float(np.mean(values))), "median": Value(float(np.median(values)))}
        known |= {"IQM": Value(None), "optimality gap": Value(None), "P(better than ppo)": Value(None)}
        rows.append(Row((method,), "paper", known, "5", "25 M", "authors-easy: impala, easy, 200 levels; 16 games"))
    for one in at_scales(runs):
        common = one.scores.common
        names = ", ".join(common) if len(common) < len(GAMES) else "all"
        scale = f"{one.runs[0].scale}; {len(common)} {'game' if len(common) == 1 else 'games'}: {names}"
        for method in one.methods:
            paths = one.paths(method)
            values_of = {name: Value.of(found[method], paths) for name, found in one.aggregates.items()}
            if method in one.improvement:
                values_of["P(better than ppo)"] = Value.of(one.improvement[method], paths + one.paths("ppo"))
            elif method == "ppo":
                values_of["P(better than ppo)"] = Value(None)
            n = one.aggregates["mean"][method].n
            rows.append(Row((method,), "ours", values_of, str(n), steps_text(one.steps), scale))
    columns = ("mean", "median", "IQM", "optimality gap", "P(better than ppo)")
    notes = (
        "Normalised return on unseen levels, over the games that all methods at this scale have. Intervals are of the "
        "stratified bootstrap over seeds, 95 %, from three seeds of every game on; seeds are those of the game with "
        "fewest.",
        "Of published means no IQM, optimality gap, probability or interval can be computed: n/a.",
    )
    return Table("aggregates", "Aggregates over games", ("method",), columns, tuple(rows), notes, 3)


def outcomes(runs: Runs) -> Table:
    """Every method on every game beside PPO: returns, gap, ratio, successes, unseen levels at equal training return."""
    every = cells(runs.agents)
    bases = {_where(cell): cell for cell in every if cell.variant == "ppo"}
    rows = [
        _outcome(cell, bases.get(_where(cell)))
        for cell in sorted(every, key=lambda c: (c.game, c.scale, c.env_steps, order(c.variant)))
    ]
    columns = (
        *("train", "test", "gap", "test / train", "solved, test, %", "test − ppo's", "P(better than ppo)"),
        *("training return in common", "test there", "ppo's test there"),
    )
    notes = (
        "Means over seeds with Student's 95 % intervals, differences with Welch's, probabilities with the "
        "bootstrap's; from three seeds on. Test / train is n/a where a training return is not positive.",
        "The training return in common is the highest that all runs of the method and of PPO have reached; what each "
        "has on "
        "unseen levels at that point compares them when they have learnt the same. It is read between evaluations of "
        "a run, "
        "or where it has only one from running returns, which are those of the agent as it acts, CLOP included.",
    )
    return Table("outcomes", "Every method on every game", ("game", "method"), columns, tuple(rows), notes)


def _where(cell: Cell) -> tuple[str, str, int]:
    return cell.game, cell.scale_key, cell.env_steps


def _outcome(cell: Cell, base: Cell | None) -> Row:
    values = {
        name: mean_of(cell, quantity)
        for name, quantity in (
            ("train", "train"),
            ("test", "test"),
            ("gap", "gap"),
            ("test / train", "ratio"),
            ("solved, test, %", "test_success"),
        )
    }
    if min(cell.values("train")) <= 0:
        values["test / train"] = Value(None)
    missing = ("test − ppo's", "P(better than ppo)", "training return in common", "test there", "ppo's test there")
    values |= {name: Value(None) for name in missing}
    if base is not None and base is not cell:
        found, paths = compare(cell, base), [run.path for run in (*cell.runs, *base.runs)]
        values["test − ppo's"] = Value.of(found.differences["test"], paths)
        values["P(better than ppo)"] = Value.of(found.improvement, paths)
        if found.at_equal_training is not None:
            mine, other, _ = found.at_equal_training
            values["training return in common"] = Value(found.training_return, runs=tuple(paths))
            values["test there"] = Value.of(mine, [run.path for run in cell.runs])
            values["ppo's test there"] = Value.of(other, [run.path for run in base.runs])
    return Row((cell.game, cell.variant), "ours", values, str(len(cell.runs)), steps_text(cell.env_steps), cell.scale)


_SHARES = (0.25, 0.5, 0.75)


def efficiency(runs: Runs) -> Table:
    """Return on unseen levels on the way, and steps until PPO's return at the end."""
    every = [cell for cell in cells(runs.agents) if all(cell.env_steps == run.end.env_steps for run in cell.runs)]
    bases = {_where(cell): cell for cell in every if cell.variant == "ppo"}
    rows = []
    for cell in sorted(every, key=lambda c: (c.game, c.scale, c.env_steps, order(c.variant))):
        curves = {run.path: curve_of(run, "test") for run in cell.runs}
        values: dict[str, Value] = {}
        for share in _SHARES:
            found = {
                p: value
                for p, curve in curves.items()
                if (value := return_at(curve, share * cell.env_steps)) is not None
            }
            whole = len(found) == len(curves)
            values[_at(share)] = Value.of(student_estimate(list(found.values())), list(found)) if whole else Value(None)
        values["at the end"] = mean_of(cell, "test")
        base = bases.get(_where(cell))
        values["steps to ppo's end, k"] = Value(None)
        if base is not None:
            level = base.estimate("test").value
            reached = {p: steps for p, curve in curves.items() if (steps := steps_to(curve, level)) is not None}
            if len(reached) == len(curves):
                thousands = student_estimate([value / 1000 for value in reached.values()])
                values["steps to ppo's end, k"] = Value.of(thousands, list(reached))
        seeds, steps_said = str(len(cell.runs)), steps_text(cell.env_steps)
        rows.append(Row((cell.game, cell.variant), "ours", values, seeds, steps_said, cell.scale))
    columns = (*map(_at, _SHARES), "at the end", "steps to ppo's end, k")
    notes = (
        "Return on unseen levels after a share of the steps, between tests on the way; n/a where there were none, or "
        "where a "
        "seed did not reach the return.",
    )
    return Table("efficiency", "Sample efficiency on unseen levels", ("game", "method"), columns, tuple(rows), notes)


def _at(share: float) -> str:
    return f"after {share:.0%}"
