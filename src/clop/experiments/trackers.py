"""Where the metrics of a run are shown besides its folder: TensorBoard, and Weights & Biases if asked for.

A run's folder is the truth and holds all that is logged here. A tracker never changes a run: it is handed numbers.
"""

import importlib.util
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Protocol

from clop.errors import UsageError, unknown_name
from clop.experiments.run_folder import RunFolder


class Tracker(Protocol):
    """Something that shows numbers over steps."""

    def log(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Events in the run's folder. What was logged beyond the step that a run goes on from is hidden."""

    def __init__(self, folder: RunFolder, done: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=done + 1)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of Weights & Biases in the project ``clop``, or the one that ``WANDB_PROJECT`` names.

    Its identifier is kept in the folder, so that a resumed run goes on in the same curve; steps that are logged twice
    are the same numbers, and the service keeps the first.
    """

    mode: Literal["offline"] | None = None
    """As ``WANDB_MODE`` says if None."""

    def __init__(self, folder: RunFolder, done: int) -> None:
        import wandb

        path = folder.path / "wandb-id.txt"
        if not path.exists():
            path.write_text(uuid.uuid4().hex[:12])
        self._run = wandb.init(
            project=None if "WANDB_PROJECT" in os.environ else "clop",
            id=path.read_text().strip(),
            name=folder.path.name,
            config=folder.config,
            dir=str(folder.path),
            resume="allow",
            mode=self.mode,
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class WandbOffline(Wandb):
    """The same without network and account; ``wandb sync`` uploads it later."""

    mode = "offline"


TRACKERS: Mapping[str, tuple[str, Callable[[RunFolder, int], Tracker]]] = {
    "wandb": ("wandb", Wandb),
    "wandb-offline": ("wandb", WandbOffline),
}
"""By name: the package that each needs, and how it is opened. A new one is a class and a line here."""


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def check_trackers(names: Sequence[str]) -> None:
    """A :class:`UsageError` for a tracker that is unknown or not installed."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(unknown_name("tracker", name, TRACKERS))
        package, _ = TRACKERS[name]
        if not installed(package):
            raise UsageError(f"--track {name} needs {package}, which is not installed: pip install {package}")


@contextmanager
def tracking(
    names: Sequence[str], folder: RunFolder, done: int
) -> Iterator[Callable[[Mapping[str, float], int], None]]:
    """A function that tells all trackers: those named, and TensorBoard where it is installed.

    Args:
        names: Of :data:`TRACKERS`.
        folder: The run.
        done: The step that it goes on from.
    """
    makers = [TRACKERS[name][1] for name in dict.fromkeys(names)]
    if installed("tensorboardX"):
        makers.insert(0, TensorBoard)
    with ExitStack() as stack:
        trackers: list[Any] = []
        for make in makers:
            trackers.append(make(folder, done))
            stack.callback(trackers[-1].close)

        def log(values: Mapping[str, float], step: int) -> None:
            for tracker in trackers:
                tracker.log(values, step)

        yield log
