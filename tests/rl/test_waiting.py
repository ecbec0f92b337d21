"""How often the learner waits for its device, for every method. There need be no GPU: the device is torch's ``meta``,
whose tensors have no values, and every attempt to read one is counted and answered with zeros."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clop.rl.envs.levels import LevelSet
from clop.rl.methods import METHODS, compose, parse
from clop.rl.methods.base import Method, Settings
from clop.rl.ppo import Learner
from clop.rl.settings import NetworkConfig, PPOConfig

DEVICE = torch.device("meta")
SIZES = {"num_envs": 4, "num_steps": 2, "update_epochs": 2, "num_minibatches": 2, "micro_batch": 2}


class Waiting(TorchDispatchMode):
    """Counts what makes the host wait for the device: values that are read, and tensors that are copied back."""

    def __init__(self):
        super().__init__()
        self.reads, self.copies, self.frames = 0, 0, 0

    def __torch_dispatch__(self, function, types, arguments=(), settings=None):
        settings = settings or {}
        first = arguments[0] if arguments and isinstance(arguments[0], torch.Tensor) else None
        if function is torch.ops.aten._local_scalar_dense.default and first.device == DEVICE:
            self.reads += 1
            return 0.0 if first.is_floating_point() else 0
        if function is torch.ops.aten._to_copy.default and settings.get("device") is not None:
            there = torch.device(settings["device"])
            if first.device == DEVICE and there.type == "cpu":
                self.copies += 1
                return torch.zeros(first.shape, dtype=settings.get("dtype") or first.dtype)
            if first.device.type == "cpu" and there == DEVICE and first.dtype == torch.uint8:
                self.frames += 1
        return function(*arguments, **settings)


def learner(noise_games, method, **ppo):
    settings = Settings(LevelSet("bigfish"), PPOConfig(**(SIZES | ppo)), NetworkConfig(encoder="small"))
    made = Learner(settings, method, lambda _: noise_games(4), 1000, 0, DEVICE)
    with Waiting():
        made.method.begin_iteration(made.context())
        made.collect()
        made.method.prepare(made.rollout, made.context())
    return made


def waits_in_steps(made):
    """So often the host waits inside the optimiser steps of an update; and all that was counted in it."""
    step, inside = made._step, []

    def counted(*arguments):
        before = waiting.reads + waiting.copies
        logs = step(*arguments)
        inside.append(waiting.reads + waiting.copies - before)
        return logs

    made._step = counted
    with Waiting() as waiting:
        made.update()
    assert len(inside) > 1
    return sum(inside), waiting


@pytest.mark.parametrize("name", ["ppo", *METHODS])
def test_an_update_waits_at_its_end_and_nowhere_else(noise_games, name):
    """Fails for a method that reads a loss in every step: the device then idles until it is told what comes next."""
    inside, _ = waits_in_steps(learner(noise_games, compose(parse(name))))
    assert inside == 0


@pytest.mark.parametrize("name", ["ppo", *METHODS])
def test_a_step_of_a_rollout_has_one_transfer(noise_games, name):
    made = learner(noise_games, compose(parse(name)))
    counts = []
    for steps in (1, 2):
        made.config = PPOConfig(**(SIZES | {"num_steps": steps}))
        with Waiting() as waiting:
            made.collect()
        counts.append((waiting.reads, waiting.copies))
    (reads, copies), (more_reads, more_copies) = counts
    assert (more_reads - reads, more_copies - copies) == (0, 1)


class Curious(Method):
    """Reads the loss of every step."""

    def penalty(self, batch, views, phase, ctx):
        views[0].output.known_value.detach().mean().item()
        return None, {}


def test_a_method_that_waits_in_every_step_is_seen(noise_games):
    """The control: without it, a device whose reads are not counted would pass."""
    inside, _ = waits_in_steps(learner(noise_games, Curious()))
    assert inside == 8  # micro-batches of two epochs


@pytest.mark.parametrize("name", ["ppo", *METHODS])
def test_frames_go_to_the_device_once_in_an_update(noise_games, name):
    """Fails if each minibatch is sent on its own, which repeats it in every epoch."""
    _, waiting = waits_in_steps(learner(noise_games, compose(parse(name))))
    assert waiting.frames == 1


def test_frames_that_do_not_fit_go_there_with_their_minibatch(noise_games, monkeypatch):
    made = learner(noise_games, Method())
    monkeypatch.setattr("clop.rl.ppo.free_memory", lambda device: 1)
    _, waiting = waits_in_steps(made)
    assert waiting.frames == 8
