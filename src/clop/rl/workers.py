"""The processes that learn together: each plays its share of the games, and all take the same steps."""

import os
from collections.abc import Iterable
from typing import Any

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

    def average_buffers(self, model: torch.nn.Module) -> None:
        """Replace the running statistics of batch norm by their mean over the processes."""
        if self.size > 1:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= self.size

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the first; an empty list in the others."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        dist.gather_object(value, values)
        return values or []

    def broadcast(self, value: Any) -> Any:
        """The value of the first process, in all."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]

    def share(self, count: int) -> int:
        """This process's part of a number that divides evenly."""
        assert count % self.size == 0, f"{count} does not divide by {self.size}"
        return count // self.size


def join(rendezvous: str | None = None) -> None:
    """Meet the other processes: at a file, or where torchrun's environment says."""
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"  # numbers on the CPU are summed too
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ["RANK"])))
    if rendezvous is None:
        dist.init_process_group(backend)
    else:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=size)


def leave() -> None:
    """Part from the other processes."""
    if dist.is_initialized():
        dist.destroy_process_group()
