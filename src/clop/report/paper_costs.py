"""The paper's tables of costs, Tables 6 and 7, from runs and from records of ``clop bench augment``."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from clop.report.commands import sweep_command
from clop.report.outcomes import Cell, cells
from clop.report.paper_agents import steps_text
from clop.report.published import augmentation_costs, read_table
from clop.report.runs import Runs
from clop.report.tables import Row, Table, Value

_STEPS = {"easy": 25_000_000, "hard": 200_000_000}
_LEVELS = {"easy": 200, "hard": 500}


def training_time(runs: Runs) -> Table:
    """Table 6: minutes of training with and without CLOP."""
    printed = {
        (row["game"], row["difficulty"], row["method"]): float(row["minutes"]) for row in read_table("overhead_rl")
    }
    found: dict[tuple[str, str, str, int], dict[str, Cell]] = {}
    for cell in cells(runs.agents):
        if cell.variant in ("ppo", "clop"):
            where = (cell.game, cell.runs[0].mode, cell.scale_key, cell.env_steps)
            found.setdefault(where, {})[cell.variant] = cell
    rows = []
    paper_rows = list(dict.fromkeys((game, mode) for game, mode, _ in printed))
    for game, mode in dict.fromkeys([*paper_rows, *((game, mode) for game, mode, *_ in found)]):
        if (game, mode) in paper_rows:
            ppo, clop = (printed[game, mode, method] for method in ("ppo", "clop"))
            values = {"ppo, min": Value(ppo), "clop, min": Value(clop), "clop / ppo": Value(clop / ppo)}
            rows.append(
                Row((game, mode), "paper", values, "", steps_text(_STEPS[mode]), f"{_scale(mode)}; one RTX 3080")
            )
        whole = False
        for (other, other_mode, _, steps), both in found.items():
            if (other, other_mode) == (game, mode) and len(both) == 2:
                rows.append(_time_row(game, mode, steps, both))
                whole = whole or steps >= _STEPS[mode]
        if (game, mode) in paper_rows and not whole:
            command = sweep_command("paper-cost", games=[game], methods=["ppo", "clop"])
            rows.append(Row((game, mode), "ours", {}, "0", steps_text(_STEPS[mode]), _scale(mode), command))
    return Table(
        "table6",
        "Table 6. Time of training with and without CLOP",
        ("game", "mode"),
        ("ppo, min", "clop, min", "clop / ppo"),
        tuple(rows),
        (
            "Of training alone, without tests and evaluations. Runs shared their machine with other work, so that "
            "the ratio "
            "says little; clop bench methods times methods in turns.",
        ),
    )


def _scale(mode: str) -> str:
    return f"authors-{mode}: impala, {mode}, {_LEVELS[mode]} levels"


def _time_row(game: str, mode: str, steps: int, both: Mapping[str, Cell]) -> Row:
    minutes = {method: [stage.seconds / 60 for stage in cell.stages] for method, cell in both.items()}
    paths = {method: tuple(run.path for run in cell.runs) for method, cell in both.items()}
    values = {
        f"{method}, min": Value(mean(each), stdev(each) if len(each) > 1 else None, n=len(each), runs=paths[method])
        for method, each in minutes.items()
    }
    values["clop / ppo"] = Value(mean(minutes["clop"]) / mean(minutes["ppo"]), runs=paths["clop"] + paths["ppo"])
    counts = sorted({len(each) for each in minutes.values()})
    machines = {
        str(run.about.get("machine", {}).get("gpu") or run.about.get("machine", {}).get("processor"))
        for cell in both.values()
        for run in cell.runs
    }
    scale = f"{both['ppo'].scale}; {', '.join(sorted(machines))}"
    return Row((game, mode), "ours", values, " to ".join(map(str, counts)), steps_text(steps), scale)


def augmentation_time(runs: Runs) -> Table:
    """Table 7: one forward pass over a data set with each augmentation, and with CLOP."""
    records = {path: record for path, record in runs.benchmarks.items() if record["kind"] == "bench augment"}
    rows = []
    for dataset in ("mnist", "imagenette"):
        published = augmentation_costs(dataset)
        plain = published["plain"]
        for method, seconds in published.items():
            values = {"seconds": Value(seconds), "ratio to none": Value(seconds / plain)}
            rows.append(Row((dataset, method), "paper", values, scale="one RTX 3080"))
            ours = [_cost_row(dataset, method, path, row) for path, row in _rows(records, dataset, method)]
            command = "clop bench augment --json"
            rows += ours or [Row((dataset, method), "ours", {}, command=command)]
    return Table(
        "table7",
        "Table 7. Time of one forward pass over a data set",
        ("dataset", "method"),
        ("seconds", "ratio to none"),
        tuple(rows),
        (
            "On Imagenette the paper's crop and cutout cost as much as CLOP; only rotation and random convolutions "
            "cost more.",
        ),
        extra=("scale",),
    )


def _rows(records: Mapping[Path, Mapping[str, Any]], dataset: str, method: str) -> list[tuple[Path, Mapping[str, Any]]]:
    return [
        (path, row)
        for path, record in records.items()
        for row in record["metrics"]["rows"]
        if row["dataset"] == dataset and row["method"] == method
    ]


def _cost_row(dataset: str, method: str, path: Path, row: Mapping[str, Any]) -> Row:
    values = {"seconds": Value(row["seconds"], runs=(path,)), "ratio to none": Value(row["ratio"], runs=(path,))}
    return Row((dataset, method), "ours", values, scale=row["scale"])
