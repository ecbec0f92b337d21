"""``clop bench evaluate``: how long an evaluation takes, by protocol and number of processes.

The agent has learnt nothing, so its episodes are short; protocols play other episodes, so what is compared is frames
per second.
"""

import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.errors import UsageError
from clop.rl.agent import Agent
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
from clop.rl.evaluate import Evaluation, evaluate
from clop.rl.network import Output
from clop.rl.protocols import EvalConfig

DESCRIPTION = (
    "Time an evaluation of an agent on unseen levels by clop-v1 and, on one process and on several, by clop-v2, in "
    "turns, and compare the episodes of clop-v2 to the bit. About half an hour."
)


@dataclass(frozen=True)
class Settings(BenchSettings):
    """Which games, and how often."""

    games: str = "starpilot,bigfish"
    """Names of games, with commas between them."""
    encoder: str = "impala"
    """Encoder of the agent."""
    episodes: int = 1000
    """Least number of episodes of an evaluation."""
    processes: int = 2
    """Number of processes that share the episodes of clop-v2."""
    rounds: int = 3
    """Number of turns of each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.processes < 2:
            raise UsageError(f"processes must be at least 2, to compare with one, got {self.processes}")


@dataclass(frozen=True)
class Row:
    """One way to evaluate on one game: medians over turns."""

    game: str
    protocol: str
    processes: int
    seconds: float
    frames: int
    """Frames of the counted episodes."""
    speed: float
    """Frames per second, as a ratio to those of clop-v2 in one process."""
    network_share: float | None
    """Share of the time spent in the network; not known of several processes."""

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def run(settings: Settings, report: Report = silent) -> Result:
    machine.keep_memory()
    rows = measure(settings, report)
    header = ["game", "protocol", "processes", "seconds", "frames/s", "speed", "in the network"]
    cells = [
        [
            row.game,
            row.protocol,
            str(row.processes),
            f"{row.seconds:.1f}",
            f"{row.frames / row.seconds:.0f}",
            f"{row.speed:.2f}",
            "" if row.network_share is None else f"{row.network_share:.0%}",
        ]
        for row in rows
    ]
    return Result(rows, header, cells, f"{settings.episodes} episodes of an agent that has learnt nothing")


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All ways on all games."""
    return [row for game in settings.games.split(",") for row in _on_game(game, settings, report)]


def _on_game(game: str, settings: Settings, report: Report) -> list[Row]:
    config = TrainConfig.preset("procgen-easy", game, "ppo", **{"network.encoder": settings.encoder})
    learner = build_learner(config)
    agent = _TimedAgent(learner.model, learner.method, learner.context(), learner.settings.spec)
    ways = (("clop-v2", 1), ("clop-v2", settings.processes), ("clop-v1", 1))
    seconds: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    shares: list[list[float]] = [[] for _ in ways]
    results: dict[tuple[str, int], Evaluation] = {}
    for number in range(settings.rounds):
        for way, share in zip(ways, shares, strict=True):
            protocol, processes = way
            agent.seconds.clear()
            start = time.perf_counter()
            asked = EvalConfig(protocol=protocol, episodes=settings.episodes)
            results[way] = evaluate(agent, config.levels, asked, processes=processes)
            seconds[way].append(time.perf_counter() - start)
            share.append(sum(agent.seconds) / seconds[way][-1])
            report(f"{game}, turn {number + 1}: {protocol} in {processes} process(es), {seconds[way][-1]:.1f} s")
    check_equal(results[ways[0]], results[ways[1]])
    frames = {way: int(results[way].rows.lengths.sum()) for way in ways}
    rows = []
    for way, share in zip(ways, shares, strict=True):
        turns = zip(seconds[ways[0]], seconds[way], strict=True)
        speed = statistics.median(base / own for base, own in turns) * frames[way] / frames[ways[0]]
        network = statistics.median(share) if way[1] == 1 else None
        rows.append(Row(game, *way, statistics.median(seconds[way]), frames[way], speed, network))
    return rows


def check_equal(one: Evaluation, other: Evaluation) -> None:
    """A :class:`UsageError` if two evaluations did not play the same episodes."""
    pairs: Iterable[tuple[Any, Any]] = zip(one.rows, other.rows, strict=True)
    if not all(np.array_equal(mine, yours) for mine, yours in pairs):
        raise UsageError(f"{one.game}: episodes of {one.protocol} depend on the number of processes; report this")


@dataclass(frozen=True)
class _TimedAgent(Agent):
    """An agent that notes the time of each pass through its network."""

    seconds: list[float] = field(default_factory=list)

    def __call__(self, obs: Tensor) -> Output:
        start = time.perf_counter()
        output = super().__call__(obs)
        self.seconds.append(time.perf_counter() - start)
        return output
