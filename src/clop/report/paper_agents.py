"""Tables of agents with a row for each game: ours beside the published numbers, and what was not run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev

from clop.report.commands import sweep_command, train_command
from clop.report.outcomes import Cell, cells, gap_percent_of_train, percent_change
from clop.report.published import read_table
from clop.report.runs import AgentRun, Runs
from clop.report.tables import Row, Table, Value
from clop.rl.games import GAMES, normalised_return

Cells = Mapping[str, Cell]
"""By method: those on one game, at one scale and number of steps."""
METHODS = ("ppo", "mixreg", "rand_fm", "ucb_drac", "ibac_sni", "rad", "idaac", "clop")
"""In the order of the paper's columns."""


@dataclass(frozen=True)
class Column:
    """A column: the methods it needs, and its number from their runs."""

    name: str
    methods: tuple[str, ...]
    value: Callable[[Cells], Value]


@dataclass(frozen=True)
class AgentTable:
    """A table with a row for each game."""

    name: str
    title: str
    columns: tuple[Column, ...]
    published: Callable[[], Mapping[tuple[str, str], Value]]
    """By game and column."""
    mode: str = "easy"
    sweep: str = "paper-easy"
    notes: tuple[str, ...] = ()
    digits: int = 2
    games: tuple[str, ...] = field(default=tuple(GAMES))

    @property
    def steps(self) -> int:
        """Of the paper's runs."""
        return 25_000_000 if self.mode == "easy" else 200_000_000

    @property
    def paper_scale(self) -> str:
        levels = 200 if self.mode == "easy" else 500
        return f"authors-{self.mode}: impala, {self.mode}, {levels} levels"

    def build(self, runs: Runs) -> Table:
        """The table with the published numbers and ours."""
        published = self.published()
        methods = {method for column in self.columns for method in column.methods}
        ours: dict[str, list[Row]] = {}
        whole = set()
        chosen = [run for run in runs.agents if run.variant in methods and run.mode == self.mode]
        for (game, _, steps), found in _groups(chosen).items():
            row = self._row(game, found)
            ours.setdefault(game, []).append(row)
            if steps >= self.steps and len(row.values) == len(self.columns):
                whole.add(game)
        rows = []
        for game in dict.fromkeys([*self.games, *ours]):
            values = {c.name: published[game, c.name] for c in self.columns if (game, c.name) in published}
            if values:
                seeds = "5" if self.mode == "easy" else "3"
                rows.append(Row((game,), "paper", values, seeds, steps_text(self.steps), self.paper_scale))
            rows += ours.get(game, [])
            if game not in whole and game in self.games:
                rows.append(self._not_run(game))
        return Table(
            self.name, self.title, ("game",), tuple(c.name for c in self.columns), tuple(rows), self.notes, self.digits
        )

    def _row(self, game: str, found: Cells) -> Row:
        one = next(iter(found.values()))
        values = {c.name: c.value(found) for c in self.columns if all(method in found for method in c.methods)}
        missing = [m for m in _needed(self.columns) if m not in found]
        counts = sorted({len(cell.runs) for cell in found.values()})
        seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        run_seeds = sorted({run.seed for cell in found.values() for run in cell.runs})
        command = train_command(one.runs[0].config, missing, run_seeds, one.env_steps) if missing else ""
        return Row((game,), "ours", values, seeds, steps_text(one.env_steps), one.scale, command)

    def _not_run(self, game: str) -> Row:
        """At the paper's scale."""
        return Row(
            (game,),
            "ours",
            {},
            "0",
            steps_text(self.steps),
            self.paper_scale,
            sweep_command(self.sweep, games=[game], methods=_needed(self.columns)),
        )


def _needed(columns: Sequence[Column]) -> list[str]:
    return list(dict.fromkeys(method for column in columns for method in column.methods))


def _groups(runs: Sequence[AgentRun]) -> dict[tuple[str, str, int], dict[str, Cell]]:
    """By game, scale and steps, the cells by method."""
    found: dict[tuple[str, str, int], dict[str, Cell]] = {}
    for cell in cells(runs):
        found.setdefault((cell.game, cell.scale_key, cell.env_steps), {})[cell.variant] = cell
    return found


def order(variant: str) -> tuple[int, str]:
    """The paper's methods first, in its order."""
    return (METHODS.index(variant) if variant in METHODS else len(METHODS), variant)


def steps_text(steps: int) -> str:
    """``25 M``, ``1.016 M`` or ``100 352``."""
    return f"{round(steps / 1e6, 3):g} M" if steps >= 1_000_000 else f"{steps:,}".replace(",", " ")


# ---- numbers of cells -------------------------------------------------------------------------------------------


