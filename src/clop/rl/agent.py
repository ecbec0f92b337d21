"""Agent: a trained network and the method that knows how to act with it. Load one, ask it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from clop.errors import UsageError
from clop.kernels.winograd import fewer_products
from clop.rl.envs.spec import EnvSpec
from clop.rl.methods.base import Context, Method
from clop.rl.network import Network, Output


@dataclass(frozen=True)
class Agent:
    """A network and the method that knows how to act with it."""

    model: Network
    method: Method
    ctx: Context
    spec: EnvSpec
    """What the game shows and takes."""
    action_rng: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    """For the actions that :meth:`act` samples."""

    def act(self, obs: ArrayLike, *, greedy: bool = False) -> NDArray[np.int64]:
        """Actions on frames as the game shows them, in evaluation mode.

        Args:
            obs: uint8 (N, H, W, C)
            greedy: Whether to take the most probable actions instead of sampled ones.

        Returns:
            (N,) integers, the game's own: a game whose space is ``Discrete(3, start=1)`` gets 1, 2 and 3.
        """
        frames = np.asarray(obs)
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[1:] != self.spec.obs_shape:
            expected = ", ".join(map(str, self.spec.obs_shape))
            raise UsageError(f"expected uint8 frames of shape (N, {expected}), got {frames.dtype} of {frames.shape}")
        with in_evaluation(self.model):
            actions = choose_actions(self(torch.from_numpy(frames)), greedy, self.action_rng)
        return actions.numpy() + self.spec.first_action

    def __call__(self, obs: Tensor) -> Output:
        """Policy and value on uint8 frames (E, H, W, C), on the CPU; to be called inside :meth:`playing`."""
        # Nobody learns from what is said here, so it need not be said by the sums of an update.
        with torch.no_grad(), fewer_products():
            return self.method.act(obs.to(self.ctx.device), "eval", self.ctx).cpu()

    def notes(self) -> dict[str, str | float]:
        """Settings its scores depend on that its method chose, and what it cost beyond the counted steps."""
        return self.method.notes()

    @property
    def uses_batch_statistics(self) -> bool:
        """Whether what it makes of a frame depends on the frames beside it: batch norm without running statistics."""
        norms = (module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d))
        return any(not norm.track_running_stats for norm in norms)

    @contextmanager
    def playing(self, seed: int) -> Iterator[None]:
        """Evaluation mode, and noise from this seed for methods that draw while they act.

        Afterwards every module has its mode back and training draws on as if nothing had been: its generator too.
        """
        before = self.ctx.generator.get_state()
        self.ctx.generator.manual_seed(seed)
        try:
            with in_evaluation(self.model):
                yield
        finally:
            self.ctx.generator.set_state(before)


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module has its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def choose_actions(output: Output, greedy: bool, action_rng: torch.Generator) -> Tensor:
    """(E,) The most probable actions, or sampled ones."""
    return output.known_logits.argmax(-1) if greedy else output.sample(action_rng)
