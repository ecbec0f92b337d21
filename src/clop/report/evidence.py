"""What ``results/evidence/PLAN.md`` registered, and what has come of it: tables of runs, and of what decides.

The questions, comparisons and intervals are the plan's: differences of means over seeds with a bootstrap that draws
seeds within each method, 50 000 repetitions, seed 0. Rows that were planned and have no runs yet say so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from clop.report import stats
from clop.report.outcomes import Cell, Comparison, cells, compare
from clop.report.paper_agents import mean_of, steps_text
from clop.report.paper_vision import Group, groups
from clop.report.runs import AgentRun, Runs
from clop.report.stats import Estimate
from clop.report.tables import Row, Table, Value, markdown

COMMAND = "clop sweep run results/evidence/evidence.toml --out evidence --data DATA"
_ROLLOUT = 4096  # steps of an iteration, which totals are rounded up to
_EPISODES = 1024


@dataclass(frozen=True)
class Question:
    """Methods on one game with so many levels, after so many steps, as planned."""

    name: str
    game: str
    levels: int
    steps: int
    methods: tuple[str, ...]
    seeds: int
    """They end before this one."""
    required: bool = True
    first_seed: int = 0
    encoder: str = "small"
    changes: str = ""
    """Over the settings of the others, as scales name them."""
    beside: tuple["Question", ...] = ()
    """Whose methods its own are compared with; by default CLOP is with PPO."""

    @property
    def scale(self) -> str:
        return f"quick: {self.encoder}, easy, {self.levels} levels" + (f"; {self.changes}" if self.changes else "")

    @property
    def where(self) -> str:
        return f"{self.game}, {self.levels} levels, {steps_text(self.steps)} steps"

    @property
    def num_seeds(self) -> int:
        return self.seeds - self.first_seed

    def called(self, method: str) -> str:
        return f"{method}, {self.changes}" if self.changes else method

    def find(self, runs: Sequence[AgentRun]) -> dict[str, Cell]:
        """The runs of each method, those of the planned seeds."""
        mine = [
            run
            for run in runs
            if (run.game, run.config["num_levels"], run.scale) == (self.game, self.levels, self.scale)
            and run.config["eval_episodes"] == _EPISODES
            and self.first_seed <= run.seed < self.seeds
        ]
        return {
            cell.variant: cell
            for cell in cells(mine)
            if cell.variant in self.methods and 0 <= cell.env_steps - self.steps < _ROLLOUT
        }


_TWO = ("ppo", "clop")
_NOISE = ("clop(rollout_mode=eval)", "clop(per_sample=true)", "clop_consistency")
_BIGFISH = Question("main", "bigfish", 50, 1_000_000, _TWO, 5)
_DODGEBALL = Question("main", "dodgeball", 50, 1_000_000, _TWO, 3)
_ENTROPY = Question(
    "entropy", "bigfish", 50, 1_000_000, ("ppo",), 3, False, changes="ppo.ent_coef 0", beside=(_BIGFISH,)
)
_ACTING = (
    Question("acting", "bigfish", 50, 1_000_000, _NOISE[:1], 5, False, 2, beside=(_BIGFISH, _ENTROPY)),
    _ENTROPY,
    Question("acting", "dodgeball", 50, 1_000_000, _NOISE[:1], 3, False, beside=(_DODGEBALL,)),
)
"""Of the second amendment: the first two seeds on bigfish suggested the question, so they do not answer it."""
QUESTIONS = (
    _BIGFISH,
    _DODGEBALL,
    Question("few levels", "starpilot", 10, 300_000, _TWO, 3),
    Question("few levels", "starpilot", 50, 300_000, _TWO, 3),
    Question("noise", "bigfish", 50, 1_000_000, _NOISE, 2, beside=(_BIGFISH,)),
    Question("main, longer", "bigfish", 50, 2_000_000, _TWO, 3),
    *_ACTING,
    Question("control", "jumper", 50, 1_000_000, _TWO, 3, required=False),
    Question("the paper's levels", "bigfish", 200, 2_000_000, _TWO, 2, required=False),
    Question("more seeds", "dodgeball", 50, 1_000_000, _TWO, 5, required=False),
    Question("main, longer still", "bigfish", 50, 5_000_000, _TWO, 3, required=False),
    *(
        Question(name, "bigfish", 50, 1_000_000, methods, 2, required=False, beside=(_BIGFISH,))
        for name, methods in {
            "what CLOP is made of": ("clop(local=false)", "clop(channel_consistent=false)"),
            "where CLOP sits": ("clop(critic=same)", "clop(slot=conv1)", "clop(slot=conv2)"),
            "alpha": tuple(f"clop(alpha={alpha})" for alpha in (0.1, 0.3, 0.8, 1)),
            "other methods": ("dropout", "rad", "drac", "idaac"),
        }.items()
    ),
    Question("Impoola", "bigfish", 50, 1_000_000, ("clop",), 2, False, changes="network.impoola true"),
    Question("the authors' network", "bigfish", 50, 1_000_000, _TWO, 2, False, encoder="impala ×0.5"),
)
"""In the order of the plan."""


def agents(runs: Runs) -> Table:
    """Returns of every planned run of an agent, by question."""
    rows = []
    for question in QUESTIONS:
        found = question.find(runs.agents)
        if not shown(question, found):
            continue
        for method in question.methods:
            labels = (question.name, question.game, method)
            cell = found.get(method)
            values = {} if cell is None else {name: mean_of(cell, key) for name, key in _QUANTITIES.items()}
            seeds = f"{len(cell.runs) if cell else 0} of {question.num_seeds}"
            command = "" if cell and len(cell.runs) == question.num_seeds else COMMAND
            steps = steps_text(question.steps)
            rows.append(Row(labels, "ours", values, seeds, steps, question.scale, command))
    notes = (
        "Means over seeds ± standard deviation, in brackets Student's 95 % interval from three seeds on; 1024 episodes "
        "on each split, sampled actions, evaluation mode. The gap is train − test.",
    )
    return Table("evidence-agents", "Agents", ("question", "game", "method"), tuple(_QUANTITIES), tuple(rows), notes)


def shown(question: Question, found: Mapping[str, Cell]) -> bool:
    """Whether a question was required, or has runs that no required one has: more seeds add to the same runs."""
    if question.required:
        return True
    asked = [
        q
        for q in QUESTIONS
        if q.required and (q.game, q.steps, q.scale) == (question.game, question.steps, question.scale)
    ]
    return any(
        all(method not in q.methods or run.seed >= q.seeds for q in asked)
        for method, cell in found.items()
        for run in cell.runs
    )


def not_made(runs: Runs) -> Table:
    """Planned runs of agents that do not exist: what was to be run as far as compute goes."""
    rows = []
    for question in QUESTIONS:
        found = question.find(runs.agents)
        for method in question.methods:
            made = len(found[method].runs) if method in found else 0
            if made < question.num_seeds:
                labels = (question.name, question.game, method)
                seeds = f"{made} of {question.num_seeds}"
                rows.append(Row(labels, "ours", {}, seeds, steps_text(question.steps), question.scale))
    names = ("question", "game", "method")
    return Table("evidence-not-made", "Planned and not run", names, (), tuple(rows))


_QUANTITIES = {"train": "train", "test": "test", "gap": "gap", "test / train": "ratio"}
_OUTCOMES: Mapping[str, tuple[str, int]] = {
    "test": ("test", 1),
    "gap": ("gap", -1),
    "test / train": ("ratio", 1),
    "test at equal training return": ("test at equal training return", 1),
}
"""The plan's (a) to (d), and the sign that the paper's claim has."""


def decisions(runs: Runs) -> Table:
    """CLOP minus PPO in each of the plan's outcomes, with the interval that decides."""
    rows = []
    for question in QUESTIONS:
        found = question.find(runs.agents)
        if not shown(question, found):
            continue
        for pair, cell, base in _compared(question, found, runs):
            compared = None if cell is None or base is None else compare(cell, base, across_scales=True)
            labels = (question.name, question.game, pair, _verdict(compared))
            values = {} if compared is None else _differences(compared)
            seeds = "" if compared is None else f"{len(compared.cell.runs)} and {len(compared.base.runs)}"
            steps, command = steps_text(question.steps), "" if compared else COMMAND
            rows.append(Row(labels, "ours", values, seeds, steps, question.scale, command))
    notes = (
        "Differences of the means over seeds. In brackets the 95 % interval of the plan: a bootstrap that draws seeds "
        "within each method, 50 000 repetitions, seed 0, from three seeds on. With three to five seeds it is too "
        "narrow: see docs/statistics.md.",
        "The verdict is on the return on unseen levels, by the plan's interval: reproduced if it lies above 0, "
        "contradicted if below, else undecided. Beside it is Welch's interval, which holds what it promises.",
        "Test at equal training return compares the two at the highest training return that all runs of both have "
        "reached. That is the running return, with CLOP's swaps on, which understates CLOP; and the return on unseen "
        "levels comes from tests of 64 episodes. It is a rough check, not a decision.",
    )
    columns = ("test", "test, Welch", *[name for name in _OUTCOMES if name != "test"], "P(better)")
    names = ("question", "game", "compared", "verdict")
    return Table("evidence-decisions", "What decides: agents", names, columns, tuple(rows), notes)


