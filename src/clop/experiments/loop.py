"""The loop under every run: work goes on to its end in a folder, whatever comes between.

A run that is interrupted, killed, out of disk or no longer a number leaves a state from which it goes on bit for bit.
"""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from torch import Tensor

from clop.distributed import Workers
from clop.errors import DivergedError, UsageError
from clop.experiments.run_folder import RunFolder
from clop.progress import Progress


class Work(Protocol):
    """What is done step by step: an agent or a classifier in training."""

    @property
    def title(self) -> str:
        """What is trained, in a few words."""

    @property
    def unit(self) -> str:
        """What progress is counted in."""

    @property
    def total(self) -> int:
        """Units in all."""

    @property
    def done(self) -> int:
        """Units so far; names the checkpoints and is the horizontal axis of the events."""

    @property
    def finished(self) -> bool: ...

    def advance(self) -> Mapping[str, Any]:
        """One step; what to log of it, with its ``iteration``. A resumed run repeats it bit for bit, so no times."""

    def shown(self) -> Mapping[str, object]:
        """What the line of progress says besides rate and time left."""

    def events(self, row: Mapping[str, Any]) -> Mapping[str, float]:
        """A row as TensorBoard events: names with a group, and besides it the speed."""

    def state(self) -> dict[str, Any]:
        """All that the work needs to go on; the entry ``model`` is the network's state dict."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state`."""


class Stopped(Exception):  # noqa: N818
    """The user asked the run to stop."""


def run_to_end(
    work: Work, folder: RunFolder | None, checkpoint_seconds: float = 600, workers: Workers | None = None
) -> None:
    """Go on from the folder's last checkpoint, or from the start, to the end.

    Args:
        work: What to do.
        folder: Where the run lives; None in all processes but the first.
        checkpoint_seconds: How often the state is written, besides the end and an interrupt.
        workers: The processes of the run, all of which call this.
    """
    workers = workers or Workers()
    state = workers.broadcast(folder.load() if folder is not None else None)
    if state is not None:
        work.load(state)
    if folder is None:
        while not work.finished:
            work.advance()
            work.state()  # its parts are gathered in the first process
        return
    folder.forget_metrics_after(0 if state is None else state["iteration"])
    with _stop_on_signals(), _events(folder, work.done) as events:
        _run(work, folder, checkpoint_seconds, workers, events)


def _run(work: Work, folder: RunFolder, checkpoint_seconds: float, workers: Workers, events: Any) -> None:
    done = work.done
    state: dict[str, Any] | None = None
    saved, clock = done, time.monotonic()

    def save() -> None:
        nonlocal saved, clock
        if state is not None and done != saved:
            folder.save(state, done)
            saved, clock = done, time.monotonic()

    try:
        with Progress(work.title, work.total, work.unit, start=done) as progress:
            while not work.finished:
                row = work.advance()
                fresh = _copied(work.state())  # since the work goes on changing its tensors in place
                folder.log(row)
                progress.step(work.done - done, **work.shown(), run=str(folder.path))
                # In one statement, and after the log: an interrupt finds a state with its row, or the ones before.
                done, state = work.done, fresh
                for name, value in work.events(row).items():
                    events.add_scalar(name, value, done)
                if time.monotonic() - clock > checkpoint_seconds or work.finished:
                    save()
    except (Stopped, KeyboardInterrupt):
        with _deaf_to_signals():
            save()
        raise UsageError(f"stopped after {done} {work.unit}; go on with: {folder.resume_command}") from None
    except DivergedError as error:
        save()
        raise UsageError(f"{error}; {folder.path} holds the state before it" if done else str(error)) from None
    except OSError as error:
        raise UsageError(
            f"cannot write in {folder.path}: {error.strerror or error}; make room and go on with: "
            f"{folder.resume_command}"
        ) from error
    except RuntimeError as error:
        save()
        if workers.size > 1:
            told = str(error).partition("\n")[0]
            raise UsageError(
                f"another process of the run seems to have died ({told}); go on with: {folder.resume_command}"
            ) from error
        raise


def _copied(state: Any) -> Any:
    """A state with tensors of its own, in the memory of the CPU."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {name: _copied(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copied(value) for value in state)
    return state


@contextmanager
def resumable(folder: RunFolder) -> Iterator[None]:
    """What a user is told who interrupts a run before or after its loop."""
    try:
        yield
    except KeyboardInterrupt:
        raise UsageError(f"stopped; go on with: {folder.resume_command}") from None


def _stop_on_signals() -> AbstractContextManager[None]:
    """SIGINT and SIGTERM raise :class:`Stopped` here."""

    def stop(*_: object) -> None:
        raise Stopped

    return _handling(stop)


def _deaf_to_signals() -> AbstractContextManager[None]:
    """Nobody's impatience costs a checkpoint."""
    return _handling(signal.SIG_IGN)


@contextmanager
def _handling(handler: Any) -> Iterator[None]:
    """Handlers are put back at the end; signals come to the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _events(folder: RunFolder, done: int) -> Iterator[Any]:
    """A TensorBoard writer that goes on from here, or one that writes nothing where tensorboardX is missing."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        yield _NoEvents()
        return
    # What was logged beyond this step is hidden, since it will be logged again.
    with SummaryWriter(str(folder.path / "tensorboard"), purge_step=done + 1) as writer:
        yield writer


class _NoEvents:
    def add_scalar(self, *_: object) -> None:
        pass
