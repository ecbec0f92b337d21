"""``python -m clop.experiments.sweep.worker``: one job in a process of its own; the exit status says how it ended.

The job comes on the standard input, as :class:`Order` writes it. A worker whose supervisor dies is asked to stop, and
saves its state: whoever goes on with the sweep finds nothing running that it did not start.
"""

import json
import signal
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clop import machine
from clop.errors import ResumableError, StoppedError, UsageError

DONE, DIED, MISTAKE, HELD, STOPPED = 0, 1, 3, 4, 5
"""Exit statuses: the run is complete; it can go on; it never can, for its settings are wrong; another writes in it; it
was asked to stop and has saved its state."""


@dataclass(frozen=True)
class Order:
    """What a worker is to do."""

    kind: str
    config: dict[str, Any]
    folder: str
    device: str | None
    data: str | None
    checkpoint_seconds: float
    command: list[str]
    """The words of the command that started the sweep, to stand in the run's record."""
    parent: int
    """The process that waits for this one."""

    def json(self) -> str:
        return json.dumps(asdict(self))


def work(order: Order) -> None:
    """Bring the run to its end."""
    sys.argv = order.command
    folder = Path(order.folder)
    if order.kind == "agent":
        from clop.experiments.agents import run_processes
        from clop.rl.config import TrainConfig

        run_processes(TrainConfig.fromdict(order.config), folder, order.device, order.checkpoint_seconds)
        return
    from clop.experiments.vision import run
    from clop.vision.train import VisionConfig

    machine.keep_memory()
    data = None if order.data is None else Path(order.data)
    config, device = VisionConfig.fromdict(order.config), order.device or "cpu"
    run(config, folder, device, data=data, checkpoint_seconds=order.checkpoint_seconds)


def main() -> int:
    order = Order(**json.load(sys.stdin))
    machine.end_with(order.parent, signal.SIGTERM)
    from clop.experiments.lease import HeldError

    try:
        work(order)
    except HeldError as error:
        print(f"clop: {error}", file=sys.stderr)  # noqa: T201
        return HELD
    except StoppedError as error:
        print(f"clop: {error}", file=sys.stderr)  # noqa: T201
        return STOPPED
    except ResumableError as error:
        print(f"clop: {error}", file=sys.stderr)  # noqa: T201
        return DIED
    except UsageError as error:
        print(f"clop: {error}", file=sys.stderr)  # noqa: T201
        return MISTAKE
    except Exception:
        traceback.print_exc()
        return DIED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
