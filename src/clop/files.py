"""Files that are written whole or not at all, and the user's cache."""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` fill a file beside ``path``, then give it that name; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    draft = Path(name)
    try:
        write(draft)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, lambda draft: draft.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n"))


def cache_folder() -> Path:
    """The user's cache of this package; ``CLOP_CACHE`` names another."""
    if "CLOP_CACHE" in os.environ:
        return Path(os.environ["CLOP_CACHE"])
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "clop"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
