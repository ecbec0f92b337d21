"""``clop bench train``: how fast the learner is, where its time goes, and how near that is to the machine's peak."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from clop.rl.methods.clop import Clop
from clop.rl.ppo import Learner, PPOConfig
from clop.rl.train import build_learner, preset_config

_ACT_GFLOP, _LEARN_GFLOP = 0.06, 0.18  # of one frame through the standard network: forward, forward and backward
_NUM_STEPS = 16  # a rollout short enough for many turns; the cost of a step does not depend on it


@dataclass(frozen=True)
class Row:
    """Median milliseconds of one env step, all its epochs included, and what they amount to."""

    what: str
    env_ms: float
    act_ms: float
    learn_ms: float
    peak_gflops: float
    """Of a matrix product, timed in the same turns."""
    epochs: int

    @property
    def steps_per_second(self) -> float:
        return 1000 / (self.env_ms + self.act_ms + self.learn_ms)

    @property
    def share_of_peak(self) -> float:
        return self.steps_per_second * (_ACT_GFLOP + self.epochs * _LEARN_GFLOP) / self.peak_gflops

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"steps_per_second": self.steps_per_second, "share_of_peak": self.share_of_peak}


class _TimedGames:
    """Games that note the time spent in them."""

    def __init__(self, games: Any) -> None:
        self._games, self.seconds = games, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._games, name)

    def observe(self, *arguments: Any, **named: Any) -> Any:
        return self._timed(self._games.observe, *arguments, **named)

    def step(self, actions: Any) -> Any:
        return self._timed(self._games.step, actions)

    def _timed(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments, **named)
        self.seconds += time.perf_counter() - start
        return result


def run(game: str, rounds: int, on_round: Callable[[int], None] = lambda _: None) -> list[Row]:
    """PPO without and with CLOP in turns, in this process, on as many threads as torch has."""
    ppo = PPOConfig(num_steps=_NUM_STEPS, minibatches=1)
    learners = {
        name: build_learner(preset_config(game, "procgen-easy", ppo=ppo, methods=methods))
        for name, methods in {"ppo": {}, "clop": {"clop": Clop()}}.items()
    }
    for learner in learners.values():
        learner.games = _TimedGames(learner.games)  # type: ignore[assignment]
        learner.iterate()  # warm up
    times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in learners}
    peaks = []
    for turn in range(rounds):
        for name, learner in learners.items():
            times[name].append(_times(learner))
        peaks.append(_matmul_gflops())
        on_round(turn + 1)
    rows = []
    for name, values in times.items():
        env, act, learn = (1000 / ppo.batch * statistics.median(column) for column in zip(*values, strict=True))
        rows.append(Row(name, env, act, learn, statistics.median(peaks), ppo.epochs))
    return rows


def _times(learner: Learner) -> tuple[float, float, float]:
    """Seconds in the games, in acting, and in learning, of one iteration."""
    games: Any = learner.games
    games.seconds = 0.0
    start = time.perf_counter()
    learner.collect()
    collected = time.perf_counter()
    learner.update()
    return games.seconds, collected - start - games.seconds, time.perf_counter() - collected


def _matmul_gflops(size: int = 1024, repeats: int = 10) -> float:
    a, b = torch.randn(size, size), torch.randn(size, size)
    a @ b
    start = time.perf_counter()
    for _ in range(repeats):
        a @ b
    return repeats * 2 * size**3 / (time.perf_counter() - start) / 1e9