def _compared(
    question: Question, found: Mapping[str, Cell], runs: Runs
) -> Iterator[tuple[str, Cell | None, Cell | None]]:
    """What is compared with what, as text, and their runs if there are any."""
    if not question.beside:
        yield "clop − ppo", found.get("clop"), found.get("ppo")
    for method in question.methods:
        for other in question.beside:
            bases = other.find(runs.agents)
            for base in other.methods:
                yield f"{question.called(method)} − {other.called(base)}", found.get(method), bases.get(base)


_ITERATIONS = 12  # about 50 000 steps
_METRICS = {"entropy": "entropy", "policy loss": "policy_loss", "share of clipped": "clip_fraction", "KL": "approx_kl"}


def learning(runs: Runs) -> Table:
    """How the policies were learning at the end: what the noise of the layer does to PPO's loss."""
    rows = []
    for question in QUESTIONS:
        found = question.find(runs.agents)
        for method in question.methods:
            if method in found and shown(question, found):
                cell, labels = found[method], (question.name, question.game, method)
                logged = [run.last_metrics(cell.env_steps, _ITERATIONS) for run in cell.runs]
                paths = tuple(run.path for run in cell.runs)
                values = {name: _over_runs(logged, metric, paths) for name, metric in _METRICS.items()}
                seeds, steps = str(len(cell.runs)), steps_text(question.steps)
                rows.append(Row(labels, "ours", values, seeds, steps, question.scale))
    notes = ("Means over the last twelve iterations and over seeds ± standard deviation over seeds.",)
    names = ("question", "game", "method")
    return Table("evidence-learning", "How they learn", names, tuple(_METRICS), tuple(rows), notes, 3)


