"""The loop under every run: training goes on to its end in a folder, whatever comes between.

A run that is interrupted, killed, out of disk or no longer a number leaves a state from which it goes on bit for bit.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from clop.distributed import Workers, why_lost
from clop.errors import DivergedError, ResumableError, StoppedError, UsageError
from clop.experiments.interrupts import handling
from clop.experiments.run_folder import RunFolder
from clop.experiments.trackers import tracking
from clop.progress import Progress

_SHOWN_EVERY = 2.0  # seconds between notes of progress in the folder


class Trainable(Protocol):
    """What is trained step by step: an agent or a classifier."""

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

    def step(self) -> Mapping[str, Any]:
        """One step; what to log of it, with its ``iteration``. A resumed run repeats it bit for bit, so no times."""

    def progress(self) -> Mapping[str, object]:
        """What the line of progress says besides rate and time left."""

    def events(self, row: Mapping[str, Any]) -> Mapping[str, float]:
        """A row as trackers show it: names with a group, and besides it the speed."""

    def state(self) -> dict[str, Any]:
        """All that is needed to go on; the entry ``model`` is the network's state dict. Tensors may be those in use:
        the state is written before the next step."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state`."""


class Stopped(BaseException):
    """The user wants the run to stop at once; no ``except Exception`` of a game is to swallow it."""


def run_to_end(
    work: Trainable,
    folder: RunFolder | None,
    checkpoint_seconds: float = 600,
    workers: Workers | None = None,
    track: Sequence[str] = (),
) -> None:
    """Go on from the folder's last checkpoint, or from the start, to the end.

    An interrupt lets the step at hand end and saves the state after it, so that no copy of a state has to be kept; a
    second one stops at once, and the run goes on from the last checkpoint. Only the first process heeds them.

    Args:
        work: What to train.
        folder: Where the run lives; None in all processes but the first.
        checkpoint_seconds: How often the state is written, besides the end and an interrupt.
        workers: The processes of the run, all of which call this.
        track: Trackers that are shown the metrics, besides TensorBoard.
    """
    workers = workers or Workers()
    state = workers.broadcast(folder.load() if folder is not None else None)
    if state is not None:
        work.load(state)
    if folder is None:
        with handling(signal.SIG_IGN):  # torchrun interrupts all processes, and the first needs the others to save
            while not work.finished:
                work.step()
                if workers.broadcast(None):
                    work.state()  # its parts are gathered in the first process
        return
    folder.forget_metrics_after(0 if state is None else state["iteration"])
    interrupts = _Interrupts(work.title)
    with handling(interrupts), tracking(track, folder, work.done) as log:
        _run(work, folder, checkpoint_seconds, workers, interrupts, log)


def _run(
    work: Trainable,
    folder: RunFolder,
    checkpoint_seconds: float,
    workers: Workers,
    interrupts: "_Interrupts",
    log: Callable[[Mapping[str, float], int], None],
) -> None:
    saved, clock, shown = work.done, time.monotonic(), 0.0
    try:
        with Progress(work.title, work.total, work.unit, start=saved) as progress:
            while not work.finished:
                before = work.done
                row = work.step()
                folder.log(row)
                progress.step(work.done - before, **work.progress(), run=str(folder.path))
                if time.monotonic() - shown > _SHOWN_EVERY:
                    folder.show_progress({"unit": work.unit, **progress.state(), **work.progress()})
                    shown = time.monotonic()
                log(work.events(row), work.done)
                stops = interrupts.came
                save = stops or work.finished or time.monotonic() - clock > checkpoint_seconds
                workers.broadcast(save)
                if save:
                    state = work.state()
                    with interrupts.held_back():
                        folder.save(state, work.done)
                        saved, clock = work.done, time.monotonic()
                if stops and not work.finished:
                    raise StoppedError(f"stopped after {saved} {work.unit}; go on with: {folder.resume_command}")
    except (Stopped, KeyboardInterrupt):
        raise StoppedError(
            f"stopped at once; the last checkpoint is after {saved} {work.unit}, go on with: {folder.resume_command}"
        ) from None
    except DivergedError as error:
        kept = _what_is_kept(folder, saved, work.unit)
        raise UsageError(f"{error}; {kept}; try a smaller learning rate") from None
    except OSError as error:
        raise ResumableError(
            f"cannot write in {folder.path}: {error.strerror or error}; make room and go on with: "
            f"{folder.resume_command}"
        ) from error
    except ResumableError:
        raise  # it says how to go on
    except UsageError as error:  # of a game, say
        kept = _what_is_kept(folder, saved, work.unit)
        raise UsageError(f"{error}; {kept}, go on with: {folder.resume_command}") from error
    except RuntimeError as error:
        if (why := why_lost(error)) is None:
            raise
        kept = _what_is_kept(folder, saved, work.unit)
        raise ResumableError(f"{why}; {kept}, go on with: {folder.resume_command}") from error


def _what_is_kept(folder: RunFolder, saved: int, unit: str) -> str:
    if not folder.has_checkpoint:
        return f"{folder.path} holds no state yet"
    return f"{folder.path} holds the state after {saved} {unit}"


@contextmanager
def resumable(folder: RunFolder) -> Iterator[None]:
    """What a user reads who interrupts a run before or after its loop."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; go on with: {folder.resume_command}") from None


class _Interrupts:
    """Whether SIGINT or SIGTERM has come; a second one raises :class:`Stopped`."""

    def __init__(self, title: str) -> None:
        self.came = False
        self._title, self._held_back = title, False

    def __call__(self, *_: object) -> None:
        if self.came and not self._held_back:
            raise Stopped
        if not self.came:
            with suppress(RuntimeError):  # if it comes in the middle of another line
                print(f"\nclop: {self._title} stops after this step; once more to stop at once", file=sys.stderr)  # noqa: T201
        self.came = True

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """A checkpoint that is being written is written to its end."""
        self._held_back = True
        try:
            yield
        finally:
            self._held_back = False
