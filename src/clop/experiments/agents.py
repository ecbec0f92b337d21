"""Train an agent in a run folder: checkpoints, exact resume, metrics, progress, and a summary at the end."""

import copy
import resource
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder
from clop.files import write_json, write_whole
from clop.progress import Progress
from clop.rl import methods
from clop.rl.evaluate import Agent, EvalConfig, Evaluation, evaluate
from clop.rl.levels import TrainLevels
from clop.rl.methods.base import Context
from clop.rl.ppo import DivergedError, Learner, build_network
from clop.rl.train import TrainConfig, build_learner, build_plan
from clop.rl.workers import Workers

KIND = "agent"
_OWN = ("method", "games", "rewards", "generators")  # parts of the state that every process has for itself
_RECENT = 100  # episodes in the running return


class Stopped(Exception):  # noqa: N818
    """The user asked the run to stop."""


def train_agent(
    config: TrainConfig,
    folder: RunFolder | None,
    device: torch.device | str = "cpu",
    checkpoint_seconds: float = 600,
    workers: Workers | None = None,
) -> tuple[Learner, float]:
    """Train to the end, from the start or from the folder's last checkpoint; the learner, and the seconds it took.

    Args:
        config: What to train.
        folder: Where the run lives; None in all processes but the first.
        device: Where the network computes.
        checkpoint_seconds: How often the state is written, besides the end and an interrupt.
        workers: The processes of the run.
    """
    workers = workers or Workers()
    learner = build_learner(config, device, workers)
    state = _resume(learner, folder, workers)
    if folder is None:
        while learner.iteration < config.iterations:
            learner.iterate()
            _capture(learner)
        return learner, 0.0

    recent: deque[float] = deque(state["recent"], maxlen=_RECENT)
    clock, spent, saved = time.monotonic(), state["seconds"], time.monotonic()
    with (
        _stop_on_signals(),
        _events(folder, learner.env_steps) as events,
        Progress(
            f"{config.game}, {config.method}, {config.preset}", config.steps, "steps", start=learner.env_steps
        ) as shown,
    ):
        try:
            while learner.iteration < config.iterations:
                started = time.monotonic()
                metrics, finished = learner.iterate()
                recent.extend(value for episodes in finished for value in episodes.returns.tolist())
                row = _row(learner, metrics, recent)
                state = _capture(learner) | {"recent": list(recent), "seconds": spent + time.monotonic() - clock}
                folder.log(row)
                rate = config.ppo.batch / (time.monotonic() - started)
                for name, value in row.items():
                    events.add_scalar(_EVENT_NAMES.get(name, f"losses/{name}"), value, learner.env_steps)
                events.add_scalar("charts/SPS", rate, learner.env_steps)
                shown.step(config.ppo.batch, running_return=row.get("episodic_return", "unknown"), run=str(folder.path))
                if time.monotonic() - saved > checkpoint_seconds or learner.iteration == config.iterations:
                    folder.save(state, learner.env_steps)
                    saved = time.monotonic()
        except BaseException as error:
            # What happened since the last iteration is lost and will happen again; all before it is kept.
            if state["env_steps"] > 0:
                folder.save(state, state["env_steps"])
            if isinstance(error, (Stopped, KeyboardInterrupt)):
                raise UsageError(
                    f"stopped after {state['env_steps']} steps; go on with: clop train --resume {folder.path}"
                ) from None
            if isinstance(error, DivergedError):
                raise UsageError(f"{error}; {folder.path} holds the state before it") from None
            if isinstance(error, RuntimeError) and workers.size > 1:
                raise UsageError(
                    f"another process of the run has died; go on with: clop train --resume {folder.path}"
                ) from error
            raise
    return learner, state["seconds"]


def train_levels(config: TrainConfig) -> TrainLevels:
    """What the agent of a run has seen."""
    return TrainLevels(config.game, config.mode, config.start_level, config.levels)


