"""LevelSet: a game and some of its levels, which levels an agent has seen, and which ones it is tested on.

A level is a seed. Procgen draws its levels from a range of seeds by itself; in any other game a level is the seed
that its ``reset`` is given.
"""

import hashlib
import importlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

from clop.errors import UsageError, unknown_name
from clop.rl.envs import gymnasium, gymnasium_spec, procgen
from clop.rl.envs.backends import choose_backend
from clop.rl.envs.envpool import EnvPoolEngine
from clop.rl.envs.procgen import ProcgenEngine
from clop.rl.envs.spec import Engine, EnvSpec
from clop.rl.envs.vector import VectorGames
from clop.rl.games import INT32_MAX, check_distribution_mode, is_procgen

SPLITS = ("train", "test")
STRICT_LEVELS = 1000
"""Length of the list of strict-v1."""

_FAR_OUT = 1_000_000_000  # where the levels of strict-v1 begin, and the test levels of games other than Procgen
_TEST_LEVELS = 1_000_000  # of games other than Procgen
_HARD_TEST_LEVELS = (500, 1000)


@dataclass(frozen=True)
class LevelSet:
    """A game and a range of its levels."""

    game: str
    """One of Procgen's, ``gymnasium:ID``, or ``module:function`` for a function that makes an environment."""
    distribution_mode: str = "easy"
    """``easy`` or ``hard`` for Procgen, ``none`` for other games."""
    start_level: int = 0
    num_levels: int = 200
    """0 stands for all levels."""
    wrappers: tuple[str, ...] = ()
    """``module:Class`` of Gymnasium wrappers, the innermost first."""

    def __post_init__(self) -> None:
        check_distribution_mode(self.game, self.distribution_mode)
        if is_procgen(self.game) and self.wrappers:
            raise UsageError(f"wrappers are for Gymnasium's environments; {self.game} is played as it is")
        # Beyond this range, procgen ends the process.
        if min(self.start_level, self.num_levels) < 0 or self.start_level + self.num_levels > INT32_MAX:
            raise UsageError(
                f"levels must lie in [0, {INT32_MAX}), got start_level={self.start_level} and "
                f"num_levels={self.num_levels}"
            )
        if self.num_levels == 0 and self.start_level != 0:
            raise UsageError(
                f"num_levels=0 stands for all levels, so start_level={self.start_level} would have no effect"
            )

    @property
    def spec(self) -> EnvSpec:
        """What the game shows and takes; a game other than Procgen is made once to look."""
        if is_procgen(self.game):
            return procgen.spec(self.game)
        return gymnasium_spec.spec(self.game, self.wrappers)

    @property
    def text(self) -> str:
        """``levels 0 to 49``"""
        last = self.start_level + self.num_levels - 1
        return f"levels {self.start_level} to {last}" if self.num_levels else "all levels"

    @property
    def title(self) -> str:
        """The game, and its distribution mode if that is not the usual one."""
        return self.game if self.distribution_mode in ("easy", "none") else f"{self.game}, {self.distribution_mode}"

    def split(self, name: str) -> "LevelSet":
        """Of an agent that was trained on these levels, the ``train`` or ``test`` levels of clop-v1.

        Test levels of Procgen are all levels in easy mode, and 500 to 1499 in hard mode, as in the CLOP paper; those of
        other games are a million seeds far from those of training.
        """
        if name not in SPLITS:
            raise UsageError(unknown_name("split", name, SPLITS))
        if name == "train" or self.num_levels == 0:
            return self
        if self.distribution_mode == "easy":
            return replace(self, start_level=0, num_levels=0)
        first, count = _HARD_TEST_LEVELS if self.distribution_mode == "hard" else (_FAR_OUT, _TEST_LEVELS)
        test = replace(self, start_level=first, num_levels=count)
        if self.start_level < first + count and first < self.start_level + self.num_levels:
            raise UsageError(
                f"clop-v1 tests {self.title} on {test.text}, and training has {self.text}; train on levels below "
                f"{first} or on all, and evaluate an agent that is trained already by the protocol strict-v1"
            )
        return test

    def single(self, level: int) -> "LevelSet":
        """One level of the same game."""
        return replace(self, start_level=level, num_levels=1)

    def open(self, num_envs: int, seed: int, backend: str = "auto", threads: int = 0) -> VectorGames:
        """Games on these levels.

        Args:
            num_envs: Copies.
            seed: Decides which levels are drawn, together with the back end.
            backend: One of :data:`~clop.rl.envs.backends.BACKENDS`, or ``auto`` for the first that is installed.
            threads: Threads beside the caller's own that step Procgen's games; envpool always has at least one. On two
                shared cores, procgen-mirror with 4 made from 0.75 to 1.7 times the steps of 0; 1 was mostly slower.
        """
        if num_envs < 1:
            raise UsageError(f"num_envs must be at least 1, got {num_envs}")
        if threads < 0:
            raise UsageError(f"threads must not be negative, got {threads}")
        if not 0 <= seed <= INT32_MAX:
            raise UsageError(f"the seed of games must lie in [0, {INT32_MAX}], got {seed}")
        backend = choose_backend(backend, self.game)
        identity = {
            "backend": backend,
            "game": self.game,
            "distribution_mode": self.distribution_mode,
            "num_envs": num_envs,
            "start_level": self.start_level,
            "num_levels": self.num_levels,
            "wrappers": list(self.wrappers),
        }
        return VectorGames(self._engine(num_envs, seed, backend, threads), self.spec, num_envs, identity)

    def _engine(self, num_envs: int, seed: int, backend: str, threads: int) -> Engine:
        levels = (self.start_level, self.num_levels)
        if is_procgen(self.game):
            engine = ProcgenEngine if backend == "procgen-mirror" else EnvPoolEngine
            return engine(self.game, num_envs, self.distribution_mode, *levels, seed, threads)
        in_workers = backend == "gymnasium-async"
        return gymnasium.GymnasiumEngine(self.game, self.wrappers, self.spec, num_envs, *levels, seed, in_workers)


