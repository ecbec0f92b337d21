"""Time functions in turns, so that what else the machine does falls on all of them alike."""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

_BLOCK = 0.005  # seconds
_WARM_UP = 10  # calls


def interleaved(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of one call of each function, all measured in the same rounds.

    In each round every function has one turn, in a random order. A turn is as many calls as take some milliseconds,
    so that a fast function is timed as in a loop of its own and not with the caches of a slow one before it.
    """
    names = list(functions)
    order = random.Random(0)
    calls = {name: _calls_in_a_turn(functions[name]) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in order.sample(names, len(names)):
            start = time.perf_counter()
            for _ in range(calls[name]):
                functions[name]()
            seconds[name].append((time.perf_counter() - start) / calls[name])
    return {name: statistics.median(values) for name, values in seconds.items()}


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return low, middle, high


def _calls_in_a_turn(function: Callable[[], object]) -> int:
    """By the fastest of some calls to warm up: the first ones have new memory, which takes longer than a small map."""
    took = list[float]()
    for _ in range(_WARM_UP):
        start = time.perf_counter()
        function()
        took.append(time.perf_counter() - start)
    return max(1, round(_BLOCK / min(took)))