def _over_runs(logged: Sequence[Sequence[Mapping[str, float]]], metric: str, paths: tuple[Path, ...]) -> Value:
    """A metric's mean over the iterations of each run, and over those runs that logged it."""
    values = [mean(row[metric] for row in rows) for rows in logged if rows and all(metric in row for row in rows)]
    if not values:
        return Value(None)
    return Value(mean(values), stdev(values) if len(values) > 1 else None, runs=paths)


def _differences(compared: Comparison) -> dict[str, Value]:
    paths = [run.path for run in (*compared.cell.runs, *compared.base.runs)]
    values = {}
    for name, (quantity, _) in _OUTCOMES.items():
        if quantity == "test at equal training return" and compared.at_equal_training is None:
            values[name] = Value(None)
        else:
            values[name] = Value.of(compared.bootstrap(quantity), paths)
    better = compared.improvement
    if better.low == better.high:  # each run of one beats each of the other, however they are drawn
        better = replace(better, low=None, high=None)
    welch = Value.of(compared.differences["test"], paths)
    return {**values, "test, Welch": welch, "P(better)": Value.of(better, paths)}


def _verdict(compared: Comparison | None) -> str:
    return "not run" if compared is None else verdict(compared.bootstrap("test"))


def verdict(difference: Estimate) -> str:
    """The plan's word for a difference that the claim has above 0."""
    if difference.low is None or difference.high is None:
        return "too few seeds"
    return "reproduced" if difference.low > 0 else "contradicted" if difference.high < 0 else "undecided"