def mean_of(cell: Cell, quantity: str) -> Value:
    """Mean and standard deviation over seeds, and the interval of the mean."""
    values = cell.values(quantity)
    paths = [run.path for run in cell.runs]
    return Value.of(cell.estimate(quantity), paths, stdev(values) if len(values) > 1 else None)


def _paths(*several: Cell) -> list[Path]:
    return [run.path for cell in several for run in cell.runs]


def each_method(quantity: str, methods: Sequence[str] = METHODS) -> tuple[Column, ...]:
    def column(method: str) -> Column:
        return Column(method, (method,), lambda found: mean_of(found[method], quantity))

    return tuple(map(column, methods))


def versus_ppo(quantity: str) -> tuple[Column, ...]:
    """PPO's number, and the others' as a change from it in percent."""

    def column(method: str) -> Column:
        if method == "ppo":
            return Column("ppo", ("ppo",), lambda found: mean_of(found["ppo"], quantity))
        return Column(
            f"{method}, %",
            (method, "ppo"),
            lambda found: Value.of(
                percent_change(found[method], found["ppo"], quantity), _paths(found[method], found["ppo"])
            ),
        )

    return tuple(map(column, METHODS))


def gap_columns(relative: bool) -> tuple[Column, ...]:
    def column(method: str, quantity: str) -> Column:
        if method == "clop" and relative:
            return Column(
                f"clop: {quantity}, %",
                ("clop", "ppo"),
                lambda found: Value.of(
                    percent_change(found["clop"], found["ppo"], quantity), _paths(found["clop"], found["ppo"])
                ),
            )
        return Column(f"{method}: {quantity}", (method,), lambda found: mean_of(found[method], quantity))

    return tuple(column(m, q) for m in ("ppo", "clop") for q in ("train", "test", "gap"))


def gap_share(method: str) -> Column:
    return Column(method, (method,), lambda found: Value.of(gap_percent_of_train(found[method]), _paths(found[method])))


def normalised(cell: Cell, split: str) -> Value:
    """100 × the normalised return."""
    low, high = (float(normalised_return(x, cell.game, cell.runs[0].mode)) for x in (0.0, 1.0))
    raw = mean_of(cell, split)

    def scaled(x: float | None, shift: float = low) -> float | None:
        return None if x is None else 100 * (shift + x * (high - low))

    return Value(scaled(raw.value), scaled(raw.std, 0.0), scaled(raw.low), scaled(raw.high), raw.n, raw.runs)


def normalised_columns() -> tuple[Column, ...]:
    def column(split: str, method: str) -> Column:
        return Column(f"{split}: {method}", (method,), lambda found: normalised(found[method], split))

    def difference(split: str) -> Column:
        def value(found: Cells) -> Value:
            a, b = (normalised(found[method], split).value for method in ("clop", "idaac"))
            assert a is not None
            assert b is not None
            return Value(a - b, runs=tuple(_paths(found["clop"], found["idaac"])))

        return Column(f"{split}: clop − idaac", ("clop", "idaac"), value)

    return tuple(c for s in ("train", "test") for c in (column(s, "idaac"), column(s, "clop"), difference(s)))


# ---- published numbers ------------------------------------------------------------------------------------------


def _number(text: str) -> float | None:
    return float(text) if text else None


def published_means(table: str) -> Callable[[], dict[tuple[str, str], Value]]:
    return lambda: {
        (row["game"], row["method"].replace("idaac_clop", "idaac+clop")): Value(float(row["mean"]), _number(row["std"]))
        for row in read_table(table)
    }


def published_changes(table: str) -> Callable[[], dict[tuple[str, str], Value]]:
    return lambda: {
        (row["game"], "ppo" if row["method"] == "ppo" else f"{row['method']}, %"): Value(
            float(row["mean"]), _number(row["std"])
        )
        for row in read_table(table)
    }


def published_gaps(table: str, relative: bool) -> Callable[[], dict[tuple[str, str], Value]]:
    return lambda: {
        (row["game"], f"{row['method']}: {row['quantity']}{', %' if relative and row['method'] == 'clop' else ''}"): (
            Value(float(row["mean"]), _number(row["std"]))
        )
        for row in read_table(table)
    }


def published_shares() -> dict[tuple[str, str], Value]:
    rows = read_table("generalization_gap_percent_of_train")
    return {(row["game"], row["method"]): Value(float(row["gap_percent"])) for row in rows}


def published_scores() -> dict[tuple[str, str], Value]:
    return {
        (row["game"], f"{row['split']}: {row['method'].replace('clop_minus_idaac', 'clop − idaac')}"): Value(
            float(row["score"])
        )
        for row in read_table("normalized_score")
    }
