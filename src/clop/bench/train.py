"""``clop bench train``: how fast the learner is, where its time goes, and how near that is to the machine's peak."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from clop.bench.contestants import Contestant, started
from clop.rl.methods import METHODS, names
from clop.rl.network import NetworkConfig
from clop.rl.ppo import Learner, PPOConfig
from clop.rl.train import build_learner, preset_config

ENVS, EPOCHS = 64, 3
_ACT_GFLOP, _LEARN_GFLOP = 0.06, 0.18  # of one frame through the standard network: forward, forward and backward
_PAIRED_STEPS = 4  # of the short rollouts that CLOP is compared on: many turns tell small differences


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
    """Of its time; None for learners that do not tell."""
    peak_gflops: float | None = None
    """Of matrix products on as many threads, timed in the same rounds."""

    @property
    def share_of_peak(self) -> float | None:
        if self.peak_gflops is None:
            return None
        return self.steps_per_second * (_ACT_GFLOP + EPOCHS * _LEARN_GFLOP) / self.peak_gflops

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"share_of_peak": self.share_of_peak}


def run(
    game: str, rounds: int, num_steps: int, cores: int, sb3: bool, on_turn: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """All learners in turns, each in processes of its own: ours in one process of one thread and in one for each core,
    with CLOP, and Stable-Baselines3's on all cores; and matrix products on one and on all cores.

    Args:
        game: What they play.
        rounds: Turns of each.
        num_steps: Length of a rollout in each of 64 envs; a turn is one rollout, played and learnt.
        cores: To use.
        sb3: Whether Stable-Baselines3 takes part; it is slow.
        on_turn: Is told of each turn.
    """
    shared: dict[str, Any] = {"num_steps": num_steps, "game": game}
    ours = [
        Contestant("clop, 1 process", **shared),
        Contestant(f"clop, {cores} processes", processes=cores, **shared),
        Contestant(f"clop, {cores} processes, method clop", processes=cores, method="clop", **shared),
    ]
    others = [Contestant(f"Stable-Baselines3, {cores} threads", "sb3", threads=cores, **shared)] if sb3 else []
    peaks = [Contestant(f"matmul {threads}", "matmul", threads=threads) for threads in sorted({1, cores})]
    answers: dict[str, list[dict[str, Any]]] = {c.name: [] for c in [*ours, *others, *peaks]}
    with started([*ours, *others, *peaks]) as running:
        for turn in range(rounds):
            for name, contestant in running.items():
                answers[name].append(contestant.turn())
                on_turn(f"round {turn + 1} of {rounds}: {name}, {answers[name][-1]['seconds']:.1f} s")
    return [_row(c, answers[c.name], answers[f"matmul {c.processes}"] if c in ours else []) for c in [*ours, *others]]


def _row(contestant: Contestant, turns: list[dict[str, Any]], peaks: list[dict[str, Any]]) -> Row:
    def median(name: str) -> float:
        return statistics.median(turn[name] for turn in turns)

    tells = "env" in turns[0]
    return Row(
        contestant.name,
        ENVS * contestant.num_steps / median("seconds"),
        max(sum(turn["memory_gb"]) for turn in turns),
        env_share=median("env") / median("seconds") if tells else None,
        act_share=median("act") / median("seconds") if tells else None,
        learn_share=median("learn") / median("seconds") if tells else None,
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
    """The times of one iteration of each learner, for each round; who begins changes, since the first finds the machine
    colder."""
    for learner in learners.values():
        learner.iterate()  # warm up
    order = random.Random(0)
    return [
        {name: iteration_times(learners[name]) for name in order.sample(list(learners), len(learners))}
        for _ in range(rounds)
    ]


def iteration_times(learner: Learner) -> tuple[float, float, float]:
    """Seconds in the games, in acting, and in learning, of one iteration."""
    if not isinstance(learner.games, _TimedGames):
        learner.games = _TimedGames(learner.games)  # type: ignore[assignment]
        learner.collect = _Timed(learner.collect)  # type: ignore[method-assign]
    games: Any = learner.games
    collect: Any = learner.collect
    games.seconds = collect.seconds = 0.0
    start = time.perf_counter()
    learner.iterate()
    total = time.perf_counter() - start
    return games.seconds, collect.seconds - games.seconds, total - collect.seconds


class _Timed:
    """A function that notes the time spent in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._function(*arguments, **named)
        finally:
            self.seconds += time.perf_counter() - start


class _TimedGames:
    """Games that note the time spent in them."""

    def __init__(self, games: Any) -> None:
        self._games, self.observe, self.step = games, _Timed(games.observe), _Timed(games.step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._games, name)

    @property
    def seconds(self) -> float:
        return self.observe.seconds + self.step.seconds

    @seconds.setter
    def seconds(self, value: float) -> None:
        self.observe.seconds = self.step.seconds = value
