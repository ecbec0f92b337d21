"""Train an agent in a run folder, from its settings to its summary; load it, evaluate it."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from clop import machine
from clop.distributed import Workers, check_gpus, run_together, together
from clop.errors import UsageError
from clop.experiments.load_export import is_export, load_export
from clop.experiments.loop import resumable, run_to_end
from clop.experiments.run_folder import RunFolder, differences
from clop.experiments.summaries import AgentSummary, EvaluationSummary, Stage
from clop.experiments.trackers import check_trackers
from clop.files import write_atomic, write_json
from clop.progress import Progress
from clop.rl import methods
from clop.rl.agent import Agent
from clop.rl.build import build_learner, check_run, depends_on_total, split_levels
from clop.rl.config import TrainConfig
from clop.rl.envs.backends import choose_backend
from clop.rl.envs.levels import look_alike, preload
from clop.rl.evaluate import Evaluation, evaluate
from clop.rl.methods.base import Context
from clop.rl.ppo import build_network
from clop.rl.protocols import EvalConfig

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
        return f"{self.config.game}, {self.config.method}, {self.config.preset_name}"

    @property
    def total(self) -> int:
        return self.config.total_timesteps

    @property
    def done(self) -> int:
        return self.learner.env_steps

    @property
    def finished(self) -> bool:
        return self.learner.iteration >= self.config.iterations

    def step(self) -> dict[str, Any]:
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
        return evaluate(self.agent(), self.config.levels, evaluation, backend=self.config.backend).mean

    def agent(self) -> Agent:
        return Agent(self.learner.model, self.learner.method, self.learner.context(), self.learner.settings.spec)

    def progress(self) -> dict[str, object]:
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
                f"clop: {games.identity['backend']} cannot save running games: episodes start anew, and the run goes "
                "on well but not bit for bit",
                file=sys.stderr,
            )
        if len(state["processes"]) != workers.size:
            raise UsageError(
                f"the run has {len(state['processes'])} processes and goes on with as many, got {workers.size}"
            )
        self.learner.load({**state, **state["processes"][workers.rank]})
        self._recent.extend(state["recent"])
        self._test = state["test_return"]
        self.seconds, self.memory_gb = state["seconds"], state["memory_gb"]


def run(
    config: TrainConfig,
    out: Path | str,
    device: str | None = None,
    *,
    checkpoint_seconds: float = 60,
    track: Sequence[str] = (),
) -> AgentSummary:
    """Train an agent in a folder to the end, evaluate it on seen and unseen levels, and return what came of it.

    Where the folder holds a run with the same settings, that run goes on from its last checkpoint, or its summary is
    returned if it has ended.

    Args:
        config: The settings.
        out: The folder of the run.
        device: ``cpu`` or ``cuda``; a GPU if there is one and it is not given.
        checkpoint_seconds: How often the state is written, besides the end and an interrupt.
        track: Where else the metrics are shown: see :data:`~clop.experiments.trackers.TRACKERS`.
    """
    summary = run_processes(config, Path(out), device, checkpoint_seconds, track)
    return cast(AgentSummary, summary)  # None only in processes that torchrun has started beside the first


def run_processes(
    config: TrainConfig,
    out: Path,
    device: str | None = None,
    checkpoint_seconds: float = 60,
    track: Sequence[str] = (),
) -> AgentSummary | None:
    """:func:`run`; None in the processes that torchrun has started beside the first."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    config = replace(config, backend=choose_backend(config.backend, config.game))
    first = os.environ.get("RANK", "0") == "0"
    folder = find_run(out, config) if first else None
    if folder is not None and (summary := read_summary(folder, config)) is not None:
        return summary
    check_trackers(track)
    check_run(config)
    check_gpus(config.processes, device)
    if first and folder is None:
        if (warning := look_alike(config.levels)) is not None:
            print(f"clop: {warning}", file=sys.stderr)  # noqa: T201
        folder = RunFolder.create(out, KIND, config.asdict())
    preload(config.backend)
    train = partial(_train, config, folder, device, checkpoint_seconds, track)
    if folder is None:
        run_together(config.processes, device, train)
        return None
    with folder.held(), resumable(folder), _threads(config.threads):
        _grow(folder, config)
        work = run_together(config.processes, device, train)
        with folder.beating():
            return summarise(folder, work)


