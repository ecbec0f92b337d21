"""``clop bench evaluate``: how long an evaluation takes, by protocol, number of processes, and who computes layers.

The agent has learnt nothing, so its episodes are short; protocols play other episodes, so what is compared is frames
per second.
"""

import copy
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.errors import UsageError
from clop.kernels.pool import MaxPool
from clop.rl.agent import Agent
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
from clop.rl.evaluate import Evaluation, evaluate
from clop.rl.network import Network, Output
from clop.rl.ppo import Learner
from clop.rl.protocols import EvalConfig

DESCRIPTION = (
    "Time an evaluation of an agent on unseen levels in turns: by clop-v1 with torch's own convolutions and "
    "with ours, and by clop-v2 on one process and on several, whose episodes are compared to the bit. Half an hour."
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
    """Number of turns of each kind of evaluation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.processes < 2:
            raise UsageError(f"processes must be at least 2, to compare with one, got {self.processes}")


class Way(NamedTuple):
    """How episodes are played."""

    protocol: str
    processes: int
    layers: str
    """``ours``, or ``torch's``: convolutions and pooling as PyTorch computes them; dense layers are ours in both."""

    @property
    def text(self) -> str:
        return f"{self.protocol} in {self.processes} process{'es' * (self.processes > 1)}, {self.layers} layers"


@dataclass(frozen=True)
class Row:
    """One way to evaluate on one game: medians over turns."""

    game: str
    protocol: str
    processes: int
    layers: str
    """As in :class:`Way`, like the two before."""
    seconds: float
    frames: int
    """Frames of the counted episodes."""
    speed: float
    """Frames per second, as a ratio to those of clop-v1 with torch's layers."""
    network_share: float | None
    """Share of the time spent in the network; not known of several processes."""

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def run(settings: Settings, report: Report = silent) -> Result:
    machine.keep_memory()
    torch.set_num_threads(1)  # as in the processes of a run
    rows, scaling = measure(settings, report)
    header = ["game", "protocol", "layers", "processes", "seconds", "frames/s", "speed", "in the network"]
    cells = [
        [
            row.game,
            row.protocol,
            row.layers,
            str(row.processes),
            f"{row.seconds:.1f}",
            f"{row.frames / row.seconds:.0f}",
            f"{row.speed:.2f}",
            "" if row.network_share is None else f"{row.network_share:.0%}",
        ]
        for row in rows
    ]
    notes = [
        f"{settings.episodes} episodes of an agent that has learnt nothing",
        *(
            f"{game}: clop-v2 in {settings.processes} processes over one: {ratio:.2f}"
            for game, ratio in scaling.items()
        ),
    ]
    return Result(rows, header, cells, "\n".join(notes), extra={"scaling": scaling})


def measure(settings: Settings, report: Report = silent) -> tuple[list[Row], dict[str, float]]:
    """All ways on all games, and for each game the speed of clop-v2 in several processes over that in one."""
    rows: list[Row] = []
    scaling = {}
    for game in settings.games.split(","):
        found, scaling[game] = _on_game(game, settings, report)
        rows += found
    return rows, scaling


def _on_game(game: str, settings: Settings, report: Report) -> tuple[list[Row], float]:
    config = TrainConfig.preset("procgen-easy", game, "ppo", **{"network.encoder": settings.encoder})
    agents = agents_by_layers(build_learner(config))
    _warm_up(agents.values())
    plain, alone = Way("clop-v1", 1, "torch's"), Way("clop-v2", 1, "ours")
    shared = alone._replace(processes=settings.processes)
    ways = (plain, plain._replace(layers="ours"), alone, shared)
    seconds: dict[Way, list[float]] = {way: [] for way in ways}
    shares: dict[Way, list[float]] = {way: [] for way in ways}
    results: dict[Way, Evaluation] = {}
    for number in range(settings.rounds):
        for way in ways:
            agent = agents[way.layers]
            agent.seconds.clear()
            start = time.perf_counter()
            asked = EvalConfig(protocol=way.protocol, episodes=settings.episodes)
            results[way] = evaluate(agent, config.levels, asked, processes=way.processes)
            seconds[way].append(time.perf_counter() - start)
            shares[way].append(sum(agent.seconds) / seconds[way][-1])
            report(f"{game}, turn {number + 1}: {way.text}, {seconds[way][-1]:.1f} s")
    check_equal(results[alone], results[shared])
    frames = {way: int(results[way].rows.lengths.sum()) for way in ways}

    def speed(way: Way, base: Way) -> float:
        turns = zip(seconds[base], seconds[way], strict=True)
        return statistics.median(before / own for before, own in turns) * frames[way] / frames[base]

    rows = []
    for way in ways:
        network = statistics.median(shares[way]) if way.processes == 1 else None
        rows.append(Row(game, *way, statistics.median(seconds[way]), frames[way], speed(way, plain), network))
    return rows, speed(shared, alone)


def agents_by_layers(learner: Learner) -> dict[str, "_TimedAgent"]:
    """The learner's agent, and the same with PyTorch's own convolutions and pooling."""
    models = {"ours": learner.model, "torch's": with_plain_layers(learner.model)}
    return {
        layers: _TimedAgent(model, learner.method, replace(learner.context(), model=model), learner.settings.spec)
        for layers, model in models.items()
    }


def _warm_up(agents: Iterable["_TimedAgent"]) -> None:
    """Have each agent act once, so that no turn compiles a kernel."""
    for agent in agents:
        with agent.playing(seed=0):
            agent(torch.zeros(2, *agent.spec.obs_shape, dtype=torch.uint8))


def with_plain_layers(model: Network) -> Network:
    """The same network with PyTorch's own convolutions and pooling: no kernel takes a subclass for its own."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        if type(module) in (nn.Conv2d, MaxPool):
            module.__class__ = _Convolution if type(module) is nn.Conv2d else nn.MaxPool2d
    return plain


class _Convolution(nn.Conv2d):
    """As PyTorch computes it."""


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
