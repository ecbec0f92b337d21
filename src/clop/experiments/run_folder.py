"""RunFolder: where a run lives. Nothing in it is overwritten, and a run that was killed goes on from it.

``config.json``    what was asked, with which code, on which machine; written first
``metrics.jsonl``  one line per iteration
``checkpoints/``   the last two states and ``last.pt``; its entry ``model`` is the network's state dict
``tensorboard/``   the same metrics as events
``summary.json``   the outcome; written last, and named by its steps when the run grows beyond it
``progress.json``  where it stands, for people who look on; not part of the outcome
``lease.json``     who is writing in it, while somebody is
"""

import dataclasses
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from clop import machine
from clop.errors import ResumableError, UsageError
from clop.experiments.lease import Lease
from clop.experiments.record import command_line, commit
from clop.experiments.summaries import FORMAT_VERSION, check_version
from clop.files import write_atomic, write_json

_Settings = TypeVar("_Settings")

_KEPT = 2
_COMMANDS = {"agent": "clop train", "vision": "clop vision"}  # by kind of run


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lease: Lease | None = None
        """The right to write in it, inside :meth:`held`."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other writers out; one that is there already is named in a :class:`~clop.errors.UsageError`."""
        self.lease = lease = Lease.take(self.path)
        try:
            yield
        finally:
            self.lease = None
            lease.give_back()

    def beating(self) -> AbstractContextManager[None]:
        """Show others that the writer is alive; inside :meth:`held`, and in a thread of its own, beside which no
        process must be forked."""
        assert self.lease is not None
        return self.lease.beating()

    @classmethod
    def create(cls, path: Path, kind: str, config: Mapping[str, Any], command: str | None = None) -> "RunFolder":
        """A new folder, or an empty one; any other is refused.

        Args:
            path: The folder.
            kind: What is trained in it.
            config: The settings.
            command: What was typed to get it; the command of this program if not given.
        """
        if path.exists() and (not path.is_dir() or _belongs_to_somebody(path)):
            if _holds_same(path, kind, config):
                return cls(path)  # made by another process in this moment; the lease decides who writes
            hint = f"go on with it by --resume {path}, or name" if (path / "config.json").exists() else "name"
            raise UsageError(
                f"{path} is not empty and nothing in it will be overwritten; {hint} another folder with --out"
            )
        write_json(
            path / "config.json",
            {
                "version": FORMAT_VERSION,
                "kind": kind,
                "config": dict(config),
                **origin(command),
            },
        )
        (path / "checkpoints").mkdir(exist_ok=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path, kind: str) -> "RunFolder":
        """The folder of an earlier run of this kind."""
        folder = cls(path)
        found = folder.about().get("kind")
        if found != kind:
            raise UsageError(f"{path} holds a run of kind {found!r}, expected {kind!r}")
        return folder

    def about(self) -> dict[str, Any]:
        """What ``config.json`` says; one of another format is refused."""
        path = self.path / "config.json"
        values = _read_json(path, f"{self.path} holds no run: it has no config.json")
        check_version(values, path)
        return values

    @property
    def config(self) -> dict[str, Any]:
        return self.read_config(dict)

    def read_config(self, read: Callable[[Mapping[str, Any]], _Settings]) -> _Settings:
        """The settings of the run, as ``read`` makes them of plain names and numbers."""
        try:
            return read(self.about()["config"])
        except (KeyError, TypeError) as error:
            path = self.path / "config.json"
            raise UsageError(f"{path} is damaged, or of another version of clop: {error}") from None

    @property
    def summary(self) -> dict[str, Any] | None:
        """The outcome, None before the end."""
        path = self.path / "summary.json"
        return _read_json(path, "") if path.exists() else None

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        if self.lease is not None:
            self.lease.check()
        write_json(self.path / "summary.json", dict(summary))

    def earlier_summaries(self) -> list[tuple[dict[str, Any], Path]]:
        """The outcomes at earlier ends of a run that has grown, the first one first."""
        return [(_read_json(path, ""), path) for path in sorted(self.path.glob("summary-*.json"))]

    def grow(self, config: Mapping[str, Any], steps: int) -> None:
        """Let the run have these settings, a larger total among them; its outcome after ``steps`` stays in the folder.

        Killed at any moment, it can be called again.
        """
        if self.lease is not None:
            self.lease.check()
        about = self.about()
        if self.summary is not None:
            (self.path / "summary.json").replace(self.path / f"summary-{steps:012}.json")
        grown = {"from": about["config"], **origin()}
        write_json(
            self.path / "config.json", about | {"config": dict(config), "grown": [*about.get("grown", []), grown]}
        )

    @property
    def resume_command(self) -> str:
        """What to type to go on with the run."""
        return f"{_COMMANDS[self.about()['kind']]} --resume {self.path}"

    def show_progress(self, values: Mapping[str, Any]) -> None:
        """Tell people who look on where the run stands; nothing is lost if this is."""
        draft = self.path / ".progress.json"
        draft.write_text(json.dumps(dict(values)) + "\n")
        draft.replace(self.path / "progress.json")

    def progress(self) -> dict[str, Any]:
        """What :meth:`show_progress` wrote last; empty before."""
        try:
            values = json.loads((self.path / "progress.json").read_text())
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}

    # ---- metrics -----------------------------------------------------------------------------------------------

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a line; each has its ``iteration``."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All complete lines."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def forget_metrics_after(self, iteration: int) -> None:
        """Drop what a killed run logged beyond the state it goes on from: it will be logged again."""
        kept = [row for row in self.metrics() if row["iteration"] <= iteration]
        text = "".join(json.dumps(row) + "\n" for row in kept)
        write_atomic(self.path / "metrics.jsonl", lambda draft: draft.write_text(text))

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def save(self, state: Mapping[str, Any], step: int) -> Path:
        """Write a state whole or not at all, and drop all but the last two."""
        if self.lease is not None:
            self.lease.check()
        import torch

        folder = self.path / "checkpoints"
        path = folder / f"step-{step:012}.pt"
        try:
            write_atomic(path, lambda draft: torch.save(dict(state), draft))
        except (OSError, RuntimeError) as error:
            raise ResumableError(
                f"cannot write the checkpoint {path}: {error}; go on from the one before with: {self.resume_command}"
            ) from error
        link = folder / ".last.pt"
        link.unlink(missing_ok=True)
        try:
            os.link(path, link)
        except OSError:  # some file systems know no links
            shutil.copyfile(path, link)
        link.replace(folder / "last.pt")
        for old in self._saved()[_KEPT:]:
            old.unlink()
        return path

    def load(self) -> dict[str, Any] | None:
        """The newest state that is whole, None if there is none yet; loading runs no code."""
        saved = self._saved()
        for path in saved:
            try:
                return read_checkpoint(path)
            except UsageError as error:
                print(f"clop: {error}; trying the one before", file=sys.stderr)  # noqa: T201
        if saved:
            raise UsageError(f"no checkpoint in {self.path / 'checkpoints'} can be read")
        return None

    @property
    def has_checkpoint(self) -> bool:
        return bool(self._saved())

    @property
    def last_step(self) -> int:
        """The units done at the newest checkpoint, 0 before the first."""
        return int(self._saved()[0].stem.removeprefix("step-")) if self.has_checkpoint else 0

    def _saved(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("step-*.pt"), reverse=True)


