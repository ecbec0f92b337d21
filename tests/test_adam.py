"""Adam without the compiler is PyTorch's Adam."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import clop
from clop.adam import Adam


def trained(make, fused, steps=5, state=None):
    """A network after some steps with a rate that changes, and the state of its optimiser."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(1)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    optimiser = make(network.parameters(), 1e-2, eps=1e-5, fused=fused)
    if state is not None:
        optimiser.load_state_dict(copy.deepcopy(state))  # whose tensors it takes as its own
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 1e-2 / (1 + step)
        optimiser.zero_grad()
        network(torch.randn(2, 3, 8, 8, generator=generator)).square().mean().backward()
        optimiser.step()
    return list(network.parameters()), optimiser.state_dict()


@pytest.mark.parametrize("fused", [False, True])
def test_steps_and_state_are_pytorchs_to_the_bit(fused, assert_same_state):
    """Fails if a step is taken another way, if gradients add up, or if one cannot go on from the state of the other."""
    ours, our_state = trained(Adam, fused)
    theirs, their_state = trained(torch.optim.Adam, fused)
    assert_same_state(our_state, their_state)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    ours, our_state = trained(Adam, fused, state=their_state)
    theirs, their_state = trained(torch.optim.Adam, fused, state=their_state)
    assert_same_state(our_state, their_state)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_no_step_leaves_a_graph_behind():
    """Fails if the step is recorded by autograd, which would keep every step's tensors."""
    parameters, state = trained(Adam, fused=False, steps=2)
    assert all(parameter.is_leaf for parameter in parameters)
    assert not any(moments["exp_avg"].requires_grad for moments in state["state"].values())


def test_nothing_that_trains_goes_past_it():
    """PyTorch's own takes 1.5 s longer to start with. The benchmark's plain loop is as people write it."""
    source = Path(clop.__file__).parent
    users = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if "optim.Adam(" in path.read_text()}
    assert users == {"bench/vision.py"}
