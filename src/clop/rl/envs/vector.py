"""Many copies of one game that step together, whatever plays them."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from clop.errors import UsageError
from clop.rl.envs.spec import Engine, EnvSpec, Episodes, Frames, Step


class VectorGames:
    """Copies of one game that step together; an episode that ends is followed by the next at once.

    Each episode draws its level anew, uniformly from a range. There is no reset: for fresh episodes, open new games.
    They are opened by :meth:`clop.rl.envs.levels.LevelSet.open`.

    >>> from clop.rl.envs.levels import LevelSet
    >>> games = LevelSet("bigfish", num_levels=200).open(2, seed=0)  # doctest: +SKIP
    >>> obs, level_seeds, episode_steps = games.observe()  # doctest: +SKIP
    >>> rewards, dones, finished, cut_off = games.step([4, 4])  # doctest: +SKIP
    """

    def __init__(self, engine: Engine, spec: EnvSpec, num_envs: int, identity: Mapping[str, Any]) -> None:
        """
        Args:
            engine: Who plays.
            spec: What the game shows and takes.
            num_envs: Copies.
            identity: Game, levels and back end: what games must have in common for one to go on as another.
        """
        self.spec, self.num_envs, self.identity = spec, num_envs, dict(identity)
        self.can_save = engine.can_save
        """Whether :meth:`restore` goes on exactly where :meth:`state` was taken; other games start anew."""
        self._engine: Engine | None = engine
        self._returns: NDArray[np.float64] = np.zeros(num_envs)
        self._steps: NDArray[np.int32] = np.zeros(num_envs, np.int32)

    def observe(self, out: NDArray[np.uint8] | None = None) -> Frames:
        """The current frames, in arrays of their own.

        Args:
            out: (E, H, W, C) Where to write the frames, which saves the time to get fresh memory for them.
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
            actions: (E,) integers from 0 to below the number of actions, whatever the game itself calls them.
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
        return Step(rewards, dones, finished, engine.cut_off)

    def state(self) -> dict[str, Any]:
        """All that :meth:`restore` needs to go on from here, as names, numbers and tensors."""
        if not self.can_save:
            return dict(self.identity)
        games = self._running().state()
        return {
            **self.identity,
            "games": torch.frombuffer(bytearray(b"".join(games)), dtype=torch.uint8),
            "sizes": torch.tensor([len(game) for game in games]),
            "returns": torch.from_numpy(self._returns.copy()),
            "steps": torch.from_numpy(self._steps.copy()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the games were whose :meth:`state` this is, if they :attr:`can_save`; only their seed may
        differ."""
        for name, here in self.identity.items():
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

    def _running(self) -> Engine:
        if self._engine is None:
            raise UsageError(f"these games of {self.identity['game']} are closed")
        return self._engine

    def _checked(self, actions: ArrayLike) -> NDArray[np.int32]:
        """Actions as the engines want them. Procgen takes -1 as a wish to end the episode, and checks nothing."""
        given, last = np.asarray(actions), self.spec.num_actions - 1
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise UsageError(f"actions must be {self.num_envs} integers, got {given.dtype} of shape {given.shape}")
        if given.min() < 0 or given.max() > last:
            raise UsageError(f"actions must lie in [0, {last}], got {given.min()} to {given.max()}")
        return given.astype(np.int32, copy=False)
