"""What trained networks look at: the same frames for all of them, as a picture or as numbers with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clop.errors import UsageError
from clop.experiments import agents, vision
from clop.experiments.record import RecordBuilder, RunRecord
from clop.experiments.run_folder import RunFolder
from clop.grad_cam import entropy, half_mass
from clop.rl import saliency as rl_saliency
from clop.rl.agent import Agent, choose_actions
from clop.rl.build import split_levels
from clop.rl.config import TrainConfig
from clop.rl.evaluate import Seeds
from clop.rl.methods import compose
from clop.rl.ppo import build_network
from clop.seeds import mixed
from clop.vision import saliency as vision_saliency
from clop.vision.train import Trainer, normalised

CONTROLS = 5
"""Networks with random weights."""
MEASURES: dict[str, Callable[[Tensor], Tensor]] = {"entropy": entropy, "half_mass": half_mass}
_RANDOM = "random weights"
_ENVS = 32  # games that are played at once
_WARM_UP = 256  # steps before the first kept frame, after which games are in all parts of their episodes
_STRIDE = 32  # steps from one kept frame of a game to its next
_BATCH = 256
_REPETITIONS = 2000  # of the bootstrap over levels


@dataclass(frozen=True)
class SaliencyConfig:
    """Which frames, and which score of them."""

    split: str = "test"
    """``train`` for levels seen in training, ``test`` for unseen ones."""
    frames: int = 16
    target: rl_saliency.Target = "logit"
    """The score that is traced back: ``logit`` or ``log_prob`` of the most probable action, or the ``value``."""
    stage: str | None = None
    """Behind which stage of the encoder the map is; the last one if not given."""
    seed: int = 0
    """Decides levels and actions."""

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise UsageError(f"frames must be at least 1, got {self.frames}")


@dataclass(frozen=True)
class Looker:
    """A network that looks at frames."""

    label: str
    """Its method with the settings that are not the default ones; runs of one label differ in their seed."""
    seed: int
    path: str
    """The run, empty for a control."""
    look: Callable[[NDArray[np.uint8]], Tensor]
    """Maps (N, h, w) of frames (N, H, W, C)"""

    def maps(self, frames: NDArray[np.uint8]) -> Tensor:
        parts = [self.look(frames[first : first + _BATCH]) for first in range(0, len(frames), _BATCH)]
        return torch.cat(parts)


@dataclass(frozen=True)
class Frames:
    """Frames for all to look at."""

    pixels: NDArray[np.uint8]
    """(N, H, W, C)"""
    levels: NDArray[np.int64]
    """(N,) Frames of one episode are alike; those of an image are on their own."""
    text: str
    """Where they come from."""


def look(paths: Sequence[Path], config: SaliencyConfig) -> tuple[Frames, dict[str, NDArray[np.float32]]]:
    """The same frames, and the maps of each run on them, by label."""
    frames, lookers, _ = _open(paths, config)
    several = len({looker.label for looker in lookers}) < len(lookers)
    maps: dict[str, NDArray[np.float32]] = {}
    for looker in lookers:
        name = f"{looker.label}, seed {looker.seed}" if several else looker.label
        maps[name] = looker.maps(frames.pixels).numpy()
    return frames, maps


def measure(paths: Sequence[Path], config: SaliencyConfig) -> RunRecord:
    """How concentrated the maps of runs are, beside those of networks with random weights, as a record.

    Of each network the mean over frames, with an interval of 95 % from a bootstrap of the levels that the frames are
    of. Empty maps, which have no numbers, are counted.
    """
    builder = RecordBuilder("saliency", {"runs": [str(path) for path in paths], **_plain(config)})
    frames, lookers, controls = _open(paths, config)
    rows = [_row(looker, frames, config.seed) for looker in (*lookers, *controls)]
    about = {"frames": len(frames.pixels), "levels": len(set(frames.levels.tolist())), "source": frames.text}
    return builder.record(about | {"networks": rows})


def _plain(config: SaliencyConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(config)}


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _row(looker: Looker, frames: Frames, seed: int) -> dict[str, Any]:
    maps = looker.maps(frames.pixels)
    empty = (maps.flatten(1).sum(1) == 0).double().mean().item()
    row: dict[str, Any] = {"label": looker.label, "seed": looker.seed, "run": looker.path, "empty": empty}
    for name, measured in MEASURES.items():
        values = measured(maps).numpy()
        row[name] = over_levels(values, frames.levels, mixed(seed, looker.seed))
    return row | {"map": list(maps.shape[1:])}


def over_levels(values: NDArray[np.float64], levels: NDArray[np.int64], seed: int) -> dict[str, float | None]:
    """Mean over frames, and 95 % of the means when whole levels are drawn with replacement; empty maps are left out."""
    there = ~np.isnan(values)
    if not there.any():
        return {"mean": None, "low": None, "high": None}
    _, index = np.unique(levels[there], return_inverse=True)
    sums, counts = np.bincount(index, values[there]), np.bincount(index)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(counts), size=(_REPETITIONS, len(counts)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return {"mean": float(values[there].mean()), "low": float(low), "high": float(high)}


# ---- runs ------------------------------------------------------------------------------------------------------------


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Runs by name, and in place of a folder of runs those below it that are finished and have weights."""
    found: list[Path] = []
    for path in paths:
        if (path / "config.json").exists() or not path.is_dir():
            found.append(path)
            continue
        below = [config.parent for config in sorted(path.rglob("config.json"))]
        finished = [run for run in below if (run / "summary.json").exists() and RunFolder(run).has_checkpoint]
        if not finished:
            raise UsageError(f"{path} holds no finished run with weights; expected a run, or a folder of such runs")
        found += finished
    return found