# ---- classifiers --------------------------------------------------------------------------------------------------

_ALPHAS = (0.1, 0.3, 0.5, 0.7, 1.0)
_ABLATIONS = ("clop(local=False)", "clop(channel_consistent=False)", "clop(variant=raster)", "clop(variant=clamp)")
_OTHERS = ("dropout", "batch_norm")


@dataclass(frozen=True)
class Task:
    """Methods of classifiers at one scale, as planned."""

    name: str
    task: str
    network: str
    images: int
    epochs: int
    methods: tuple[str, ...]
    seeds: int

    @property
    def scale(self) -> str:
        return f"{self.network}, {self.images} images, {self.epochs} epochs"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """What is compared: every method with CLOP, or each alpha with none."""
        if self.name == "alpha":
            return [(method, "plain") for method in self.methods[1:]]
        return [("clop", method) for method in self.methods if method != "clop"]

    def find(self, runs: Runs) -> dict[str, Group]:
        """The runs of each method."""
        found = {}
        for group in groups(runs.classifiers, self.task):
            summary = group.first.summary
            here = (summary.network, summary.train_images, group.first.config["epochs"])
            if here == (self.network, self.images, self.epochs):
                found[group.label] = group
        return found


ALPHA_RUNS = tuple(f"clop(alpha={alpha})" for alpha in _ALPHAS)
TASKS = (
    Task("Table 1 completed", "mnist-usps", "small_cnn", 60_000, 30, ("plain", *_OTHERS, "clop"), 1),
    Task("alpha", "mnist-usps", "small_cnn", 10_000, 10, ("plain", *ALPHA_RUNS, "clop"), 5),
    Task("what CLOP is made of", "mnist-usps", "small_cnn", 10_000, 10, ("clop", *_ABLATIONS), 5),
    Task("scarce data", "mnist-usps", "small_cnn", 500, 200, ("plain", *_OTHERS, "clop"), 5),
    Task("scarce data", "mnist-usps", "small_cnn", 2_000, 50, ("plain", *_OTHERS, "clop"), 5),
    Task("many data", "mnist-usps", "small_cnn", 10_000, 10, ("plain", *_OTHERS, "clop"), 5),
    Task("Imagenette's subset", "imagenette", "vgg9", 2_000, 30, ("plain", *_OTHERS, "clop"), 1),
)
"""In the order of the plan."""


def classifiers(runs: Runs) -> Table:
    """Accuracy of every planned run of a classifier, by question."""
    rows = []
    for task in TASKS:
        found = task.find(runs)
        for method in task.methods:
            group = found.get(method)
            values = {} if group is None else {"train, %": group.value("running"), "test, %": group.value("test")}
            count = 0 if group is None else len(group.runs)
            command = "" if count >= task.seeds else COMMAND
            seeds = f"{count} of {task.seeds}"
            rows.append(Row((task.name, task.task, method), "ours", values, seeds, "", task.scale, command))
    notes = (
        "Means over seeds ± standard deviation, in brackets Student's 95 % interval from three seeds on. Train is the "
        "accuracy over the last epoch in training mode. CLOP has alpha 0.9 on MNIST, the paper's.",
    )
    columns, names = ("train, %", "test, %"), ("question", "task", "method")
    extra = ("seeds", "scale")
    return Table("evidence-classifiers", "Classifiers", names, columns, tuple(rows), notes, 1, extra)


