"""A lease: one process at a time writes in a run's folder, also on a file system that several machines share.

A lease is a file with a name of its owner's in it. It is created with a hard link, which is atomic on NFS too, where
locks are not to be relied on. Its owner touches it now and then; one that has not been touched for a while belongs to
nobody, and is moved away by whoever wants the folder next. An owner that was away for long, and was replaced, finds
another name in the file and stops before it writes anything.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clop.errors import UsageError

NAME = "lease.json"
HEARTBEAT = 10.0
"""Seconds between two touches."""
EXPIRES = 60.0
"""Seconds without a touch after which a lease belongs to nobody."""


class HeldError(UsageError):
    """Somebody else writes in the folder, or has begun to."""


class Lease:
    """The right to write in a folder; taken by :meth:`take`, kept alive inside :meth:`beating`."""

    def __init__(self, path: Path, token: str) -> None:
        self.path, self.token = path, token

    @classmethod
    def take(cls, folder: Path) -> "Lease":
        """A :class:`HeldError` says who holds it, if somebody does."""
        path, token = folder / NAME, uuid.uuid4().hex
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        owner = {"token": token, "host": socket.gethostname(), "pid": os.getpid(), "since": since}
        draft = folder / f".lease-{token}"
        draft.write_text(json.dumps(owner) + "\n")
        try:
            for _ in range(10):  # each round but the last moves one dead lease away
                try:
                    os.link(draft, path)
                    return cls(path, token)
                except FileExistsError:
                    _refuse_or_remove(path, draft)
        finally:
            draft.unlink(missing_ok=True)
        raise HeldError(f"cannot take {path}: others take it all the time; try again later")

    def check(self) -> None:
        """A :class:`HeldError` if the lease was lost, since its owner seemed dead to somebody."""
        found = _read(self.path)
        if found is None or found.get("token") != self.token:
            who = "nobody" if found is None else _who(found)
            raise HeldError(f"this process was silent for so long that it lost its folder {self.path.parent} to {who}")

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Touch the file in the background until the end."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT):
                with contextlib.suppress(OSError, HeldError):
                    self.check()
                    os.utime(self.path)

        thread = threading.Thread(target=beat, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def give_back(self) -> None:
        with contextlib.suppress(OSError, HeldError):
            self.check()
            self.path.unlink()


def holder(folder: Path) -> str | None:
    """Who writes in a folder now, in words; None if nobody does. By this machine's clock, so for people to read."""
    path = folder / NAME
    found = _read(path)
    if found is None:
        return None
    if found.get("host") == socket.gethostname():
        return _who(found) if _runs(int(found.get("pid", -1))) else None
    try:
        return _who(found) if time.time() - path.stat().st_mtime <= EXPIRES else None
    except FileNotFoundError:
        return None


def _refuse_or_remove(path: Path, draft: Path) -> None:
    """Move a dead lease away; a :class:`HeldError` for one that is alive."""
    found = _read(path)
    if found is None:
        return  # given back in this moment
    if not _is_dead(found, path, draft):
        raise HeldError(
            f"{path.parent} is being written by {_who(found)}; wait for it or stop it, and if it is gone, its lease "
            f"ends {EXPIRES:.0f} s after its last sign of life"
        )
    grave = path.with_name(f".lease-dead-{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(grave)  # one of several that want the folder succeeds
        buried = _read(grave)
        if buried is not None and buried.get("token") != found.get("token"):  # somebody was faster and is alive
            with contextlib.suppress(FileExistsError):
                os.link(grave, path)
        grave.unlink(missing_ok=True)


def _is_dead(owner: dict[str, Any], path: Path, draft: Path) -> bool:
    if owner.get("host") == socket.gethostname() and not _runs(int(owner.get("pid", -1))):
        return True
    os.utime(draft)  # both times are those of the file system's clock
    try:
        return draft.stat().st_mtime - path.stat().st_mtime > EXPIRES
    except FileNotFoundError:
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def _read(path: Path) -> dict[str, Any] | None:
    """What a lease says, None if there is none; a damaged one has no owner."""
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _who(owner: dict[str, Any]) -> str:
    return f"process {owner.get('pid', '?')} on {owner.get('host', '?')} since {owner.get('since', '?')}"