def _open(paths: Sequence[Path], config: SaliencyConfig) -> tuple[Frames, list[Looker], list[Looker]]:
    """Frames, the networks of the runs, and as controls networks of the first one's shape with random weights."""
    kinds = {RunFolder(path).about().get("kind") for path in paths}
    if kinds == {agents.KIND}:
        return _open_agents(paths, config)
    if kinds == {vision.KIND}:
        return _open_classifiers(paths, config)
    raise UsageError("agents and classifiers see different frames; name runs of one kind")


def _open_agents(paths: Sequence[Path], config: SaliencyConfig) -> tuple[Frames, list[Looker], list[Looker]]:
    configs = [agents.read_config(path) for path in paths]
    games = {trained.levels.title for trained in configs}
    if len(games) > 1:
        raise UsageError(f"all agents look at the same frames, got runs on {', '.join(sorted(games))}")

    def looker(agent: Agent, label: str, seed: int, path: str) -> Looker:
        def look(frames: NDArray[np.uint8]) -> Tensor:
            return rl_saliency.saliency(agent, torch.from_numpy(frames), config.target, stage=config.stage)

        return Looker(label, seed, path, look)

    loaded = [agents.load_agent(path) for path in paths]
    share = -(-config.frames // len(loaded))
    players = zip(loaded, configs, range(len(loaded)), strict=True)
    pieces = [_play(agent, trained, config, share, number) for agent, trained, number in players]
    frames = Frames(
        np.concatenate([pixels for pixels, _ in pieces])[: config.frames],
        np.concatenate([levels for _, levels in pieces])[: config.frames],
        f"{configs[0].levels.title}, {config.split} levels, played by each of the agents in turn",
    )
    lookers = [
        looker(agent, agent_label(trained), trained.seed, str(path))
        for agent, trained, path in zip(loaded, configs, paths, strict=True)
    ]
    controls = [looker(_random_agent(loaded[0], configs[0], seed), _RANDOM, seed, "") for seed in range(CONTROLS)]
    return frames, lookers, controls


def _play(
    agent: Agent, trained: TrainConfig, config: SaliencyConfig, count: int, number: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """So many frames of play and their levels, some steps apart and from all parts of episodes, by sampled actions."""
    seeds = Seeds.of(mixed(config.seed, number), config.split)
    action_rng = torch.Generator().manual_seed(seeds.actions)
    envs = min(_ENVS, count)
    pixels, levels = [], []
    split = split_levels(trained, config.split).split(config.split)
    with agent.playing(seeds.noise), split.open(envs, seeds.games, trained.backend) as games:
        for step in range(_WARM_UP + _STRIDE * -(-count // envs)):
            seen = games.observe()
            if step >= _WARM_UP and (step - _WARM_UP) % _STRIDE == 0:
                pixels.append(seen.obs.copy())
                levels.append(seen.level_seeds.astype(np.int64))
            games.step(choose_actions(agent(torch.from_numpy(seen.obs)), False, action_rng).numpy())
    return np.concatenate(pixels)[:count], np.concatenate(levels)[:count]


def _random_agent(agent: Agent, trained: TrainConfig, seed: int) -> Agent:
    """The same network before it has learnt anything; not with the run's own seed, whose weights it began with."""
    method, generator = compose(dict(trained.methods)), torch.Generator()
    settings = method.configure(trained.settings)  # by the method that fills the network: it may remember some
    model = build_network(settings, method, mixed(seed, 16), generator)
    return replace(agent, model=model, method=method, ctx=replace(agent.ctx, model=model, generator=generator))


def agent_label(config: TrainConfig) -> str:
    """The methods with those settings that are not the default ones, such as ``clop(local=False)``."""
    parts = []
    for name, method in config.methods.items():
        changed = [
            f"{field.name}={getattr(method, field.name)}"
            for field in fields(method)  # type: ignore[arg-type]
            if getattr(method, field.name) != field.default
        ]
        parts.append(f"{name}({', '.join(changed)})" if changed else name)
    return "+".join(parts) or "ppo"


def _open_classifiers(paths: Sequence[Path], config: SaliencyConfig) -> tuple[Frames, list[Looker], list[Looker]]:
    target = config.target
    if target == "value":
        raise UsageError("a classifier has no value; trace its logit or log_prob")
    configs = [vision.read_config(path) for path in paths]
    if len({(each.task, each.image_size, each.data) for each in configs}) > 1:
        raise UsageError("all classifiers look at the same images; name runs on one task")
    task = vision.load_task(configs[0])
    name, images = ("train", task.train) if config.split == "train" else next(iter(task.tests.items()))
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(config.seed))[: config.frames]
    pixels = images.pixels[chosen].permute(0, 2, 3, 1).contiguous().numpy()

    def looker(trainer: Trainer, label: str, path: str) -> Looker:
        def look(frames: NDArray[np.uint8]) -> Tensor:
            scaled = normalised(torch.from_numpy(frames).permute(0, 3, 1, 2), task)
            return vision_saliency.saliency(trainer.model, scaled, target, stage=config.stage)  # type: ignore[arg-type]

        return Looker(label, trainer.config.seed, path, look)

    lookers = []
    for path, each in zip(paths, configs, strict=True):
        state = RunFolder(path).load()
        if state is None:
            raise UsageError(f"{path} has no weights; train it again")
        trainer = Trainer(each, task)
        trainer.model.load_state_dict(state["model"])
        lookers.append(looker(trainer, vision.label(each), str(path)))
    fresh = [Trainer(replace(configs[0], seed=mixed(seed, 16)), task) for seed in range(CONTROLS)]
    controls = [looker(trainer, _RANDOM, "") for trainer in fresh]
    return Frames(pixels, chosen.numpy(), f"{task.source}, {name} images"), lookers, controls
