"""Many copies of one Procgen game that step together, on a chosen range of levels.

Two back ends give the same games: procgen's own library (:mod:`clop.rl.envs.procgen`) and EnvPool
(:mod:`clop.rl.envs.envpool`). For the same level and the same actions, rewards and ends of episodes agree. So do
frames in about half of the games; in the others the two versions of Qt draw turned or scaled pictures a little
differently. Which levels are drawn, and in what order, differs. Neither back end is loaded before it is used.
"""

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from clop.errors import UsageError, unknown_name
from clop.rl.envs import procgen
from clop.rl.envs.envpool import EnvPoolEngine
from clop.rl.envs.procgen import ProcgenEngine
from clop.rl.games import INT32_MAX, NUM_ACTIONS, check_levels, check_mode, find_game


class Frames(NamedTuple):
    """What the agent is looking at, and where that is."""

    obs: NDArray[np.uint8]
    """(E, 64, 64, 3) red, green, blue"""
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
    def joined(cls, parts: Sequence["Episodes"]) -> "Episodes":
        """Those of all parts, in their order."""
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(*columns)

    def taken(self, which: NDArray[Any]) -> "Episodes":
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


class Engine(Protocol):
    """What a back end has to offer: games that start anew by themselves, and arrays that tell how they stand.

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
    def act(self, actions: NDArray[np.int32]) -> None: ...
    def state(self) -> list[bytes]: ...
    def restore(self, states: Sequence[bytes]) -> None: ...
    def close(self) -> None: ...


_ENGINES: Mapping[str, type[ProcgenEngine] | type[EnvPoolEngine]] = {
    "procgen-mirror": ProcgenEngine,
    "envpool": EnvPoolEngine,
}
_INSTALL = {
    # Without its dependencies, which the library does not need and which want numpy below 2.
    "procgen-mirror": "pip install --no-deps procgen-mirror",
    "envpool": "pip install envpool PyQt5-Qt5",
}
BACKENDS = tuple(_ENGINES)
"""Names of the back ends, the preferred one first: it is faster, has fewer parts, and can save running games."""


def installed_backends() -> dict[str, str]:
    """Name and version of the back ends that are installed, the one used by default first."""
    found = {}
    if (data := procgen.data_folder()) is not None:
        found["procgen-mirror"] = (data.parent / "version.txt").read_text().strip()
    if importlib.util.find_spec("envpool") is not None:
        found["envpool"] = importlib.metadata.version("envpool")
    return found


def choose_backend(backend: str = "auto") -> str:
    """The back end of that name, or for ``auto`` the best that is installed; a :class:`UsageError` if it is not."""
    if backend not in ("auto", *BACKENDS):
        raise UsageError(unknown_name("back end", backend, ("auto", *BACKENDS)))
    installed = installed_backends()
    if backend in installed:
        return backend
    if backend != "auto":
        raise UsageError(f"{backend} is not installed: {_INSTALL[backend]}")
    if not installed:
        raise UsageError(
            'no Procgen is installed; the layer and the vision experiments work without it: pip install "clop[rl]"'
        )
    return next(iter(installed))


def preload(backend: str) -> None:
    """Load procgen's pictures now, so that processes forked from this one share them: a third of a gigabyte."""
    if backend == "procgen-mirror":  # envpool has threads, which do not survive a fork
        VectorGames("bigfish", 1, num_levels=1, rand_seed=0, backend=backend).close()


