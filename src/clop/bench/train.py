"""``clop bench train``: how fast the learner is, where its time goes, and how near that is to the machine's peak."""

import os
import random
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.bench.contestants import Contestant, started
from clop.bench.iteration import iteration_times
from clop.rl.methods import METHODS, names
from clop.rl.network import NetworkConfig
from clop.rl.ppo import Learner, PPOConfig
from clop.rl.train import build_learner, preset_config

DESCRIPTION = (
    "Time PPO on a game in turns: ours in one process and in one for each core, with CLOP, matrix products for the "
    "machine's peak, and Stable-Baselines3's PPO with the same network and settings. A turn is one rollout in 64 envs, "
    "played and learnt. About ten minutes."
)
ENVS, EPOCHS = 64, 3
_ACT_GFLOP, _LEARN_GFLOP = 0.06, 0.18  # of one frame through the standard network: forward, forward and backward
_PAIRED_STEPS = 4  # of the short rollouts that CLOP is compared on: many turns show small differences


@dataclass(frozen=True)
class Settings(BenchSettings):
    """What is played, how often, and who takes part."""

    game: str = field(default="starpilot", metadata={"positional": True})
    """Game to play."""
    rounds: int = 2
    """Number of turns of each learner."""
    num_steps: int = 64
    """Steps of a rollout in each of the 64 envs; procgen-easy has 256."""
    pairs: int = 40
    """Number of turns with and without CLOP."""
    without_sb3: bool = False
    """Leave Stable-Baselines3 out, which is slow."""

    @property
    def cores(self) -> int:
        return os.cpu_count() or 1

    def asdict(self) -> dict[str, Any]:
        values = super().asdict() | {"cores": self.cores}
        del values["without_sb3"]  # the rows say it
        return values


@dataclass(frozen=True)
class Row:
    """One learner: medians over its turns."""

    what: str
    steps_per_second: float
    memory_gb: float
    """The most it used, all processes together."""
    env_share: float | None = None
    act_share: float | None = None
    learn_share: float | None = None
    """Shares of its time; None for a learner that does not report them."""
    peak_gflops: float | None = None
    """Speed of matrix products on as many threads, timed in the same rounds."""

    @property
    def share_of_peak(self) -> float | None:
        if self.peak_gflops is None:
            return None
        return self.steps_per_second * (_ACT_GFLOP + EPOCHS * _LEARN_GFLOP) / self.peak_gflops

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"share_of_peak": self.share_of_peak}


def run(settings: Settings, report: Report = silent) -> Result:
    machine.keep_memory()
    torch.set_num_threads(1)
    costs = {}
    for topology in ("shared", "split"):
        report(f"CLOP on and off in {settings.pairs} pairs of turns, topology {topology}")
        costs[topology] = cost_of("clop", settings.game, settings.pairs, topology)
    rows = measure(settings, report)
    header = ["learner", "steps/s", "games", "acting", "learning", "share of peak", "memory, GB"]
    cells = [
        [
            row.what,
            f"{row.steps_per_second:.0f}",
            *map(_percent, (row.env_share, row.act_share, row.learn_share, row.share_of_peak)),
            f"{row.memory_gb:.2f}",
        ]
        for row in rows
    ]
    ratios = ", ".join(f"{cost:.3f} ({topology} network)" for topology, cost in costs.items())
    note = (
        f"{settings.game}, rollouts of {ENVS}×{settings.num_steps}, {EPOCHS} epochs, 8 minibatches, "
        f"{settings.rounds} turns\n"
        f"time with CLOP over time without, one process, median of {settings.pairs} pairs: {ratios}"
    )
    return Result(rows, header, cells, note, extra={"cost_of_clop": costs})


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def contestants(settings: Settings) -> list[Contestant]:
    """All learners: ours in one process of one thread, in one for each core, and there with CLOP; and
    Stable-Baselines3's on all cores."""
    cores = settings.cores
    shared: dict[str, Any] = {"num_steps": settings.num_steps, "game": settings.game}
    learners = [
        Contestant("clop, 1 process", **shared),
        Contestant(f"clop, {cores} processes", processes=cores, **shared),
        Contestant(f"clop, {cores} processes, method clop", processes=cores, method="clop", **shared),
    ]
    if not settings.without_sb3:
        learners.append(Contestant(f"Stable-Baselines3, {cores} threads", "sb3", threads=cores, **shared))
    return learners


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All learners in turns, each in processes of its own, and matrix products on one and on all cores."""
    learners = contestants(settings)
    peaks = {
        threads: Contestant(f"matmul {threads}", "matmul", threads=threads) for threads in sorted({1, settings.cores})
    }
    turns: dict[str, list[dict[str, Any]]] = {c.name: [] for c in [*learners, *peaks.values()]}
    with started([*learners, *peaks.values()]) as running:
        for number in range(settings.rounds):
            for name, process in running.items():
                turns[name].append(process.turn())
                report(f"round {number + 1} of {settings.rounds}: {name}, {turns[name][-1]['seconds']:.1f} s")
    return [_row(c, turns[c.name], turns[peaks[c.processes].name] if c.kind == "clop" else []) for c in learners]


def _row(contestant: Contestant, turns: list[dict[str, Any]], peaks: list[dict[str, Any]]) -> Row:
    def median(name: str) -> float:
        return statistics.median(turn[name] for turn in turns)

    split = "env" in turns[0]
    return Row(
        contestant.name,
        ENVS * contestant.num_steps / median("seconds"),
        max(sum(turn["memory_gb"]) for turn in turns),
        env_share=median("env") / median("seconds") if split else None,
        act_share=median("act") / median("seconds") if split else None,
        learn_share=median("learn") / median("seconds") if split else None,
        peak_gflops=statistics.median(turn["gflops"] for turn in peaks) if peaks else None,
    )


def cost_of(method: str, game: str, rounds: int, topology: str = "shared") -> float:
    """Seconds with a method over seconds without it: the median of paired turns, in this process."""
    ppo = PPOConfig(num_steps=_PAIRED_STEPS, minibatches=1)
    network = NetworkConfig(topology=topology)
    learners = {
        name: build_learner(preset_config(game, "procgen-easy", ppo=ppo, network=network, methods=methods))
        for name, methods in {"without": {}, "with": {name: METHODS[name]() for name in names(method)}}.items()
    }
    return statistics.median(sum(turn["with"]) / sum(turn["without"]) for turn in _take_turns(learners, rounds))


def _take_turns(learners: Mapping[str, Learner], rounds: int) -> list[dict[str, tuple[float, float, float]]]:
    """The times of one iteration of each learner, for each round; the order changes, since the first finds the machine
    colder."""
    for learner in learners.values():
        learner.iterate()  # warm up
    order = random.Random(0)
    return [
        {name: iteration_times(learners[name]) for name in order.sample(list(learners), len(learners))}
        for _ in range(rounds)
    ]
