"""What an environment is, and what it says: EnvSpec, and the records that games return.

Nothing outside this folder knows the size of a frame, the number of actions, or which of them does nothing. Actions
count from 0 everywhere; only the game itself, and whoever asks an agent from outside, sees the game's own numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EnvSpec:
    """What a game shows and takes."""

    obs_shape: tuple[int, int, int]
    """Height, width and channels of a frame of bytes."""
    num_actions: int
    noop: int = 0
    """Played in copies that have all their episodes while an evaluation waits for others; those steps do not count.

    Procgen's does nothing. Of other games none is known, and theirs is action 0, whatever it does.
    """
    action_names: tuple[str, ...] = ()
    """What the actions do, where that is known."""
    time_limit: int | None = None
    """Steps after which an episode ends as if lost, None where that is not known."""
    first_action: int = 0
    """What the game itself calls action 0."""

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W), as a network takes frames."""
        height, width, channels = self.obs_shape
        return channels, height, width

    def name_of(self, action: int) -> str:
        return self.action_names[action] if self.action_names else str(action)


class Frames(NamedTuple):
    """What the agent is looking at, and where that is."""

    obs: NDArray[np.uint8]
    """(E, H, W, C)"""
    level_seeds: NDArray[np.int32]
    """(E,) level that the frame shows"""
    episode_steps: NDArray[np.int32]
    """(E,) actions since the episode began, 0 for its first frame"""


class Episodes(NamedTuple):
    """Episodes that have just ended, K of them; usually none."""

    envs: NDArray[np.intp]
    """(K,) where they were played"""
    returns: NDArray[np.float64]
    """(K,) sum of the raw rewards"""
    lengths: NDArray[np.int32]
    """(K,) actions"""
    level_seeds: NDArray[np.int32]
    """(K,) level that was played"""
    completed: NDArray[np.bool_]
    """(K,) whether the game counts the level as solved"""

    @classmethod
    def concat(cls, parts: Sequence["Episodes"]) -> "Episodes":
        """Those of all parts, in their order."""
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(*columns)

    def select(self, which: NDArray[Any]) -> "Episodes":
        """Those at these positions, or where this is true."""
        columns: list[Any] = [column[which] for column in self]
        return Episodes(*columns)


class Step(NamedTuple):
    """What the actions led to."""

    rewards: NDArray[np.float32]
    """(E,) raw rewards"""
    dones: NDArray[np.bool_]
    """(E,) whether the episode ended; the next frame is then the first of another"""
    finished: Episodes
    cut_off: Sequence[tuple[int, NDArray[np.uint8]]] = ()
    """Envs whose episode was cut off by a time limit that is no part of the game, and the frame it was left at."""


class Engine(Protocol):
    """What a back end has to offer: games that start anew by themselves, and arrays that say how they stand.

    The arrays speak of the last ``act``, or of the start. They may change in the next one. ``state`` and ``restore``
    are for those that can save running games.
    """

    can_save: ClassVar[bool]

    @property
    def frames(self) -> NDArray[np.uint8]: ...
    @property
    def rewards(self) -> NDArray[np.float32]: ...
    @property
    def dones(self) -> NDArray[np.bool_]: ...
    @property
    def level_seeds(self) -> NDArray[np.int32]: ...
    @property
    def ended_level_seeds(self) -> NDArray[np.int32]: ...
    @property
    def completed(self) -> NDArray[np.bool_]: ...
    @property
    def cut_off(self) -> Sequence[tuple[int, NDArray[np.uint8]]]: ...
    def act(self, actions: NDArray[np.int32]) -> None: ...
    def state(self) -> list[bytes]: ...
    def restore(self, states: Sequence[bytes]) -> None: ...
    def close(self) -> None: ...
