"""How good an agent is on given levels: returns of whole episodes, by a protocol of :mod:`clop.rl.protocols`."""

import csv
import io
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clop.distributed import together
from clop.errors import UsageError
from clop.progress import Progress
from clop.rl.agent import Agent, choose_actions
from clop.rl.envs.backends import choose_backend
from clop.rl.envs.levels import SPLITS, LevelSet, held_out_levels, preload_pictures
from clop.rl.envs.spec import Episodes
from clop.rl.games import GAMES, normalised_return
from clop.rl.play import play_first, play_last, play_list, play_quota
from clop.rl.protocols import EvalConfig, check_games
from clop.seeds import check_seed


class Seeds(NamedTuple):
    """One number decides three things that have nothing to do with each other."""

    games: int
    actions: int
    noise: int

    @classmethod
    def of(cls, seed: int, split: str, *block: int) -> "Seeds":
        check_seed(seed)
        words = np.random.SeedSequence([seed, SPLITS.index(split), *block]).generate_state(3)
        return cls(*(int(word) >> 1 for word in words))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came out: the episodes, and what one says about them."""

    protocol: str
    """Name of the protocol with its switch."""
    game: str
    distribution_mode: str
    split: str
    """``train`` or ``test``"""
    level_text: str
    """Which levels these are, in words."""
    backend: str
    seed: int
    rows: Episodes
    """The episodes by env, in the order they were played; in strict-v1 each level is an env of its own."""
    unfinished: float = 0.0
    """Rewards of episodes that did not end but are in the score, as the CLOP authors' code has it."""

    @property
    def episodes(self) -> int:
        return len(self.rows.returns)

    @property
    def mean(self) -> float:
        return float(self.rows.returns.sum() + self.unfinished) / self.episodes

    @property
    def standard_error(self) -> float:
        """Of the mean over episodes; not a number for a single one."""
        return float(self.rows.returns.std(ddof=1) / self.episodes**0.5) if self.episodes > 1 else float("nan")

    @property
    def normalised_mean(self) -> float | None:
        """None for a game whose range of returns is not published."""
        if self.game not in GAMES:
            return None
        return float(normalised_return(self.mean, self.game, self.distribution_mode))

    @property
    def success_rate(self) -> float:
        """Share of episodes that the game counts as solved."""
        return float(self.rows.completed.mean())

    def summary(self) -> dict[str, Any]:
        """All but the episodes, for JSON."""
        error = self.standard_error
        return {
            "protocol": self.protocol,
            "game": self.game,
            "distribution_mode": self.distribution_mode,
            "split": self.split,
            "level_text": self.level_text,
            "backend": self.backend,
            "seed": self.seed,
            "episodes": self.episodes,
            "mean": self.mean,
            "standard_error": None if np.isnan(error) else error,
            "normalised_mean": self.normalised_mean,
            "success_rate": self.success_rate,
            "mean_length": float(self.rows.lengths.mean()),
        }

    def csv(self) -> str:
        """The episodes as CSV, one line each: level, return, length, completed (1 or 0), env."""
        text, rows = io.StringIO(), self.rows
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("level", "return", "length", "completed", "env"))
        columns = (rows.level_seeds, rows.returns, rows.lengths, rows.completed.astype(int), rows.envs)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
        return text.getvalue()


def evaluate(
    agent: Agent,
    trained: LevelSet,
    config: EvalConfig = EvalConfig(),  # noqa: B008 - frozen
    *,
    backend: str = "auto",
    progress: Progress | None = None,
    processes: int = 1,
) -> Evaluation:
    """Play by the protocol of the config.

    Args:
        agent: Who plays.
        trained: The game, and the levels that the agent was trained on.
        config: Protocol, split, number of episodes, seed.
        backend: Program that plays the games; it decides which levels are drawn.
        progress: Counts the episodes; there will be ``config.total``.
        processes: Number of processes that share the episodes, which only clop-v2 allows, on a CPU.
    """
    if processes > 1 and (config.counts != "blocks" or agent.ctx.device.type != "cpu"):
        raise UsageError(f"{processes} processes share the episodes of clop-v2 on a CPU alone; use one process")
    backend = choose_backend(backend, trained.game)
    check_games(config, agent.uses_batch_statistics)
    if config.counts == "blocks":
        levels = trained.split(config.split)
        rows = play_blocks(agent, levels, config, backend, progress, processes)
        about = (config.name, trained.game, trained.distribution_mode, config.split, levels.text, backend, config.seed)
        return Evaluation(*about, rows)
    seeds = Seeds.of(config.seed, config.split)
    action_rng = torch.Generator().manual_seed(seeds.actions)

    def act(obs: Tensor) -> Tensor:
        return choose_actions(agent(obs), config.greedy, action_rng)

    def count(episodes: Episodes) -> None:
        if progress is not None and len(episodes.envs):
            progress.step(len(episodes.envs))

    unfinished = 0.0
    with agent.playing(seeds.noise):
        if config.counts == "list":
            chosen = held_out_levels(trained, backend=backend)
            text = f"{len(chosen)} levels from {chosen[0]} on with first frames unlike those of {trained.text}"
            rows = play_list(act, trained, chosen, config.envs, backend, count)
        else:
            levels = trained.split(config.split)
            text = levels.text
            with levels.open(config.envs, seeds.games, backend) as games:
                if config.counts == "first":
                    rows, unfinished = play_first(act, games, config.wanted, count)
                elif config.counts == "last":
                    # Twice the longest episode, so that short ones have come and gone.
                    rows = play_last(act, games, 2 * _time_limit(trained), config.wanted, count)
                else:
                    rows = play_quota(act, games, config.quota, count, agent.uses_batch_statistics)
    about = (config.name, trained.game, trained.distribution_mode, config.split, text, backend, config.seed)
    return Evaluation(*about, rows, unfinished)


def play_blocks(
    agent: Agent, levels: LevelSet, config: EvalConfig, backend: str, progress: Progress | None, processes: int
) -> Episodes:
    """The episodes of clop-v2: this process plays every block, or its share of them beside others.

    On one thread each, since more of them round differently.
    """

    def play(number: int) -> Episodes:
        seeds = Seeds.of(config.seed, config.split, number)
        action_rng = torch.Generator().manual_seed(seeds.actions)

        def act(obs: Tensor) -> Tensor:
            return choose_actions(agent(obs), config.greedy, action_rng)

        def count(episodes: Episodes) -> None:
            if progress is not None and len(episodes.envs):
                progress.step(len(episodes.envs))

        with agent.playing(seeds.noise), levels.open(config.envs, seeds.games, backend) as games:
            rows = play_quota(act, games, config.quota, count, agent.uses_batch_statistics)
        return rows._replace(envs=rows.envs + number * config.envs)

    def play_share(rank: int, size: int) -> dict[int, Episodes]:
        return {number: play(number) for number in range(rank, config.blocks, size)}

    processes = min(processes, config.blocks)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if processes > 1:
            preload_pictures(backend)
        played = together(partial(play_share, rank, processes) for rank in range(processes))
    finally:
        torch.set_num_threads(threads)
    if progress is not None and progress.done < progress.total:
        progress.step(progress.total - progress.done)  # those of other processes
    return Episodes.concat([played[number % processes][number] for number in range(config.blocks)])


def _time_limit(trained: LevelSet) -> int:
    if (limit := trained.spec.time_limit) is None:
        raise UsageError(f"{trained.game} does not say how long its episodes may be; use the protocol clop-v1")
    return limit
