"""Figures of agents, from their run folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder
from clop.report.figures import Curve, learning_curves, save


def plot_runs(paths: Sequence[Path], out: Path, anchors: Mapping[str, tuple[int, float]] | None = None) -> None:
    """Learning curves of runs on one game, in one figure; its title says the scale."""
    runs = [RunFolder.open(path, "agent") for path in paths]
    games = {run.config["game"] for run in runs}
    if len(games) > 1:
        raise UsageError(f"one figure shows one game, got runs on {', '.join(sorted(games))}")
    save(learning_curves(_title(runs), [_curve(run, runs) for run in runs], anchors), out)


def _curve(run: RunFolder, runs: Sequence[RunFolder]) -> Curve:
    rows, summary = run.metrics(), run.summary or {}
    if not rows:
        raise UsageError(f"{run.path} has no metrics yet")
    return Curve(
        _label(run, runs),
        [(row["env_steps"], row["episodic_return"]) for row in rows if "episodic_return" in row],
        [(row["env_steps"], row["test_return"]) for row in rows if "test_return" in row],
        {
            levels: (summary[levels]["mean"], summary[levels]["standard_error"] or 0.0)
            for levels in ("train", "test")
            if levels in summary
        },
        [f"{name} {text}" for name, text in summary.get("notes", {}).items()],
    )


def _label(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    """The method, with the seed if another run has the same, or the folder if that does not tell them apart either."""
    for name in (_name, _name_and_seed):
        if [name(other.config) for other in runs].count(name(run.config)) == 1:
            return name(run.config)
    return run.path.name


def _name_and_seed(config: Mapping[str, Any]) -> str:
    return f"{_name(config)}, seed {config['seed']}"


def _name(config: Mapping[str, Any]) -> str:
    return "+".join(config["methods"]) or "ppo"


def _title(runs: Sequence[RunFolder]) -> str:
    configs = [run.config for run in runs]

    def all_of(name: str) -> str:
        values = {f"{config[name]:,}".replace(",", " ") if config[name] else "all" for config in configs}
        return " and ".join(sorted(values))

    presets = " and ".join(sorted({config["preset_name"] for config in configs}))
    seeds = sorted({config["seed"] for config in configs})
    return (
        f"{configs[0]['game']}, preset {presets}: {all_of('total_timesteps')} steps, "
        f"{all_of('num_levels')} training levels, "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    )
