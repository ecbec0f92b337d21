"""Films of trained agents for the page: runs on one game side by side on the same unseen levels."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from clop.experiments.agents import KIND, load_agent, read_config
from clop.experiments.run_folder import RunFolder
from clop.experiments.saliency import agent_label
from clop.files import write_json
from clop.progress import Progress
from clop.rl.agent import Agent
from clop.rl.build import split_levels
from clop.rl.config import TrainConfig
from clop.rl.envs.levels import LevelSet
from clop.rl.watch import WatchConfig, watch, watch_together

SUFFIXES = (".webm", ".mp4")
"""VP9 and H.264, since not every browser plays the latter."""
_MOST = 4  # side by side


def film_runs(paths: Iterable[Path], out: Path, config: WatchConfig | None = None) -> list[Path]:
    """Film agents that have checkpoints, by game and levels, one of each method: that with the lowest seed.

    What is filmed already is not filmed again.
    """
    config = config or WatchConfig(episodes=1, saliency="policy")
    chosen: dict[LevelSet, dict[str, tuple[Path, TrainConfig]]] = {}
    for path, trained in sorted(_with_weights(paths), key=lambda each: each[1].seed):
        methods = chosen.setdefault(split_levels(trained, config.split), {})
        if len(methods) < _MOST:
            methods.setdefault(agent_label(trained), (path, trained))
    films = []
    for levels, methods in chosen.items():
        name = f"{levels.game.rpartition(':')[2]}-{levels.num_levels}-levels"
        runs = {label: methods[label][0] for label in sorted(methods, key=lambda label: (label != "ppo", label))}
        films += film(runs, levels, out / name, config)
    return films


def film(runs: Mapping[str, Path], levels: LevelSet, stem: Path, config: WatchConfig) -> list[Path]:
    """Runs side by side on the same levels, as WebM and as mp4, and what they show in a JSON file beside them."""
    missing = [path for suffix in SUFFIXES if not (path := stem.with_suffix(suffix)).exists()]
    if not missing:
        return []
    agents: dict[str, Agent] = {label: load_agent(path) for label, path in runs.items()}
    agents = {label: agent for label, agent in agents.items() if not agent.uses_batch_statistics}
    if not agents:
        return []
    backend = read_config(next(iter(runs.values()))).backend
    for path in missing:
        with Progress(f"filming {path.name}", config.episodes * len(agents), "episodes") as progress:
            if len(agents) == 1:
                ((label, agent),) = agents.items()
                played = {label: watch(agent, levels, path, config, backend=backend, progress=progress)}
            else:
                played = watch_together(agents, levels, path, config, backend=backend, progress=progress)
    returns = "; ".join(f"{label}: {_returns(rows.returns.tolist())}" for label, rows in played.items())
    known = "all" if levels.num_levels == 0 else "seen" if config.split == "train" else "unseen"
    caption = f"{levels.title}, {known} levels. Returns: {returns}."
    write_json(stem.with_suffix(".json"), {"caption": caption, "runs": {k: str(path) for k, path in runs.items()}})
    return missing


def _returns(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _with_weights(paths: Iterable[Path]) -> Iterable[tuple[Path, TrainConfig]]:
    for path in paths:
        for config in [path / "config.json"] if (path / "config.json").exists() else sorted(path.rglob("config.json")):
            folder = RunFolder(config.parent)
            if (folder.path / "checkpoints" / "last.pt").exists() and folder.about().get("kind") == KIND:
                yield folder.path, read_config(folder.path)
