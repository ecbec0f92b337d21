"""Agents outside of clop: the network as one function of frames, an ONNX graph as a network, and their comparison."""

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clop.errors import UsageError
from clop.rl.agent import Agent, in_evaluation
from clop.rl.envs.levels import LevelSet
from clop.rl.network import Network, Output

TOLERANCE = 1e-5
"""Largest difference of a logit between an agent and its export."""
_ENVS = 64


class Policy(nn.Module):
    """uint8 frames (N, H, W, C) in, logits (N, actions) and values (N,) out; what is written to a file."""

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(frames)
        return output.known_logits, output.known_value


class OnnxNetwork(nn.Module):
    """An ONNX file in place of the network of an :class:`~clop.rl.agent.Agent`; for acting, on the CPU."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        onnxruntime = required("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def forward(self, obs: Tensor) -> Output:
        logits, value = self.session.run(["logits", "value"], {"frames": obs.numpy()})
        return Output(torch.from_numpy(logits), torch.from_numpy(value))


def write_onnx(agent: Agent, path: Path) -> None:
    """The network as a graph with its preprocessing; any number of frames."""
    for package in ("onnx", "onnxscript"):
        required(package)
    example = torch.zeros((2, *agent.spec.obs_shape), dtype=torch.uint8)
    parameters = list(agent.model.parameters())
    asked = [parameter.requires_grad for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.requires_grad_(False)
        with in_evaluation(agent.model), _quiet_exporter():
            program: Any = torch.onnx.export(
                Policy(agent.model).eval(),
                (example,),
                dynamo=True,
                input_names=["frames"],
                output_names=["logits", "value"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
    finally:
        for parameter, before in zip(parameters, asked, strict=True):
            parameter.requires_grad_(before)
    program.save(str(path), external_data=False)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Torch's exporter warns of its own code, and logs that it found no torchvision, which nothing here needs."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


@dataclass(frozen=True)
class Parity:
    """How far an export is from its agent, on frames of the game."""

    frames: int
    logits_difference: float
    """The largest of any action and frame."""
    value_difference: float
    greedy_differences: int
    """Frames on which the most probable action is another."""
    tolerance: float = TOLERANCE

    @property
    def passed(self) -> bool:
        return self.logits_difference <= self.tolerance and self.greedy_differences == 0


def compare(
    agent: Agent,
    exported: Callable[[Tensor], Output],
    trained: LevelSet,
    frames: int,
    *,
    backend: str = "auto",
    seed: int = 0,
) -> Parity:
    """Ask both about frames that the agent meets when it plays: half of them on seen levels, half on unseen ones.

    They are asked about 64 frames at once, and about the first of them alone.
    """
    logits = value = 0.0
    others = seen = 0
    with agent.playing(seed), torch.no_grad():
        for obs in _played(agent, trained, frames, backend, seed):
            whole = torch.from_numpy(obs)
            for batch in (whole, whole[:1]) if seen == 0 else (whole,):
                ours, theirs = agent(batch), exported(batch)
                logits = max(logits, float((ours.known_logits - theirs.known_logits).abs().max()))
                value = max(value, float((ours.known_value - theirs.known_value).abs().max()))
                others += int((ours.known_logits.argmax(-1) != theirs.known_logits.argmax(-1)).sum())
            seen += len(obs)
    return Parity(seen, logits, value, others)


def _played(agent: Agent, trained: LevelSet, frames: int, backend: str, seed: int) -> Iterator[NDArray[np.uint8]]:
    """So many frames in all, at most 64 at once."""
    action_rng = torch.Generator().manual_seed(seed)
    splits = {"train": frames - frames // 2, "test": frames // 2}
    for split, left in splits.items():
        if left == 0:
            continue
        envs = min(_ENVS, left)
        with trained.split(split).open(envs, seed, backend) as games:
            while left > 0:
                obs = games.observe().obs
                yield obs[:left]
                left -= len(obs)
                games.step(agent(torch.from_numpy(obs)).sample(action_rng).numpy())


def required(module: str) -> Any:
    """A module of the extra ``export``, or a :class:`UsageError` that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(f'{module.partition(".")[0]} is not installed: pip install "clop[export]"') from None
