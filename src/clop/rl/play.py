"""Play episodes with a way to act: which ones count is what evaluation protocols differ in."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor

from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import Episodes
from clop.rl.envs.vector import VectorGames


def play_quota(
    act: Callable[[Tensor], Tensor],
    games: VectorGames,
    quota: int,
    count: Callable[[Episodes], None],
    look_at_all: bool = False,
) -> Episodes:
    """The first ``quota`` episodes of every env.

    An env that has them plays on, not counted, until the last one has: pressing nothing, since the network no longer
    looks at it. ``look_at_all`` is for networks that normalise frames by one another, which would otherwise see fewer
    and fewer of them in the longest episodes.
    """
    ended = np.zeros(games.num_envs, np.int64)
    parts = []
    while len(open_envs := np.flatnonzero(ended < quota)):
        obs = games.observe().obs
        if look_at_all:
            actions = act(torch.from_numpy(obs)).numpy()
        else:
            actions = np.full(games.num_envs, games.spec.noop)
            actions[open_envs] = act(torch.from_numpy(obs[open_envs])).numpy()
        finished = games.step(actions).finished
        counted = finished.select(ended[finished.envs] < quota)
        ended[counted.envs] += 1
        parts.append(counted)
        count(counted)
    rows = Episodes.concat(parts)
    return rows.select(np.argsort(rows.envs, kind="stable"))


def play_list(
    act: Callable[[Tensor], Tensor],
    trained: LevelSet,
    levels: Sequence[int],
    num_envs: int,
    backend: str,
    count: Callable[[Episodes], None],
) -> Episodes:
    """Each level once, in the order of the list, ``num_envs`` at a time.

    A level is a range of length one with games of its own, which are closed when its episode ends and make room for
    the next. Making them takes a millisecond.
    """
    waiting, parts = deque(enumerate(levels)), {}
    open_games: dict[int, VectorGames] = {}
    with ExitStack() as stack:
        while waiting or open_games:
            while waiting and len(open_games) < num_envs:
                index, level = waiting.popleft()
                open_games[index] = stack.enter_context(trained.single(level).open(1, 0, backend))
            obs = np.concatenate([games.observe().obs for games in open_games.values()])
            actions = act(torch.from_numpy(obs)).numpy()
            for (index, games), action in zip(list(open_games.items()), actions, strict=True):
                finished = games.step(action[None]).finished
                if len(finished.envs):
                    parts[index] = finished._replace(envs=np.array([index]))
                    count(parts[index])
                    open_games.pop(index).close()
    return Episodes.concat([parts[index] for index in range(len(levels))])


def play_first(
    act: Callable[[Tensor], Tensor], games: VectorGames, episodes: int, count: Callable[[Episodes], None]
) -> tuple[Episodes, float]:
    """The first episodes to end anywhere, until there are so many, and the rewards of those still running.

    Short episodes are counted too often; for parity with code that does this.
    """
    parts: list[Episodes] = []
    total = 0.0
    while sum(len(part.envs) for part in parts) < episodes:
        step = games.step(act(torch.from_numpy(games.observe().obs)).numpy())
        total += float(step.rewards.sum())
        parts.append(step.finished)
        count(step.finished)
    rows = Episodes.concat(parts)
    return rows, total - float(rows.returns.sum())


def play_last(
    act: Callable[[Tensor], Tensor], games: VectorGames, steps: int, episodes: int, count: Callable[[Episodes], None]
) -> Episodes:
    """The last episodes to end in so many steps of every env; for parity with code that tests along with training."""
    parts = []
    for _ in range(steps):
        parts.append(games.step(act(torch.from_numpy(games.observe().obs)).numpy()).finished)
    rows = Episodes.concat(parts)
    rows = rows.select(np.arange(len(rows.envs))[-episodes:])
    count(rows)
    return rows