def classifier_decisions(runs: Runs) -> Table:
    """Differences of accuracy with the plan's intervals and verdicts, and of the gain with few and with many images."""
    rows = []
    for task in TASKS:
        found = task.find(runs)
        for method, base in task.pairs:
            both = [found[name] for name in (method, base) if name in found]
            rows.append(_decision((task.name, task.task, f"{method} − {base}"), both, (1, -1), task.scale))
    few, many = (next(task for task in TASKS if task.images == images and "data" in task.name) for images in _EXTREMES)
    four = [found[name] for found in (few.find(runs), many.find(runs)) for name in ("clop", "plain") if name in found]
    text = f"gain with {few.images} images − gain with {many.images}"
    rows.append(_decision(("scarce data", few.task, text), four, (1, -1, -1, 1), few.scale))
    notes = (
        "Differences of test accuracy in points, of means over seeds. In brackets the 95 % interval of the plan: a "
        "bootstrap that draws seeds within each method, 50 000 repetitions, seed 0, from three seeds on. The verdict "
        "is reproduced if it lies above 0, contradicted if below, else undecided.",
    )
    names, extra = ("question", "task", "compared", "verdict"), ("seeds", "scale")
    title = "What decides: classifiers"
    return Table("evidence-classifier-decisions", title, names, ("test, points",), tuple(rows), notes, 1, extra)


_EXTREMES = (500, 10_000)


def _decision(labels: tuple[str, ...], found: Sequence[Group], signs: Sequence[int], scale: str) -> Row:
    if len(found) < len(signs):
        return Row((*labels, "not run"), "ours", {}, "", "", scale, COMMAND)
    samples = [np.array(group.values("test"))[:, None] for group in found]
    difference = stats.estimate_rows(
        lambda drawn: sum(sign * one[..., 0].mean(-1) for sign, one in zip(signs, drawn, strict=True)),
        samples,
        stats.generator(0, "difference", *labels),
    )
    paths = [run.path for group in found for run in group.runs]
    seeds = " and ".join(str(len(group.runs)) for group in found)
    return Row((*labels, verdict(difference)), "ours", {"test, points": Value.of(difference, paths)}, seeds, "", scale)


EVIDENCE_TABLES: dict[str, Callable[[Runs], Table]] = {
    "evidence-agents": agents,
    "evidence-decisions": decisions,
    "evidence-learning": learning,
    "evidence-not-made": not_made,
    "evidence-classifiers": classifiers,
    "evidence-classifier-decisions": classifier_decisions,
}
"""Of this repository's plan, so that a report has them only when they are asked for."""


def compared_questions(runs: Runs) -> Iterator[tuple[Question, dict[str, Cell]]]:
    """The questions that compare CLOP with PPO and have runs of both, PPO's first."""
    for question in QUESTIONS:
        found = question.find(runs.agents)
        if {*_TWO} <= set(found) and shown(question, found):
            yield question, {method: found[method] for method in _TWO}


def seeds_of(found: Mapping[str, Cell]) -> str:
    """How many seeds each method has, once if they are as many."""
    return " and ".join(dict.fromkeys(str(len(cell.runs)) for cell in found.values()))


def in_short(runs: Runs) -> str:
    """CLOP beside PPO as a small table for the README: returns on training levels and on unseen ones."""
    rows = []
    for question, found in compared_questions(runs):
        difference = _differences(compare(found["clop"], found["ppo"]))["test"]
        returns = [
            " / ".join(f"{mean(values):.2f}" for values in map(cell.values, ("train", "test")))
            for cell in found.values()
        ]
        rows.append([question.where, *returns, difference.text(2), seeds_of(found)])
    header = ["small network, easy", "PPO: training / unseen", "CLOP: training / unseen", "CLOP − PPO, unseen", "seeds"]
    return markdown(header, rows) + "\n"


def block_text(table: Table) -> str:
    """A table for ``docs/evidence.md``: all rows are ours, and the command for what was not run is said once there."""

    def ours(cells: Sequence[str]) -> list[str]:
        return [*cells[: len(table.label_names)], *cells[len(table.label_names) + 1 : -1]]

    notes = "".join(f"\n- {note}" for note in table.notes)
    return f"{markdown(ours(table.header), [ours(table.cells(row)) for row in table.rows])}\n{notes}\n"
