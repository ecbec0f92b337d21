"""Time functions in turns, so that what else the machine does falls on all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(functions: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 3) -> dict[str, float]:
    """Median seconds of one call of each function; every round calls each once, in an order that rotates."""
    names = list(functions)
    for name in names:
        for _ in range(warmup):
            functions[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds):
        shift = round_ % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            functions[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
