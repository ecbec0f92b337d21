"""The games as a vector environment of Gymnasium: for learners that are not ours."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.games import INT32_MAX, is_procgen

try:
    from gymnasium.spaces import Box, Discrete
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise ImportError('make_vec returns an environment of Gymnasium: pip install "clop[gymnasium]"') from error


def make_vec(
    game: str,
    num_envs: int = 64,
    split: str = "train",
    num_levels: int = 200,
    *,
    start_level: int = 0,
    distribution_mode: str | None = None,
    seed: int = 0,
    backend: str = "auto",
    wrappers: tuple[str, ...] = (),
) -> "GamesVectorEnv":
    """Games as a :class:`gymnasium.vector.VectorEnv`.

    Args:
        game: One of Procgen's 16, ``gymnasium:ID``, or ``module:function``.
        num_envs: Copies that step together.
        split: ``train`` for the levels below, ``test`` for those that the protocol clop-v1 tests such an agent on.
        num_levels: Training levels; 0 stands for all.
        start_level: The first of them.
        distribution_mode: ``easy`` or ``hard``; by default easy for Procgen, and none for other games.
        seed: Decides which levels are drawn, until ``reset`` is given one.
        backend: Program that plays; ``auto`` for the best that is installed.
        wrappers: ``module:Class`` of Gymnasium wrappers, the innermost first, for games other than Procgen.

    Example:
        >>> envs = make_vec("bigfish", num_envs=64, split="train", num_levels=200)  # doctest: +SKIP
        >>> obs, info = envs.reset(seed=1)  # doctest: +SKIP
        >>> info["level_seed"]  # (64,) the level that each frame shows  # doctest: +SKIP
    """
    mode = distribution_mode or ("easy" if is_procgen(game) else "none")
    levels = LevelSet(game, mode, start_level, num_levels, wrappers).split(split)
    return GamesVectorEnv(levels, num_envs, seed, backend)


class GamesVectorEnv(VectorEnv[NDArray[np.uint8], NDArray[Any], NDArray[Any]]):
    """Levels of a game as a vector environment; made by :func:`make_vec`.

    Actions count from 0, as most learners want them, also where the game's own do not. An episode that ends is followed
    by the next in the same step: the observation is the first of the new episode.
    ``info`` holds for every step

    ``level_seed``
        (E,) the level that the observation shows

    and where an episode has ended, under ``final_info`` with masks as Gymnasium has them,

    ``level_seed``, ``completed``, ``return``, ``length``
        of the episode that ended.

    Procgen shows no last frame, so there is no ``final_obs``, and reports its time limit as an end of the game:
    ``truncations`` are all false, and a learner takes 0 for the value after every end, as published agents do. Other
    games have in ``final_obs`` the frames that they were left at where they were truncated.
    """

    def __init__(self, levels: LevelSet, num_envs: int, seed: int = 0, backend: str = "auto") -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        self.levels, self.num_envs = levels, num_envs
        self._seed, self._backend, self._fresh = seed, backend, True
        self._games = levels.open(num_envs, seed, backend)
        spec = self._games.spec
        self.single_observation_space = Box(0, 255, spec.obs_shape, np.uint8)
        self.single_action_space = Discrete(spec.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin new episodes in all copies; the same seed draws the same levels.

        Games cannot be reset, so all but the first call without a seed open new ones.
        """
        if options:
            raise UsageError(f"these games are reset all at once and take no options, got {sorted(options)}")
        super().reset(seed=seed)
        if seed is not None or not self._fresh:
            self._seed = (self._seed + 1) % INT32_MAX if seed is None else seed
            self._games.close()
            self._games = self.levels.open(self.num_envs, self._seed, self._backend)
        self._fresh = False
        frames = self._games.observe()
        return frames.obs, self._about(frames.level_seeds)

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        self._fresh = False
        step = self._games.step(actions)
        frames = self._games.observe()
        truncations = np.zeros(self.num_envs, np.bool_)
        truncations[[env for env, _ in step.cut_off]] = True
        info = self._about(frames.level_seeds)
        if step.dones.any():
            info |= {"final_info": self._ended(step.finished), "_final_info": step.dones}
        if step.cut_off:
            final = np.full(self.num_envs, None, object)
            for env, frame in step.cut_off:
                final[env] = frame
            info |= {"final_obs": final, "_final_obs": truncations.copy()}
        return frames.obs, step.rewards, step.dones & ~truncations, truncations, info

    def close_extras(self, **_: Any) -> None:
        self._games.close()

    def _about(self, level_seeds: NDArray[np.int32]) -> dict[str, Any]:
        return {"level_seed": level_seeds, "_level_seed": np.ones(self.num_envs, np.bool_)}

    def _ended(self, episodes: Any) -> dict[str, Any]:
        """The episodes that have ended, each entry an array over all copies with its mask."""
        mask = np.zeros(self.num_envs, np.bool_)
        mask[episodes.envs] = True
        entries: dict[str, Any] = {}
        for name, values in (
            ("level_seed", episodes.level_seeds),
            ("completed", episodes.completed),
            ("return", episodes.returns),
            ("length", episodes.lengths),
        ):
            entries[name] = np.zeros(self.num_envs, values.dtype)
            entries[name][episodes.envs] = values
            entries[f"_{name}"] = mask
        return entries
