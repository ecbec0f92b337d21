"""Find what would end a job, before any job is started."""

from collections.abc import Sequence
from pathlib import Path

from clop.errors import UsageError
from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import free_bytes

_ROOM = 200 * 2**20  # bytes that a sweep needs at the very least


def check_jobs(jobs: Sequence[Job], *, data: Path | None = None, root: Path | None = None) -> None:
    """A :class:`UsageError` for methods that cannot be composed, games that are not there, a disk that is full."""
    from dataclasses import replace

    from clop.rl.build import check_run
    from clop.rl.config import TrainConfig
    from clop.rl.envs.backends import choose_backend

    if root is not None and free_bytes(root) < _ROOM:
        raise UsageError(f"the disk of {root} has only {free_bytes(root) / 2**20:.0f} MB left; make room first")
    if data is not None and not data.is_dir():
        raise UsageError(f"--data: expected a folder, got {data}")
    checked = set()
    for job in jobs:
        if job.kind != "agent":
            continue
        config = TrainConfig.fromdict(job.config)
        alike = repr(replace(config, seed=0))  # seeds are checked where they enter
        if alike in checked:
            continue
        checked.add(alike)
        try:
            check_run(replace(config, backend=choose_backend(config.backend, config.game)))
        except UsageError as error:
            raise UsageError(f"{job.title}: {error}") from None
