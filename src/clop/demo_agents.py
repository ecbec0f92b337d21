"""The second half of ``clop demo``: PPO with and without CLOP on one game, side by side, three minutes each."""

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from clop.errors import UsageError
from clop.experiments.agents import find_run, run
from clop.experiments.films import film
from clop.experiments.run_folder import RunFolder
from clop.experiments.summaries import AgentSummary
from clop.files import write_atomic, write_json
from clop.progress import Progress
from clop.report.agents import plot_runs
from clop.report.tables import markdown
from clop.rl.build import split_levels
from clop.rl.config import TrainConfig
from clop.rl.watch import WatchConfig

GAME = "starpilot"
AGENTS = {"ppo": "PPO", "clop": "PPO with CLOP"}
"""Methods, and what they are called."""
_POLL = 0.5  # seconds between looks at the runs


def run_both(out: Path, steps: int, seed: int) -> str:
    """Train both agents, evaluate them on seen and unseen levels, draw their curves and film them; returns a table.

    What is there already is not made again, so an interrupted demo goes on.
    """
    configs = {name: _config(name, steps, seed) for name in AGENTS}
    folders = {name: out / f"{GAME}-{name}" for name in AGENTS}
    for name, folder in folders.items():
        find_run(folder, configs[name])  # refuses a folder of other settings before anything is trained
    _train_together(configs, folders)
    summaries = {name: run(configs[name], folder) for name, folder in folders.items()}  # both are complete
    plot_runs(list(folders.values()), out / f"{GAME}.png")
    shown = {AGENTS[name]: folder for name, folder in folders.items()}
    film(shown, split_levels(configs["ppo"], "test"), out / GAME, WatchConfig(episodes=2, seed=seed, saliency="policy"))
    text = table(summaries)
    write_atomic(out / f"{GAME}.md", lambda draft: draft.write_text(text))
    return text


def table(summaries: Mapping[str, AgentSummary]) -> str:
    """What both reached, and what can be said of it."""
    rows = [
        [
            AGENTS[name],
            *(f"{split.mean:.2f} ± {split.standard_error or 0:.2f}" for split in (summary.train, summary.test)),
            f"{summary.gap:.2f}",
            f"{summary.seconds:.0f}",
        ]
        for name, summary in summaries.items()
    ]
    ppo, clop = summaries["ppo"], summaries["clop"]
    better = AGENTS["clop" if clop.test.mean > ppo.test.mean else "ppo"]
    error = ((ppo.test.standard_error or 0) ** 2 + (clop.test.standard_error or 0) ** 2) ** 0.5
    apart = abs(clop.test.mean - ppo.test.mean)
    sure = "which is more than chance over episodes explains" if apart > 2 * error else "which may be chance"
    steps = f"{ppo.env_steps:,}".replace(",", " ")
    return (
        f"Return on {GAME}: {steps} steps (the paper: 25 million), 50 training levels, one seed "
        f"({ppo.seed}), {ppo.test.episodes} episodes each, ± standard error over episodes.\n\n"
        f"{markdown(['agent', 'train', 'test', 'gap', 'seconds'], rows)}\n\n"
        f"On unseen levels {better} is ahead by {apart:.2f}, {sure}; one seed ranks no method.\n"
    )


def _config(method: str, steps: int, seed: int) -> TrainConfig:
    tests = max(1, steps // 5)
    return TrainConfig.preset("quick", GAME, method, total_timesteps=steps, test_every=tests, seed=seed)


def _train_together(configs: Mapping[str, TrainConfig], folders: Mapping[str, Path]) -> None:
    """Each run in a process of its own, on one core; one line of progress for both."""
    waiting = {name: folder for name, folder in folders.items() if not (folder / "summary.json").exists()}
    if not waiting:
        return
    processes = {}
    for name, folder in waiting.items():
        draft = folder.with_suffix(".json")
        write_json(draft, configs[name].asdict())
        words = [sys.executable, "-m", "clop.demo_agents", str(draft), str(folder)]
        with folder.with_suffix(".log").open("ab") as log:
            # In a session of its own: Ctrl-C reaches this process alone, which asks the runs to stop, and to save.
            processes[name] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        _follow(configs, folders, processes)
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait()
    for name, process in processes.items():
        if process.returncode:
            last = folders[name].with_suffix(".log").read_text().strip().rpartition("\n")[2]
            raise UsageError(f"training {AGENTS[name]} has failed: {last}; the same demo goes on from there")


def _follow(
    configs: Mapping[str, TrainConfig], folders: Mapping[str, Path], processes: Mapping[str, "subprocess.Popen[bytes]"]
) -> None:
    total = sum(config.total_timesteps for config in configs.values())
    title = f"{GAME}, {' and '.join(AGENTS.values())}"
    start = sum(int(_last(folder)["env_steps"]) for folder in folders.values())
    with Progress(title, total, "steps", start=start) as progress:
        while any(process.poll() is None for process in processes.values()):
            time.sleep(_POLL)
            rows = {name: _last(folder) for name, folder in folders.items()}
            done = min(total, sum(int(row["env_steps"]) for row in rows.values()))
            returns = {name: float(row.get("episodic_return", 0.0)) for name, row in rows.items()}
            progress.step(done - progress.done, **returns)


def _last(folder: Path) -> dict[str, float]:
    """The last row of a run's metrics."""
    rows = RunFolder(folder).metrics() if folder.exists() else []
    return rows[-1] if rows else {"env_steps": 0}


def _main(config: Path, folder: Path) -> None:
    """One run, as a process of its own."""
    import json

    import torch

    torch.set_num_threads(1)
    run(TrainConfig.fromdict(json.loads(config.read_text())), folder, "cpu")


if __name__ == "__main__":
    try:
        _main(Path(sys.argv[1]), Path(sys.argv[2]))
    except UsageError as error:
        sys.exit(f"clop: {error}")