def _train(
    config: TrainConfig, folder: RunFolder | None, device: str, checkpoint_seconds: float, track: Sequence[str] = ()
) -> AgentWork:
    """The part of one process in the training."""
    machine.keep_memory()
    workers = Workers()
    with _threads(config.threads):
        work = AgentWork(config, device, workers)
        with work.learner.games:  # closed however the training ends: they may be processes
            if not workers.is_first or folder is None:
                run_to_end(work, None, checkpoint_seconds, workers)
                return work
            with folder.beating():
                run_to_end(work, folder, checkpoint_seconds, workers, track)
    return work


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of torch, for sums round differently over more; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def find_run(out: Path, config: TrainConfig) -> RunFolder | None:
    """The run that is there already, None if there is none; a :class:`UsageError` if it has other settings.

    Its total may be another: a run grows, and one that is longer by now has kept what it reached on its way.
    """
    if not (out / "config.json").exists():
        return None
    folder = RunFolder.open(out, KIND)
    wanted = replace(config, backend=choose_backend(config.backend, config.game))  # a folder names the one it found
    found = folder.read_config(TrainConfig.fromdict)
    other = differences(found, wanted)
    if other == ["total_timesteps"]:
        _check_total(folder, found, wanted)
    elif other:
        raise UsageError(
            f"{out} holds a run with other settings ({', '.join(other)}) and nothing in it will be overwritten; name "
            f"another folder, or go on with that run: {folder.resume_command}"
        )
    return folder


def _check_total(folder: RunFolder, found: TrainConfig, wanted: TrainConfig) -> None:
    """A :class:`UsageError` for a run that cannot have another total."""
    if (setting := depends_on_total(found)) is not None:
        value = getattr(found.ppo, setting.partition(".")[2])
        raise UsageError(
            f"{folder.path} holds a run of {found.total_timesteps} steps and cannot have another total: {setting} is "
            f"{value}, which depends on the total from the first step on; name another folder"
        )
    if wanted.iterations < found.iterations and read_summary(folder, wanted) is None:
        raise UsageError(
            f"{folder.path} holds the same run with {found.total_timesteps} steps, and no evaluation after "
            f"{wanted.total_timesteps}; name another folder"
        )
    if wanted.iterations > found.iterations and folder.summary is not None and not folder.has_checkpoint:
        raise UsageError(f"{folder.path} is a record without checkpoints and cannot grow; name another folder")


def _grow(folder: RunFolder, config: TrainConfig) -> None:
    """Give the run its larger total, if that is what is asked for."""
    found = folder.read_config(TrainConfig.fromdict)
    if found.total_timesteps < config.total_timesteps:
        folder.grow(config.asdict(), found.env_steps)


def read_config(path: Path) -> TrainConfig:
    """The settings of an earlier run."""
    return RunFolder.open(path, KIND).read_config(TrainConfig.fromdict)


def read_summary(folder: RunFolder, config: TrainConfig | None = None) -> AgentSummary | None:
    """What came of a run, None before its end; ``config`` asks for its end at another total."""
    last = [] if folder.summary is None else [(folder.summary, folder.path / "summary.json")]
    for values, path in [*last, *folder.earlier_summaries()]:
        summary = AgentSummary.fromdict(values, path)
        if config is None or summary.env_steps == config.env_steps:
            return summary
    return None


def is_complete(out: Path, config: TrainConfig) -> bool:
    """Whether a run has come to the end that these settings ask for."""
    return (out / "config.json").exists() and read_summary(RunFolder.open(out, KIND), config) is not None


