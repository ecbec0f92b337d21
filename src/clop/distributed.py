"""The processes that learn together: each plays its share of the games, and all take the same steps."""

import contextlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from clop.errors import UsageError
from clop.shared_mean import SharedMean, open_shared_mean

Result = TypeVar("Result")


class Workers:
    """This process among those of the run; with one process every operation is for free.

    Every process holds the same weights. Gradients are averaged before each step, and advantages and rewards normalised
    over all processes, so k processes with a share of the games each do what one would do with all of them.
    """

    def __init__(self) -> None:
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self._shared: dict[int, SharedMean | None] = {}  # by the number of gradients

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, the same bits in each."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def mean(self, values: Mapping[str, float]) -> dict[str, float]:
        """The mean of each number over the processes, which name them alike."""
        total = self.sum(torch.tensor(list(values.values()), dtype=torch.float64))
        return dict(zip(values, (total / self.size).tolist(), strict=True))

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace gradients by their mean over the processes, all at once."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if (shared := self._shared_mean(gradients)) is not None:
            flat = shared(gradients)
        else:
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            flat /= self.size
        offset = 0
        for gradient in gradients:
            gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
            offset += gradient.numel()

    def _shared_mean(self, gradients: list[Tensor]) -> SharedMean | None:
        """For numbers on the CPU of one machine."""
        if not all(gradient.is_cpu and gradient.dtype == torch.float32 for gradient in gradients):
            return None
        count = sum(gradient.numel() for gradient in gradients)
        if count not in self._shared:
            self._shared[count] = open_shared_mean(count)
        return self._shared[count]

    def average_statistics(self, model: torch.nn.Module) -> None:
        """Replace the running statistics of batch norm by their mean over the processes."""
        for module in model.modules():
            if self.size > 1 and isinstance(module, torch.nn.BatchNorm2d) and module.track_running_stats:
                for statistic in (module.running_mean, module.running_var):
                    assert statistic is not None
                    self.sum(statistic).div_(self.size)

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


def run_together(size: int, device: str, body: Callable[[], Result]) -> Result:
    """Run ``body`` in this process and ``size - 1`` others, which end with this one; what it returns here.

    Other processes are forked where that is safe: they then share the memory of all that is loaded, which is half a
    gigabyte with procgen's pictures. CUDA does not survive a fork.
    """
    if "RANK" in os.environ:  # torchrun has started the others, and init_process_group reads where they meet
        return _joined(body, device, int(os.environ.get("LOCAL_RANK", os.environ["RANK"])))
    if size == 1:
        return body()
    check_gpus(size, device)
    fork = sys.platform == "linux" and not device.startswith("cuda")
    context = multiprocessing.get_context("fork" if fork else "spawn")
    with tempfile.TemporaryDirectory(prefix="clop-") as folder:
        meeting = {"init_method": f"file://{folder}/store", "world_size": size}
        # mypy knows no common base of the contexts that has Process.
        others: list[Any] = [
            context.Process(  # type: ignore[attr-defined]
                target=_other, args=(body, device, rank, {**meeting, "rank": rank}), daemon=True
            )
            for rank in range(1, size)
        ]
        try:
            for other in others:
                other.start()
            result = _joined(body, device, 0, {**meeting, "rank": 0})
            for other in others:
                other.join(timeout=60)
            return result
        finally:
            for other in others:
                other.kill()
                other.join()


def together(jobs: Iterable[Callable[[], Result]]) -> list[Result]:
    """What each job returns, all done at the same time on the CPU: the first in this process, each other in one forked
    from it. A single job, or any where processes cannot be forked, are done here one after the other."""
    waiting = list(jobs)
    if len(waiting) == 1 or sys.platform != "linux":
        return [job() for job in waiting]
    context = multiprocessing.get_context("fork")
    others = []
    try:
        for job in waiting[1:]:
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_send_outcome, args=(job, there), daemon=True)
            process.start()
            there.close()  # so that reading ends if the process dies
            others.append((process, here))
        results = [waiting[0]()]
        for _, here in others:
            try:
                result, error = here.recv()
            except EOFError:
                raise UsageError("another process of this command has died; do it once more with one process") from None
            if error is not None:
                raise error
            results.append(result)
        return results
    finally:
        for process, _ in others:
            process.kill()
            process.join()


def _send_outcome(job: Callable[[], Any], pipe: Any) -> None:
    """Do a job silently, and send its result or its error."""
    if hasattr(os, "setsid"):
        os.setsid()  # so that Ctrl-C reaches the first process alone, which stops the others
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        outcome: tuple[Any, Exception | None]
        try:
            outcome = (job(), None)
        except Exception as error:  # raised where it is read
            outcome = (None, error)
    pipe.send(outcome)


def check_gpus(size: int, device: str) -> None:
    """Each process has a GPU of its own; two that share one would wait for each other for ever."""
    if size == 1 or not device.startswith("cuda") or "RANK" in os.environ:
        return
    if device != "cuda":
        raise UsageError(f"{size} processes choose their GPUs themselves; leave out the number in --device {device}")
    if size > (found := torch.cuda.device_count()):
        raise UsageError(f"{size} processes need as many GPUs, and here are {found}; use --processes {found}")


def _other(body: Callable[[], Any], device: str, gpu: int, meeting: Mapping[str, Any]) -> None:
    if hasattr(os, "setsid"):
        os.setsid()  # so that Ctrl-C reaches the first process alone, which stops the others
    _joined(body, device, gpu, meeting)


def _joined(
    body: Callable[[], Result], device: str, gpu: int, meeting: Mapping[str, Any] = MappingProxyType({})
) -> Result:
    """What ``body`` returns, run when all processes have met."""
    backend = "gloo"
    if device.startswith("cuda"):
        backend = "cpu:gloo,cuda:nccl"  # numbers on the CPU are summed too
        torch.cuda.set_device(gpu)
    dist.init_process_group(backend, **meeting)
    try:
        return body()
    except Exception as error:
        why = why_lost(error)
        if Workers().is_first:
            if why is not None:
                raise UsageError(why) from error
            raise
        if why is None:  # the first process reads it where it waits for this one, and says it
            _store().set(_WHY, str(error) if isinstance(error, UsageError) else _of_ours(error))
            if not isinstance(error, UsageError):
                raise
        sys.exit(1)
    finally:
        dist.destroy_process_group()


_WHY = "clop/why"  # where a process leaves the reason of its end for the first


def why_lost(error: BaseException) -> str | None:
    """Why another process of the run has ended, if an error comes from waiting for it; None if it does not."""
    if not isinstance(error, RuntimeError) or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
        return None
    try:
        if _store().check([_WHY]):
            return bytes(_store().get(_WHY)).decode()
    except RuntimeError:  # it was kept by the process that is gone
        pass
    return "another process of the run has died, for want of memory or killed by somebody"


def _of_ours(error: Exception) -> str:
    return f"another process of the run failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _store() -> Any:
    """What all processes of the run can write to, and read after one of them has ended."""
    return dist.distributed_c10d._get_default_store()
