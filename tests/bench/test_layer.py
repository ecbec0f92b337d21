"""The baseline of the benchmark does what it is said to do."""

import itertools
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from clop.bench import timing
from clop.bench.layer import ALPHA, BY_HAND, by_hand, plain_python_layer
from clop.bench.timing import interleaved
from clop.functional import clop


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_the_plain_python_layer_follows_the_raster_rule(alpha):
    """P(position 0 stays) is exactly 1 - alpha / 4 for that rule, far from the paper's."""
    generator, draws = np.random.RandomState(0), 500
    x = torch.arange(64.0).view(1, 1, 8, 8)
    outputs = torch.stack([plain_python_layer(x, alpha, generator).flatten() for _ in range(draws)])
    assert torch.equal(outputs.sort(1).values, x.flatten().expand(draws, -1))
    stays = (outputs[:, 0] == 0).float().mean().item()
    assert stays == pytest.approx(1 - alpha / 4, abs=5 * (alpha / 4 / draws) ** 0.5)


@pytest.mark.parametrize("name", BY_HAND)
def test_layers_written_by_hand_do_what_ours_does(name):
    """Fails for a baseline that moves the wrong way, or whose gradient does, and would be compared all the same."""
    x, gradient = torch.rand(2, 3, 5, 4, requires_grad=True), torch.rand(2, 3, 5, 4)
    results = []
    for layer in (by_hand(BY_HAND[name]), lambda x: clop(x, ALPHA)):
        torch.manual_seed(0)
        y = layer(x)
        results.append((y, *torch.autograd.grad(y, x, gradient)))
    for theirs, ours in zip(*results, strict=True):
        assert torch.equal(theirs, ours)


def test_functions_take_turns_and_the_time_is_that_of_one_call(monkeypatch):
    """Fails if a turn of many calls is reported as one, or if a function always follows the same other."""
    calls, now = [], [0.0]
    monkeypatch.setattr(timing, "time", Mock(perf_counter=lambda: now[0]))

    def wait(name, seconds):
        calls.append(name)
        now[0] += seconds

    seconds = interleaved({"fast": lambda: wait("fast", 0.001), "slow": lambda: wait("slow", 0.01)}, rounds=10)
    assert seconds == pytest.approx({"fast": 0.001, "slow": 0.01})
    turns = [name for name, _ in itertools.groupby(calls[2 * timing._WARM_UP :])]
    assert 10 < len(turns) < 20, "in random order, some functions follow themselves"
