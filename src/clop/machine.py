"""The machine a run is on: what it is, and two things that a process may ask of it."""

import ctypes
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_PR_SET_PDEATHSIG = 1  # of Linux' prctl.h


def describe() -> dict[str, Any]:
    """Processor, memory, system and the versions that decide numbers and speed."""
    import torch  # here, since reports read records without it

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("clop", "torch", "numpy", "numba")},
    }


def version(package: str) -> str | None:
    """The installed version of a package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def peak_memory_gb() -> float | None:
    """The most memory this process has had, without the part of others in what they share; None where Python cannot
    ask the system (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    try:
        # Linux. Not getrusage's, which knows no sharing and goes on from the size of the program that started this one.
        sizes = _kilobytes("/proc/self/status") | _kilobytes("/proc/self/smaps_rollup")
        kilobytes = sizes["VmHWM"] - (sizes["Rss"] - sizes["Pss"])
    except OSError:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
    return round(kilobytes / 2**20, 3)


def _kilobytes(path: str) -> dict[str, int]:
    """The sizes in a file of the system."""
    lines = (line.split() for line in Path(path).read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if words[2:] == ["kB"]}


def keep_memory() -> None:
    """Let the C library keep freed memory instead of handing it back to the system.

    Training frees and allocates the same large buffers at every step. Each time, glibc returns them and the system
    clears fresh pages; this took 30 to 40 % of training time on the CPU. For programs, not for libraries: it
    acts on the whole process. Does nothing where the C library is another.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def end_with(parent: int, number: int) -> None:
    """Have the system send this process a signal when its parent is gone, or the thread of it that started this one.

    Only Linux can; elsewhere this process runs on.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it was faster
        os.kill(os.getpid(), number)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
