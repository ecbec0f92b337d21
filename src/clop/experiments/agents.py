"""Train an agent in a run folder: checkpoints, exact resume, metrics, progress, and a summary at the end."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clop import machine
from clop.distributed import Workers
from clop.errors import UsageError
from clop.experiments.loop import run_to_end
from clop.experiments.run_folder import RunFolder
from clop.files import write_atomic, write_json
from clop.progress import Progress
from clop.rl import methods
from clop.rl.envs.levels import TrainLevels
from clop.rl.evaluate import Agent, EvalConfig, Evaluation, evaluate
from clop.rl.methods.base import Context
from clop.rl.ppo import build_network
from clop.rl.train import TrainConfig, build_learner, build_plan, edited_plan

KIND = "agent"
_OWN = ("method", "games", "rewards", "generators")  # parts of the state that every process has for itself
_RECENT = 100  # episodes in the running return


class AgentWork:
    """An agent in training, as the loop drives it: in every process of the run, each with its part of the games."""

    unit = "steps"

    def __init__(self, config: TrainConfig, device: torch.device | str = "cpu", workers: Workers | None = None) -> None:
        self.config = config
        self.learner = build_learner(config, device, workers)
        self.seconds = 0.0
        """Spent in training so far, tests not included."""
        self._rate = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._test: float | None = None
        self.memory_gb = 0.0
        """The most that all processes together have needed; known in the first of them."""

    @property
    def title(self) -> str:
        return f"{self.config.game}, {self.config.method}, {self.config.preset}"

    @property
    def total(self) -> int:
        return self.config.steps

    @property
    def done(self) -> int:
        return self.learner.env_steps

    @property
    def finished(self) -> bool:
        return self.learner.iteration >= self.config.iterations

    def advance(self) -> dict[str, Any]:
        learner, before = self.learner, self.done
        start = time.monotonic()
        metrics, finished = learner.iterate()
        seconds = time.monotonic() - start
        self.seconds += seconds
        self._rate = (self.done - before) / seconds
        returns = [value for episodes in finished for value in episodes.returns.tolist()]
        self._recent.extend(value for process in learner.workers.gather(returns) for value in process)
        row: dict[str, Any] = {"iteration": learner.iteration, "env_steps": self.done}
        if self._recent:
            row["episodic_return"] = float(np.mean(self._recent))
        every = self.config.test_every
        if every and self.done // every > before // every and learner.workers.is_first:
            row["test_return"] = self._test = self._tested()
        return row | metrics

    def _tested(self) -> float:
        """The return on unseen levels; training draws on afterwards as if nothing had been."""
        evaluation = EvalConfig(episodes=self.config.test_episodes)
        return evaluate(
            self.agent(), train_levels(self.config, evaluation.levels), evaluation, backend=self.config.backend
        ).mean

    def agent(self) -> Agent:
        return Agent(self.learner.model, self.learner.method, self.learner.context())

    def shown(self) -> dict[str, object]:
        running = float(np.mean(self._recent)) if self._recent else "unknown"
        return {"running_return": running, **({} if self._test is None else {"test_return": self._test})}

    def events(self, row: Mapping[str, Any]) -> dict[str, float]:
        named = {_EVENT_NAMES.get(name, f"losses/{name}"): value for name, value in row.items()}
        return named | {"charts/SPS": self._rate}

    def state(self) -> dict[str, Any]:
        """The state of the whole run, in the first process; to be called in all of them at once."""
        state, workers = self.learner.state(), self.learner.workers
        own = workers.gather({name: state.pop(name) for name in _OWN})
        peaks = workers.gather(machine.peak_memory_gb())
        if not workers.is_first:
            return {}
        self.memory_gb = max(self.memory_gb, round(sum(peak or 0.0 for peak in peaks), 3))
        kept = {"recent": list(self._recent), "test_return": self._test}
        return state | {"processes": own} | kept | {"seconds": self.seconds, "memory_gb": self.memory_gb}

    def load(self, state: Mapping[str, Any]) -> None:
        """Bring this process to its part of the run's state."""
        workers, games = self.learner.workers, self.learner.games
        if workers.is_first and not games.can_save:
            print(  # noqa: T201
                f"clop: {games.backend} cannot save running games: episodes start anew, and the run goes on well but "
                "not bit for bit, for which it would need procgen-mirror",
                file=sys.stderr,
            )
        if len(state["processes"]) != workers.size:
            raise UsageError(
                f"the run has {len(state['processes'])} processes and goes on with as many, got {workers.size}"
            )
        self.learner.load({**state, **state["processes"][workers.rank]})
        self._recent.extend(state["recent"])
        self._test = state.get("test_return")
        self.seconds, self.memory_gb = state["seconds"], state.get("memory_gb", 0.0)


