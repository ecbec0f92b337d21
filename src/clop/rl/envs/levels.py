"""Which levels an agent has seen, and which ones it is tested on."""

import hashlib
import itertools
from dataclasses import dataclass
from functools import lru_cache

from clop.errors import UsageError, unknown_name
from clop.rl.envs.vector import VectorGames
from clop.rl.games import check_levels, check_mode, find_game

LEVELS = ("train", "test")
STRICT_LEVELS = 1000
"""Length of the list of strict-v1."""

_STRICT_CANDIDATES = 1_000_000_000  # the first one; nobody trains that far out
_HARD_TEST_LEVELS = (500, 1000)


@dataclass(frozen=True)
class TrainLevels:
    """What an agent was trained on, which decides what it has seen."""

    game: str
    mode: str = "easy"
    start_level: int = 0
    num_levels: int = 200
    """0 stands for all levels."""

    def __post_init__(self) -> None:
        find_game(self.game)
        check_mode(self.mode)
        check_levels(self.start_level, self.num_levels)

    def level_range(self, levels: str) -> tuple[int, int]:
        """``start_level`` and ``num_levels`` of the ``train`` or ``test`` levels of clop-v1."""
        if levels not in LEVELS:
            raise UsageError(unknown_name("levels", levels, LEVELS))
        if levels == "train":
            return self.start_level, self.num_levels
        if self.mode == "easy" or self.num_levels == 0:
            return 0, 0
        first, count = _HARD_TEST_LEVELS
        if self.start_level < first + count and first < self.start_level + self.num_levels:
            raise UsageError(
                f"clop-v1 tests hard mode on {range_text(first, count)}, and training has "
                f"{range_text(self.start_level, self.num_levels)}; train on levels below {first} or on all, and "
                "evaluate an agent that is trained already by the protocol strict-v1"
            )
        return first, count


@lru_cache(maxsize=16)
def held_out_levels(trained: TrainLevels, count: int = STRICT_LEVELS, *, backend: str = "auto") -> tuple[int, ...]:
    """The list of strict-v1: the first ``count`` levels of a range far out whose first frames are all new.

    Dropped are those that begin with the same frame, pixel for pixel, as a training level or an earlier one of the
    list. Takes 1.2 ms for each level that is looked at, training levels included.
    """
    if trained.num_levels == 0:
        raise UsageError("an agent trained on all levels has no unseen ones; use the protocol clop-v1")
    seen_levels = range(trained.start_level, trained.start_level + trained.num_levels)
    seen = {_first_frame(trained, level, backend) for level in seen_levels}
    chosen: list[int] = []
    candidates = range(_STRICT_CANDIDATES, _STRICT_CANDIDATES + 10 * count)
    for level in itertools.filterfalse(seen_levels.__contains__, candidates):
        frame = _first_frame(trained, level, backend)
        if frame not in seen:
            seen.add(frame)
            chosen.append(level)
            if len(chosen) == count:
                return tuple(chosen)
    raise UsageError(
        f"only {len(chosen)} of {len(candidates)} unseen levels of {trained.game} begin with a frame of their own, "
        f"which is too few for strict-v1; train on fewer levels than {trained.num_levels}, or use the protocol clop-v1"
    )


def _first_frame(trained: TrainLevels, level: int, backend: str) -> bytes:
    with single_level(trained, level, backend) as games:
        return hashlib.blake2b(games.observe().obs.tobytes(), digest_size=16).digest()


def single_level(trained: TrainLevels, level: int, backend: str) -> VectorGames:
    return VectorGames(
        trained.game, 1, mode=trained.mode, start_level=level, num_levels=1, rand_seed=0, backend=backend
    )


def range_text(start: int, number: int) -> str:
    return f"levels {start} to {start + number - 1}" if number else "all levels"
