"""RunRecord: what a run leaves behind, so that every number can be traced to a command, a commit and a machine."""

import dataclasses
import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clop import machine
from clop.errors import UsageError
from clop.files import write_json


@dataclass(frozen=True)
class RunRecord:
    """One run: what was asked, what came out, and where and how it ran."""

    kind: str
    """What was run, such as ``vision`` or ``bench layer``."""
    config: dict[str, Any]
    """All that decides the numbers, the seed included."""
    metrics: dict[str, Any]
    ended: str
    """``complete``; a run that has not ended leaves no record but its folder."""
    command: str
    commit: str | None
    """The commit of the code, with ``-dirty`` if it was changed; None outside a checkout."""
    started: str
    seconds: float
    machine: dict[str, Any]

    def write(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "RunRecord":
        try:
            values = json.loads(path.read_text())
        except FileNotFoundError:
            raise UsageError(f"no run record at {path}") from None
        except ValueError as error:
            raise UsageError(f"{path} is no run record: expected JSON, {error}") from None
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(values, dict) or set(values) != names:
            raise UsageError(f"{path} is no run record: expected the entries {', '.join(sorted(names))}")
        return cls(**values)


class RecordBuilder:
    """Started before a run; makes its record after."""

    def __init__(self, kind: str, config: dict[str, Any]) -> None:
        self.kind, self.config = kind, config
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()

    def record(self, metrics: dict[str, Any]) -> RunRecord:
        return RunRecord(
            kind=self.kind,
            config=self.config,
            metrics=metrics,
            ended="complete",
            command=command_line(),
            commit=commit(),
            started=self._started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self._clock, 3),
            machine=machine.describe(),
        )


def command_line() -> str:
    """The command as a user would type it."""
    program = Path(sys.argv[0]).name
    return shlex.join([*(["python", "-m", "clop"] if program == "__main__.py" else [program]), *sys.argv[1:]])


def commit() -> str | None:
    """The commit this package runs from, None if it is not in a checkout."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # an installed copy may lie in somebody's repository
        revision, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{revision}-dirty" if changed else revision


def _git(*words: str) -> str:
    asked = {"cwd": Path(__file__).parent, "capture_output": True, "text": True, "check": True, "timeout": 10}
    return subprocess.run(["git", *words], **asked).stdout.strip()  # type: ignore[call-overload]