def _belongs_to_somebody(path: Path) -> bool:
    """Whether a folder holds more than a process leaves that was killed while it made the folder of a run."""
    return any(not entry.name.startswith(".config-") for entry in path.iterdir())


def _holds_same(path: Path, kind: str, config: Mapping[str, Any]) -> bool:
    try:
        values = json.loads((path / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(values.get("kind") == kind and values.get("config") == json.loads(json.dumps(dict(config))))


def origin(command: str | None = None) -> dict[str, Any]:
    """Where a record comes from: command, code, moment and machine."""
    return {
        "command": command or command_line(),
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
    }


def differences(found: Any, wanted: Any) -> list[str]:
    """The names of the settings in which two configs of one class differ."""
    names = [field.name for field in dataclasses.fields(wanted)]
    return [name for name in names if getattr(found, name) != getattr(wanted, name)]


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A state as it was saved; a :class:`UsageError` if the file is damaged, cut off or something else."""
    import torch  # here, since those who only look at a run need not wait for it

    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch's reader does not compare checksums
        if damaged is None:
            state = torch.load(path, map_location="cpu", weights_only=True)
            if isinstance(state, dict) and "model" in state:
                return state
    except FileNotFoundError:
        raise UsageError(f"no checkpoint at {path}") from None
    except (zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, EOFError, OSError):
        pass
    raise UsageError(f"{path} is damaged, or no checkpoint of clop")


def _read_json(path: Path, missing: str) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(missing) from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged: expected JSON, {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} is damaged: expected a JSON object")
    return values
