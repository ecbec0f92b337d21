"""Where the time of one iteration of a learner goes."""

import time
from collections.abc import Callable
from typing import Any

from clop.rl.ppo import Learner


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
