"""The games as built into EnvPool: for macOS, Windows, and Pythons that procgen has no wheel for.

The Linux wheel of 1.2.5 wants Qt 5 from the system; that of 1.2.7 brings Qt 6. The wheel PyQt5-Qt5 holds the two
libraries, and once these are loaded, the dynamic linker takes them by name, wherever they lie.
"""

import ctypes
import functools
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clop.errors import UsageError


@functools.cache
def _envpool() -> Any:
    if sys.platform == "linux" and (spec := importlib.util.find_spec("PyQt5")):
        for folder in spec.submodule_search_locations or ():
            for name in ("libQt5Core.so.5", "libQt5Gui.so.5"):  # in this order, the second needs the first
                if (path := Path(folder) / "Qt5" / "lib" / name).is_file():
                    _load(path)
    envpool = importlib.import_module("envpool")
    try:
        _ = importlib.import_module("envpool.procgen").ProcgenEnvSpec
    except ImportError as error:
        raise UsageError(f"envpool is installed but has no games here: pip install PyQt5-Qt5 ({error})") from error
    return envpool


def _load(path: Path) -> None:
    try:
        # Not RTLD_GLOBAL: procgen's library in the same process must keep the older Qt it was built with.
        ctypes.CDLL(str(path))
    except OSError as error:
        raise UsageError(f"envpool needs Qt 5, and the one of PyQt5-Qt5 does not load: {error}") from error


class EnvPoolEngine:
    """Games that step together; an :class:`~clop.rl.envs.spec.Engine`."""

    can_save: ClassVar[bool] = False

    cut_off: ClassVar[tuple[()]] = ()  # a time limit is part of these games, and counts as an end

    def __init__(
        self, game: str, num_envs: int, mode: str, start_level: int, num_levels: int, seed: int, threads: int
    ) -> None:
        self._pool = _envpool().make_gymnasium(
            f"{game.capitalize()}{mode.capitalize()}-v0",
            num_envs=num_envs,
            num_threads=max(threads, 1),  # 0 would take every core, and the caller's own thread is never used
            seed=seed,
            num_levels=num_levels,
            start_level=start_level,
            channel_first=False,
        )
        self.rewards = np.zeros(num_envs, np.float32)
        self.dones = np.ones(num_envs, np.bool_)
        self.completed = np.zeros(num_envs, np.bool_)
        self.ended_level_seeds = np.zeros(num_envs, np.int32)
        self.frames: NDArray[np.uint8]
        self.level_seeds: NDArray[np.int32]
        self.frames, info = self._pool.reset()
        self.level_seeds = info["level_seed"]

    def act(self, actions: NDArray[np.int32]) -> None:
        self.frames, self.rewards, terminated, truncated, info = self._pool.step(actions)
        self.dones = terminated | truncated
        self.level_seeds, self.ended_level_seeds = info["level_seed"], info["prev_level_seed"]
        self.completed = info["prev_level_complete"].astype(np.bool_)
        # EnvPool starts the next episode at the next step, whose action it drops. Starting it now keeps frames,
        # actions and rewards aligned as procgen has them. The frame that came with the end is lost with its level:
        # the reset draws another one.
        if self.dones.any():
            frames, info = self._pool.reset(np.flatnonzero(self.dones).astype(np.int32))
            self.frames[info["env_id"]] = frames
            self.level_seeds[info["env_id"]] = info["level_seed"]

    def state(self) -> list[bytes]:
        raise AssertionError("envpool has no way to save running games")

    def restore(self, states: Sequence[bytes]) -> None:
        raise AssertionError("envpool has no way to save running games")

    def close(self) -> None:
        self._pool.close()
