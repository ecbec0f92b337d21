"""``clop bench layer``: what the layer costs, against copying the map, channel dropout and a plain-Python layer."""

import math
import subprocess
import sys
from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clop import machine
from clop.bench.benchmark import Report, Result, silent
from clop.bench.comparison import ComparisonSettings, Row, result
from clop.bench.timing import interleaved
from clop.functional import clop, sample_permutation

ALPHA = 0.5
DESCRIPTION = (
    "Time the layer, forward and backward in float32, in turns with copying the map and its gradient, with Dropout2d, "
    "with what people write by hand, and with a plain-Python layer that follows the authors' code. About a minute."
)
Settings = ComparisonSettings


def run(settings: Settings, report: Report = silent) -> Result:
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    machine.keep_memory()  # new pages take longer than a small map, and whose turn pays for them is chance
    return result(measure(settings, report))


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All comparisons, on as many threads as torch has."""
    rounds, rows = settings.rounds, list[Row]()

    def add(what: str, ours: float, baselines: dict[str, float]) -> None:
        for baseline, seconds in baselines.items():
            rows.append(Row(what, 1e3 * ours, baseline, 1e3 * seconds))
            report(f"measured {what} against {baseline}")

    for layout in (torch.contiguous_format, torch.channels_last):
        name = "NCHW" if layout is torch.contiguous_format else "channels-last"
        times = _passes((2048, 32, 8, 8), layout, rounds, backward=True, with_python=False)
        add(f"2048×32×8×8 {name}, forward and backward", times.pop("clop"), times)
    for shape in ((64, 32, 8, 8), (64, 16, 32, 32)):
        for backward in (False, True):
            times = _passes(shape, torch.contiguous_format, max(5, rounds // 4), backward=backward, with_python=True)
            name = "forward and backward" if backward else "forward"
            add(f"{'×'.join(map(str, shape))} NCHW, {name}", times.pop("clop"), times)

    draws = interleaved(
        {
            "one": lambda: sample_permutation((8, 8), ALPHA),
            "randperm": lambda: torch.randperm(64),
        },
        rounds=20 * rounds,
    )
    add("draw one 8×8 permutation", draws["one"], {"torch.randperm(64)": draws["randperm"]})
    draws = interleaved(
        {
            "many": lambda: sample_permutation((8, 8), ALPHA, num=2048),
            "randperm": lambda: torch.rand(2048, 64).argsort(1),
        },
        rounds=rounds,
    )
    add("draw 2048 of them", draws["many"], {"torch.rand(2048, 64).argsort(1)": draws["randperm"]})

    starts = [_start_up() for _ in range(3)]
    torch_s, clop_s, call_s = (sorted(column)[1] for column in zip(*starts, strict=True))
    add("import clop", clop_s, {"import torch": torch_s})
    add("first call in a new process, compiled before", call_s, {"import torch": torch_s})
    return rows


def _passes(
    shape: tuple[int, ...], layout: torch.memory_format, rounds: int, *, backward: bool, with_python: bool
) -> dict[str, float]:
    """Seconds of a forward pass, or forward and backward, of ours and the baselines on maps of one shape."""
    x = torch.randn(shape).to(memory_format=layout).requires_grad_()
    gradient = torch.randn(shape).to(memory_format=layout)
    generator = np.random.RandomState(0)  # the authors draw with the legacy one too

    def passes(layer: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return (lambda: torch.autograd.grad(layer(x), x, gradient)) if backward else (lambda: layer(x))

    data = x.detach()
    functions: dict[str, Callable[[], object]] = {
        "clop": passes(lambda x: clop(x, ALPHA)),
        "Dropout2d": passes(lambda x: F.dropout2d(x, ALPHA)),
        **{name: passes(by_hand(move)) for name, move in BY_HAND.items()},
    }
    if backward:
        functions["two clones"] = lambda: (data.clone(), gradient.clone())
    else:
        functions["clone"] = lambda: data.clone()
    if with_python:
        functions["plain-Python layer"] = passes(lambda x: plain_python_layer(x, ALPHA, generator))
    return interleaved(functions, rounds)


BY_HAND: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x.flatten(2)[..., p]": lambda flat, p: flat[..., p],
    "index_select": lambda flat, p: flat.index_select(2, p),
    "gather": lambda flat, p: flat.gather(2, p.expand_as(flat)),
}
"""What people write in one line once they have a permutation p: (N, C, positions) to the same, moved."""


def by_hand(move: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A layer of such a line, with permutations drawn as ours are."""
    return lambda x: move(x.flatten(2), sample_permutation(x.shape[2:], ALPHA)).view_as(x)


def plain_python_layer(x: Tensor, alpha: float, generator: np.random.RandomState) -> Tensor:
    """The rule of the authors' code (``variant="raster"``) at its pace: what theirs does at each visit, this does too.

    A categorical draw of numpy's legacy generator per visit, swaps in a tensor, an index for each sample and channel.
    """
    positions = x.shape[2] * x.shape[3]
    width = math.isqrt(positions)
    index = torch.arange(positions)
    offsets, probabilities = [0, 1, -1, width, -width], [1 - alpha / 2] + 4 * [alpha / 8]
    for p in [*range(positions - 1, 0, -1), *range(positions)]:
        offset = offsets[generator.choice(5, p=probabilities)]
        if offset and 0 < p + offset < positions:
            here, there = int(index[p]), int(index[p + offset])
            index[p], index[p + offset] = there, here
    return x.flatten(2).gather(2, index.repeat(*x.shape[:2], 1)).view_as(x)


_START_UP = """
import time
start = time.perf_counter()
import torch
torch_done = time.perf_counter()
import clop
clop_done = time.perf_counter()
clop.clop(torch.zeros(2, 3, 8, 8), 0.5)
print(torch_done - start, clop_done - torch_done, time.perf_counter() - clop_done)
"""


def _start_up() -> tuple[float, ...]:
    """Seconds of ``import torch``, of ``import clop`` after it, and of the first call, in a process of their own."""
    answer = subprocess.run([sys.executable, "-c", _START_UP], capture_output=True, text=True, check=True).stdout
    return tuple(map(float, answer.split()))