def train_agent(
    config: TrainConfig,
    folder: RunFolder | None,
    device: torch.device | str = "cpu",
    checkpoint_seconds: float = 600,
    workers: Workers | None = None,
) -> AgentWork:
    """Train to the end, from the start or from the folder's last checkpoint; see :func:`run_to_end`."""
    work = AgentWork(config, device, workers)
    run_to_end(work, folder, checkpoint_seconds, workers)
    return work


def train_levels(config: TrainConfig, levels: str) -> TrainLevels:
    """What the agent of a run has seen, to play ``train`` or ``test`` levels.

    Levels that a method kept for itself are neither: they were not learnt on, and are not new to the agent.
    """
    return (edited_plan(config) if levels == "train" else build_plan(config)).levels


def method_text(method: str, notes: Mapping[str, object]) -> str:
    """A method's name, with what has to stand beside a score of it."""
    told = "; ".join(f"{name} {text}" for name, text in notes.items())
    return f"{method} ({told})" if told else method


def load_agent(folder: RunFolder, device: torch.device | str = "cpu") -> tuple[TrainConfig, Agent]:
    """The run's settings, and its agent as it was at the last checkpoint."""
    config = folder.read_config(TrainConfig.fromdict)
    state = folder.load()
    if state is None:
        raise UsageError(f"{folder.path} has no checkpoint yet; go on with: clop train --resume {folder.path}")
    plan = build_plan(config)
    method = methods.compose(dict(config.methods))
    model = build_network(plan, method, config.seed).to(device)
    model.load_state_dict(state["model"])
    method.load(state["processes"][0]["method"])
    where = (state["iteration"], state["env_steps"], config.steps, torch.device(device))
    return config, Agent(model, method, Context(*where, plan.generator, plan.rollout_mode, model))


def evaluate_run(
    folder: RunFolder, config: TrainConfig, agent: Agent, evaluation: EvalConfig
) -> tuple[Evaluation, Path]:
    """Evaluate an agent and keep the episodes in the run's folder; an evaluation that is there already is replaced by
    the same numbers, since protocol, levels, number, seed and steps are in its name and decide them on one device."""
    title = f"{config.game}, {evaluation.levels} levels, {evaluation.name}"
    with Progress(title, evaluation.total, "episodes") as progress:
        trained = train_levels(config, evaluation.levels)
        result = evaluate(agent, trained, evaluation, backend=config.backend, progress=progress)
    name = f"{evaluation.name}-{evaluation.levels}-{result.episodes}-seed{evaluation.seed}-step{agent.ctx.env_steps}"
    path = folder.path / "evaluations" / f"{name}.csv"
    write_atomic(path, lambda draft: draft.write_text(result.csv()))
    about = {"method": config.method, "notes": agent.notes(), "device": str(agent.ctx.device)}
    write_json(path.with_suffix(".json"), about | result.summary())
    return result, path


def summarise(folder: RunFolder, work: AgentWork) -> dict[str, Any]:
    """Evaluate the trained agent on seen and unseen levels, and write what came of the run."""
    config, agent = work.config, work.agent()
    results = {
        levels: evaluate_run(folder, config, agent, EvalConfig(levels=levels, episodes=config.eval_episodes))[0]
        for levels in ("train", "test")
    }
    summary = {
        "game": config.game,
        "method": config.method,
        "notes": agent.notes(),
        "preset": config.preset,
        "env_steps": work.done,
        **{levels: result.summary() for levels, result in results.items()},
        "gap": results["train"].mean - results["test"].mean,
        "steps_per_second": round(work.done / work.seconds, 1),
        "seconds": round(work.seconds, 1),
        "peak_memory_gb": work.memory_gb or None,  # which some systems do not tell
        "ended": "complete",
    }
    folder.write_summary(summary)
    return summary


_EVENT_NAMES = {  # those that users of CleanRL know
    "iteration": "charts/iteration",
    "env_steps": "charts/global_step",
    "episodic_return": "charts/episodic_return",
    "test_return": "charts/test_return",
    "learning_rate": "charts/learning_rate",
}