def load_agent(path: Path | str, device: torch.device | str = "cpu") -> Agent:
    """The agent of a run as it was at the last checkpoint, or one that ``clop export`` has written."""
    if is_export(Path(path)):
        return load_export(Path(path), device)
    folder = RunFolder.open(Path(path), KIND)
    config = folder.read_config(TrainConfig.fromdict)
    state = folder.load()
    if state is None:
        raise UsageError(f"{folder.path} has no checkpoint yet; go on with: {folder.resume_command}")
    generator = torch.Generator()
    method = methods.compose(dict(config.methods))
    settings = method.configure(config.settings)
    model = build_network(settings, method, config.seed, generator).to(device)
    model.load_state_dict(state["model"])
    method.load(state["processes"][0]["method"])
    where = (state["iteration"], state["env_steps"], torch.device(device))
    return Agent(model, method, Context(*where, generator, settings.rollout_mode, model), settings.spec)


def evaluate_run(
    folder: RunFolder, config: TrainConfig, agent: Agent, evaluation: EvalConfig, processes: int = 1
) -> tuple[Evaluation, Path]:
    """Evaluate an agent and keep the episodes in the run's folder; an evaluation that is there already is replaced by
    the same numbers, since protocol, split, number, seed and steps are in its name and decide them on one
    machine and in one version of clop; others may add in another order."""
    title = f"{config.game}, {evaluation.split} levels, {evaluation.name}"
    with Progress(title, evaluation.total, "episodes") as progress:
        trained = split_levels(config, evaluation.split)
        result = evaluate(agent, trained, evaluation, backend=config.backend, progress=progress, processes=processes)
    name = f"{evaluation.name}-{evaluation.split}-{result.episodes}-seed{evaluation.seed}-step{agent.ctx.env_steps}"
    path = folder.path / "evaluations" / f"{name}.csv"
    write_atomic(path, lambda draft: draft.write_text(result.csv()))
    about = {"method": config.method, "notes": agent.notes(), "device": str(agent.ctx.device)}
    write_json(path.with_suffix(".json"), about | result.summary())
    return result, path


def summarise(folder: RunFolder, work: AgentWork) -> AgentSummary:
    """Evaluate the trained agent on seen and unseen levels, and write what came of the run.

    Both at the same time where the run has several processes: neither knows of the other. Threads, of torch's or of a
    game's, do not survive a fork.
    """
    config, agent = work.config, work.agent()
    evaluations = [
        partial(evaluate_run, folder, config, agent, EvalConfig(split=split, episodes=config.eval_episodes))
        for split in ("train", "test")
    ]
    forks_well = agent.ctx.device.type == "cpu" and config.threads == 1 and config.backend == "procgen-mirror"
    at_once = config.processes > 1 and forks_well
    outcomes = together(evaluations) if at_once else [evaluation() for evaluation in evaluations]
    (train, _), (test, _) = outcomes
    summary = AgentSummary(
        game=config.game,
        method=config.method,
        notes=agent.notes(),
        preset_name=config.preset_name,
        seed=config.seed,
        env_steps=work.done,
        train=EvaluationSummary(**train.summary()),
        test=EvaluationSummary(**test.summary()),
        gap=train.mean - test.mean,
        steps_per_second=round(work.done / work.seconds, 1),
        seconds=round(work.seconds, 1),
        peak_memory_gb=work.memory_gb or None,
        earlier=_earlier(folder, work.done),
    )
    folder.write_summary(summary.asdict())
    return summary


def _earlier(folder: RunFolder, env_steps: int) -> tuple[Stage, ...]:
    found = [AgentSummary.fromdict(values, path) for values, path in folder.earlier_summaries()]
    return tuple(summary.stages[-1] for summary in found if summary.env_steps < env_steps)


_EVENT_NAMES = {  # those that users of CleanRL know
    "iteration": "charts/iteration",
    "env_steps": "charts/global_step",
    "episodic_return": "charts/episodic_return",
    "test_return": "charts/test_return",
    "learning_rate": "charts/learning_rate",
}
