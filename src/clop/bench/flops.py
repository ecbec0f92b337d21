"""How much there is to compute in a pass through a network."""

from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from clop.bench.iteration import forward_and_backward
from clop.rl.envs.spec import EnvSpec
from clop.rl.network import Network
from clop.rl.settings import NetworkConfig


class Gflop(NamedTuple):
    """Of one frame; a multiplication and its addition count as two."""

    forward: float
    both: float
    """Forward and backward: not quite three times forward, since frames need no gradient."""


def gflop_of(config: NetworkConfig, spec: EnvSpec) -> Gflop:
    """As counted in the convolutions and dense layers of the network."""
    network = Network(config, spec)
    frame = torch.zeros(1, *spec.obs_shape, dtype=torch.uint8)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        network(frame)
    with FlopCounterMode(display=False) as both:
        forward_and_backward(network, frame)
    return Gflop(forward.get_total_flops() / 1e9, both.get_total_flops() / 1e9)