class VectorGames:
    """Copies of one game that step together; an episode that ends is followed by the next at once.

    Each episode draws its level anew, uniformly from the range. There is no reset: for fresh episodes, make a new
    object.

    Args:
        game: Name of the game.
        num_envs: Copies.
        mode: ``easy`` or ``hard``.
        start_level: First level of the range.
        num_levels: Levels in the range; 0 stands for all :math:`2^{31} - 1` levels, and ``start_level`` must be 0.
        rand_seed: Decides which levels are drawn, together with the back end.
        threads: Threads beside the caller's own that step the games; envpool always has at least one. On two shared
            cores, procgen-mirror with 4 made from 0.75 to 1.7 times the steps of 0; 1 was mostly slower than 0.
        backend: One of :data:`BACKENDS`, or ``auto`` for the first that is installed.

    >>> games = VectorGames("bigfish", 2, num_levels=200, rand_seed=0)  # doctest: +SKIP
    >>> obs, level_seeds, episode_steps = games.observe()  # doctest: +SKIP
    >>> rewards, dones, finished = games.step([4, 4])  # doctest: +SKIP
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        mode: str = "easy",
        start_level: int = 0,
        num_levels: int,
        rand_seed: int,
        threads: int = 0,
        backend: str = "auto",
    ) -> None:
        find_game(game)
        check_mode(mode)
        # Beyond these, procgen ends the process.
        if num_envs < 1:
            raise UsageError(f"num_envs must be at least 1, got {num_envs}")
        if threads < 0:
            raise UsageError(f"threads must not be negative, got {threads}")
        if not 0 <= rand_seed <= INT32_MAX:
            raise UsageError(f"rand_seed must lie in [0, {INT32_MAX}], got {rand_seed}")
        check_levels(start_level, num_levels)
        self.game = game
        self.num_envs = num_envs
        self.mode = mode
        self.start_level = start_level
        self.num_levels = num_levels
        self.backend = choose_backend(backend)
        self._engine: Engine | None = _ENGINES[self.backend](
            game,
            num_envs,
            mode=mode,
            start_level=start_level,
            num_levels=num_levels,
            rand_seed=rand_seed,
            threads=threads,
        )
        self._returns: NDArray[np.float64] = np.zeros(num_envs)
        self._steps: NDArray[np.int32] = np.zeros(num_envs, np.int32)

    def observe(self, out: NDArray[np.uint8] | None = None) -> Frames:
        """The current frames, in arrays of their own.

        Args:
            out: (E, 64, 64, 3) Where to write the frames, which saves the time to get fresh memory for them.
        """
        engine = self._running()
        if out is None:
            out = engine.frames.copy()
        elif out.shape != engine.frames.shape or out.dtype != np.uint8:
            raise UsageError(f"out must be uint8 of shape {engine.frames.shape}, got {out.dtype} of shape {out.shape}")
        else:
            np.copyto(out, engine.frames)
        return Frames(out, engine.level_seeds.copy(), self._steps.copy())

    def step(self, actions: ArrayLike) -> Step:
        """Take one action in each env.

        Args:
            actions: (E,) integers from 0 to 14.
        """
        engine = self._running()
        engine.act(self._checked(actions))
        rewards, dones = engine.rewards.copy(), engine.dones.copy()
        self._returns += rewards
        self._steps += 1
        ended = np.flatnonzero(dones)
        finished = Episodes(
            ended, self._returns[ended], self._steps[ended], engine.ended_level_seeds[ended], engine.completed[ended]
        )
        self._returns[ended] = 0
        self._steps[ended] = 0
        return Step(rewards, dones, finished)

    @property
    def can_save(self) -> bool:
        """Whether :meth:`restore` goes on exactly where :meth:`state` was taken; envpool's games start anew."""
        return _ENGINES[self.backend].can_save

    def state(self) -> dict[str, Any]:
        """All that :meth:`restore` needs to go on from here, as names, numbers and tensors."""
        if not self.can_save:
            return self._identity()
        games = self._running().state()
        return {
            **self._identity(),
            "games": torch.frombuffer(bytearray(b"".join(games)), dtype=torch.uint8),
            "sizes": torch.tensor([len(game) for game in games]),
            "returns": torch.from_numpy(self._returns.copy()),
            "steps": torch.from_numpy(self._steps.copy()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the object was whose :meth:`state` this is, if it :attr:`can_save`; only its
        ``rand_seed`` may differ."""
        for name, here in self._identity().items():
            if state[name] != here:
                raise UsageError(f"the saved games have {name}={state[name]!r}, but here it is {here!r}")
        if not self.can_save:
            return
        sizes, games = state["sizes"].tolist(), state["games"].numpy().tobytes()
        if len(sizes) != self.num_envs or sum(sizes) != len(games):
            raise UsageError("the saved games are damaged: their sizes do not add up")
        ends = np.cumsum(sizes)
        self._running().restore([games[end - size : end] for size, end in zip(sizes, ends, strict=True)])
        self._returns = state["returns"].numpy().copy()
        self._steps = state["steps"].numpy().copy()

    def close(self) -> None:
        """End the games and free their memory; doing it twice is harmless."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _identity(self) -> dict[str, str | int]:
        names = ("backend", "game", "mode", "num_envs", "start_level", "num_levels")
        return {name: getattr(self, name) for name in names}

    def _running(self) -> Engine:
        if self._engine is None:
            raise UsageError(f"these games of {self.game} are closed")
        return self._engine

    def _checked(self, actions: ArrayLike) -> NDArray[np.int32]:
        """Actions as the engines want them. Procgen takes -1 as a wish to end the episode, and checks nothing."""
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise UsageError(f"actions must be {self.num_envs} integers, got {given.dtype} of shape {given.shape}")
        if given.min() < 0 or given.max() >= NUM_ACTIONS:
            raise UsageError(f"actions must lie in [0, {NUM_ACTIONS - 1}], got {given.min()} to {given.max()}")
        return given.astype(np.int32, copy=False)
