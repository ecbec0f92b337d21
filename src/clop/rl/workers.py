"""The processes that learn together: each plays its share of the games, and all take the same steps."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor


class Workers:
    """This process among those of the run; with one process every operation is for free.

    Every process holds the same weights. Gradients are averaged before each step, so k processes with a share of the
    minibatch each do what one would do with all of it.
    """

    def __init__(self) -> None:
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, the same bits in each."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace gradients by their mean over the processes, in one message."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.size
        offset = 0
        for gradient in gradients:
            gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
            offset += gradient.numel()

    def share(self, count: int) -> int:
        """This process's part of a number that divides evenly."""
        assert count % self.size == 0, f"{count} does not divide by {self.size}"
        return count // self.size