def load_agent(folder: RunFolder, device: torch.device | str = "cpu") -> tuple[TrainConfig, Agent]:
    """The run's settings, and its agent as it was at the last checkpoint."""
    config = TrainConfig.fromdict(folder.config)
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
    the same numbers, since protocol, levels, number, seed and steps are in its name and decide them."""
    title = f"{config.game}, {evaluation.levels} levels, {evaluation.name}"
    with Progress(title, evaluation.total, "episodes") as progress:
        result = evaluate(agent, train_levels(config), evaluation, backend=config.backend, progress=progress)
    name = f"{evaluation.name}-{evaluation.levels}-{result.episodes}-seed{evaluation.seed}-step{agent.ctx.env_steps}"
    path = folder.path / "evaluations" / f"{name}.csv"
    write_whole(path, lambda draft: draft.write_text(result.csv()))
    write_json(path.with_suffix(".json"), result.summary())
    return result, path


def summarise(
    folder: RunFolder, config: TrainConfig, learner: Learner, episodes: int, seconds: float
) -> dict[str, Any]:
    """Evaluate the trained agent on seen and unseen levels, and write what came of the run."""
    agent = Agent(learner.model, learner.method, learner.context())
    results = {
        levels: evaluate_run(folder, config, agent, EvalConfig(levels=levels, episodes=episodes))[0]
        for levels in ("train", "test")
    }
    summary = {
        "game": config.game,
        "method": config.method,
        "preset": config.preset,
        "env_steps": learner.env_steps,
        **{levels: result.summary() for levels, result in results.items()},
        "gap": results["train"].mean - results["test"].mean,
        "steps_per_second": round(learner.env_steps / seconds, 1),
        "seconds": round(seconds, 1),
        "peak_memory_gb": peak_memory_gb(),
        "ended": "complete",
    }
    folder.write_summary(summary)
    return summary


def _resume(learner: Learner, folder: RunFolder | None, workers: Workers) -> dict[str, Any]:
    """Bring every process to the folder's last state, or to the start."""
    state = folder.load() if folder is not None else None
    state = workers.broadcast(state)
    if state is None:
        return {"env_steps": 0, "recent": [], "seconds": 0.0}
    if len(state["processes"]) != workers.size:
        raise UsageError(
            f"the run has {len(state['processes'])} processes and goes on with as many, got {workers.size}"
        )
    learner.load(state | state["processes"][workers.rank])
    if folder is not None:
        folder.forget_metrics_after(learner.iteration)
    return state


def _capture(learner: Learner) -> dict[str, Any]:
    """The state of the whole run, in the first process; to be called in all of them at once."""
    state = learner.state()
    own = learner.workers.gather({name: state.pop(name) for name in _OWN})
    if not learner.workers.is_first:
        return {}
    return copy.deepcopy(state | {"processes": own})  # since the learner goes on changing its tensors in place


def _row(learner: Learner, metrics: Mapping[str, float], recent: deque[float]) -> dict[str, Any]:
    """One line of the metrics: all that a resumed run repeats bit for bit, so no times."""
    row: dict[str, Any] = {"iteration": learner.iteration, "env_steps": learner.env_steps}
    if recent:
        row["episodic_return"] = float(np.mean(recent))
    return row | dict(metrics)


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    """SIGINT and SIGTERM raise :class:`Stopped` here; handlers are put back at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _events(folder: RunFolder, step: int) -> Iterator[Any]:
    """A TensorBoard writer that goes on from a step, or one that writes nothing where tensorboardX is missing."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        yield _NoEvents()
        return
    with SummaryWriter(str(folder.path / "tensorboard"), purge_step=step) as writer:
        yield writer


class _NoEvents:
    def add_scalar(self, *_: object) -> None:
        pass


def peak_memory_gb() -> float:
    """The most memory this process has had."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return round(kilobytes / 2**20, 3)


_EVENT_NAMES = {
    "iteration": "charts/iteration",
    "env_steps": "charts/global_step",
    "episodic_return": "charts/episodic_return",
    "learning_rate": "charts/learning_rate",
}
