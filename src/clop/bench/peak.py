"""The machine's peak: products of square matrices in float32, by whichever library multiplies faster."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from clop.bench.own_process import TakeTurns
from clop.kernels.dense import linear

_SIZE = 2048
_SECONDS = 2.0


def take_peaks(take_turns: TakeTurns) -> None:
    """Each turn reports ``gflops``, billions of operations a second."""
    a, b, zero = torch.randn(_SIZE, _SIZE), torch.randn(_SIZE, _SIZE), torch.zeros(_SIZE)

    def speed(multiply: Callable[[], Tensor], seconds: float) -> float:
        start, count = time.perf_counter(), 0
        while (spent := time.perf_counter() - start) < seconds:
            multiply()
            count += 1
        return count * 2 * _SIZE**3 / spent / 1e9

    ways: list[Callable[[], Tensor]] = [
        lambda: a @ b,
        lambda: linear(a, b, zero),
    ]  # MKL, and oneDNN, whose convolutions are what is compared
    with torch.no_grad():
        for way in ways:
            way()
        best = max(ways, key=lambda way: speed(way, _SECONDS / 4))
        take_turns(lambda: {"seconds": _SECONDS, "gflops": speed(best, _SECONDS)})