@lru_cache(maxsize=16)
def held_out_levels(trained: LevelSet, count: int = STRICT_LEVELS, *, backend: str = "auto") -> tuple[int, ...]:
    """The list of strict-v1: the first ``count`` levels of a range far out whose first frames are all new.

    Dropped are those that begin with the same frame, pixel for pixel, as a training level or an earlier one of the
    list. With Procgen it takes 1.2 ms for each level that is looked at, training levels included.
    """
    if trained.num_levels == 0:
        raise UsageError("an agent trained on all levels has no unseen ones; use the protocol clop-v1")
    seen_levels = range(trained.start_level, trained.start_level + trained.num_levels)
    seen = {first_frame(trained, level, backend) for level in seen_levels}
    chosen: list[int] = []
    candidates = range(_FAR_OUT, _FAR_OUT + 10 * count)
    for level in itertools.filterfalse(seen_levels.__contains__, candidates):
        frame = first_frame(trained, level, backend)
        if frame not in seen:
            seen.add(frame)
            chosen.append(level)
            if len(chosen) == count:
                return tuple(chosen)
    if len(seen) == 1:
        raise UsageError(
            f"all levels of {trained.game} begin with the same frame, and strict-v1 plays levels that begin otherwise "
            "than those of training; use the protocol clop-v1, or draw the first frame from the seed of reset"
        )
    raise UsageError(
        f"only {len(chosen)} of {len(candidates)} unseen levels of {trained.game} begin with a frame of their own, "
        f"which is too few for strict-v1; train on fewer levels than {trained.num_levels}, or use the protocol clop-v1"
    )


def first_frame(levels: LevelSet, level: int, backend: str) -> bytes:
    """A digest of the frame that a level begins with."""
    with levels.single(level).open(1, 0, backend) as games:
        return hashlib.blake2b(games.observe().obs.tobytes(), digest_size=16).digest()


def preload(backend: str) -> None:
    """Load now what every process of a run needs, so that those forked from this one share it.

    Procgen's pictures, a third of a gigabyte, and numba, which the layer loads when it is first used. Each takes a
    second; the pictures are read without Python, at the same time as the module.
    """
    with ThreadPoolExecutor(1) as pool:
        pictures = pool.submit(preload_pictures, backend)
        importlib.import_module("numba")
        pictures.result()


def preload_pictures(backend: str) -> None:
    """Load procgen's pictures, which stay for the process and those forked from it."""
    if backend == "procgen-mirror":  # envpool has threads, which do not survive a fork
        LevelSet("bigfish", num_levels=1).open(1, 0, backend).close()


def look_alike(levels: LevelSet) -> str | None:
    """A warning for a game that begins alike whatever its seed, so that its training and test levels are the same."""
    if is_procgen(levels.game):
        return None
    test = levels.split("test")
    some = {  # fewer where training has one level, or all
        levels.start_level,
        levels.start_level + max(0, levels.num_levels - 1),
        test.start_level,
        test.start_level + 1,
    }
    return gymnasium.alike_warning(levels.game, [first_frame(levels, level, "gymnasium-sync") for level in some])
