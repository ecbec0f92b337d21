"""How good an agent is on given levels: returns of whole episodes, by protocols that have a name and a version.

``clop-v1``
    Fresh games, the network in evaluation mode, sampled actions. Every env contributes the same number of complete
    episodes. Were it the first N episodes to end anywhere, short ones would be counted too often, and in most games an
    early end is a loss. Levels: the range of training, or for unseen ones all levels in easy mode and 500 to 1499 in
    hard mode, as in the CLOP paper.
``strict-v1``
    The same, but on a fixed list of 1000 unseen levels, each played once, none of which begins with a frame that a
    training level or another of the list begins with. In maze, one in 25 unseen levels begins like one of 200 seen
    ones.

``peer-…-v1``
    As other code does it, for comparison with its numbers and not for ours. ``peer-clop-v1``, the CLOP authors': 256
    envs until 1000 episodes have ended anywhere, rewards of unfinished ones in the sum. ``peer-openai-v1`` (OpenAI,
    mixreg, RAD): the last 100 episodes to end in 64 envs. ``peer-idaac-v1`` (UCB-DrAC, IDAAC): 10 episodes in one env.

With the switch ``greedy``, the most probable action is taken, and the protocol's name ends in ``-greedy``.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clop.errors import UsageError, unknown_name
from clop.progress import Progress
from clop.rl.envs.levels import LEVELS, STRICT_LEVELS, TrainLevels, held_out_levels, range_text
from clop.rl.envs.vector import Episodes, VectorGames, choose_backend
from clop.rl.games import find_game, normalised_return
from clop.rl.methods.base import Context, Method
from clop.rl.network import Network, Output
from clop.rl.play import play_first, play_last, play_list, play_quota
from clop.seeds import check_seed


class Peer(NamedTuple):
    """How the code behind published numbers evaluates."""

    envs: int
    episodes: int
    counts: Literal["first", "last", "quota"]
    """Which episodes: the first to end, the last to end, or the same number in each env."""


PEERS: Mapping[str, Peer] = {
    "peer-clop-v1": Peer(256, 1000, "first"),
    "peer-openai-v1": Peer(64, 100, "last"),
    "peer-idaac-v1": Peer(1, 10, "quota"),
}
PROTOCOLS = ("clop-v1", "strict-v1", *PEERS)
_EPISODES, _ENVS = 1000, 64


@dataclass(frozen=True)
class EvalConfig:
    """One evaluation: what decides its numbers besides the agent."""

    levels: Literal["train", "test"] = "test"
    """``train`` for levels seen in training, ``test`` for unseen ones."""
    protocol: str = "clop-v1"
    """``clop-v1``, ``strict-v1``, or one of other code: see :data:`PEERS`."""
    greedy: bool = False
    """Whether to take the most probable action instead of a sampled one."""
    episodes: int | None = None
    """At least; each env plays the same number. By default what the protocol says: 1000 for ours."""
    num_envs: int | None = None
    """64 for our protocols."""
    seed: int = 0
    """Of the levels that are drawn and of the actions."""

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UsageError(unknown_name("protocol", self.protocol, PROTOCOLS))
        if self.levels not in LEVELS:
            raise UsageError(unknown_name("levels", self.levels, LEVELS))
        if min(self.wanted, self.num_envs or _ENVS) < 1:
            raise UsageError(f"episodes and num_envs must be at least 1, got {self.episodes} and {self.num_envs}")
        if self.protocol in PEERS and (self.episodes, self.num_envs) != (None, None):
            raise UsageError(f"{self.protocol} has its own number of episodes and envs; leave them to it")
        if self.protocol == "strict-v1":
            if self.levels == "train":
                raise UsageError("strict-v1 plays unseen levels; for those of training use the protocol clop-v1")
            if self.wanted != STRICT_LEVELS:
                raise UsageError(f"strict-v1 plays {STRICT_LEVELS} levels once each, got episodes={self.episodes}")

    @property
    def name(self) -> str:
        """The protocol with its switch, to stand beside a score."""
        return f"{self.protocol}-greedy" if self.greedy else self.protocol

    @property
    def wanted(self) -> int:
        """Episodes, at least."""
        if self.episodes is not None:
            return self.episodes
        return PEERS[self.protocol].episodes if self.protocol in PEERS else _EPISODES

    @property
    def envs(self) -> int:
        """Envs that are used; no more than episodes."""
        if self.protocol in PEERS:
            return PEERS[self.protocol].envs
        return min(_ENVS if self.num_envs is None else self.num_envs, self.wanted)

    @property
    def quota(self) -> int:
        """Episodes of each env."""
        return -(-self.wanted // self.envs)

    @property
    def total(self) -> int:
        """Episodes that are played and counted."""
        return self.envs * self.quota if self.counts == "quota" else self.wanted

    @property
    def counts(self) -> str:
        """Which episodes: ``quota``, ``list``, ``first`` or ``last``."""
        if self.protocol in PEERS:
            return PEERS[self.protocol].counts
        return "list" if self.protocol == "strict-v1" else "quota"


@dataclass(frozen=True)
class Agent:
    """A network and the method that knows how to act with it."""

    model: Network
    method: Method
    ctx: Context

    def __call__(self, obs: Tensor) -> Output:
        """Policy and value on uint8 frames (E, 64, 64, 3), on the CPU; to be called inside :meth:`playing`."""
        with torch.no_grad():
            return self.method.act(self.model, obs.to(self.ctx.device), "eval", self.ctx).cpu()

    def notes(self) -> dict[str, str | float]:
        """What a score of it has to be read with."""
        return self.method.notes()

    @property
    def uses_batch_statistics(self) -> bool:
        """Whether what it makes of a frame depends on the frames beside it: batch norm without running statistics."""
        norms = (module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d))
        return any(not norm.track_running_stats for norm in norms)

    @contextmanager
    def playing(self, seed: int) -> Iterator[None]:
        """Evaluation mode, and noise from this seed for methods that draw while they act.

        Afterwards every module has its mode back and training draws on as if nothing had been: its generator too.
        """
        modes = [(module, module.training) for module in self.model.modules()]
        noise = self.ctx.generator.get_state()
        self.model.eval()
        self.ctx.generator.manual_seed(seed)
        try:
            yield
        finally:
            self.ctx.generator.set_state(noise)
            for module, training in modes:
                module.training = training


class Seeds(NamedTuple):
    """One number decides three things that have nothing to do with each other."""

    games: int
    actions: int
    noise: int

    @classmethod
    def of(cls, seed: int, levels: str) -> "Seeds":
        check_seed(seed)
        words = np.random.SeedSequence([seed, LEVELS.index(levels)]).generate_state(3)
        return cls(*(int(word) >> 1 for word in words))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came out: the episodes, and what one says about them."""

    protocol: str
    """Name of the protocol with its switch."""
    game: str
    mode: str
    levels: str
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
    def normalised_mean(self) -> float:
        return float(normalised_return(self.mean, self.game, self.mode))

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
            "mode": self.mode,
            "levels": self.levels,
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
    trained: TrainLevels,
    config: EvalConfig = EvalConfig(),  # noqa: B008 - frozen
    *,
    backend: str = "auto",
    progress: Progress | None = None,
) -> Evaluation:
    """Play by the protocol of the config.

    Args:
        agent: Who plays.
        trained: The game, and the levels that the agent was trained on.
        config: Protocol, levels, number of episodes, seed.
        backend: See :class:`~clop.rl.envs.vector.VectorGames`; it decides which levels are drawn.
        progress: Is told of each counted episode; there will be ``config.total``.
    """
    backend = choose_backend(backend)
    check_games(config, agent.uses_batch_statistics)
    seeds = Seeds.of(config.seed, config.levels)
    dice = torch.Generator().manual_seed(seeds.actions)

    def act(obs: Tensor) -> Tensor:
        return choose_actions(agent(obs), config.greedy, dice)

    def count(episodes: Episodes) -> None:
        if progress is not None and len(episodes.envs):
            progress.step(len(episodes.envs))

    unfinished = 0.0
    with agent.playing(seeds.noise):
        if config.counts == "list":
            chosen = held_out_levels(trained, backend=backend)
            seen = range_text(trained.start_level, trained.num_levels)
            text = f"{len(chosen)} levels from {chosen[0]} on with first frames unlike those of {seen}"
            rows = play_list(act, trained, chosen, config.envs, backend, count)
        else:
            start, number = trained.level_range(config.levels)
            text = range_text(start, number)
            with VectorGames(
                trained.game,
                config.envs,
                mode=trained.mode,
                start_level=start,
                num_levels=number,
                rand_seed=seeds.games,
                backend=backend,
            ) as games:
                if config.counts == "first":
                    rows, unfinished = play_first(act, games, config.wanted, count)
                elif config.counts == "last":
                    # Twice the longest episode, so that short ones have come and gone.
                    rows = play_last(act, games, 2 * find_game(trained.game).time_limit, config.wanted, count)
                else:
                    rows = play_quota(act, games, config.quota, count, agent.uses_batch_statistics)
    about = (config.name, trained.game, trained.mode, config.levels, text, backend, config.seed)
    return Evaluation(*about, rows, unfinished)


def check_games(config: EvalConfig, uses_batch_statistics: bool) -> None:
    """A :class:`UsageError` for a network that normalises frames by one another and has only one."""
    if uses_batch_statistics and (config.counts == "list" or config.envs == 1):
        raise UsageError(
            f"batch norm with the statistics of the frames at hand needs many games to the end, which {config.name} "
            f"with {config.envs} does not have; use the protocol clop-v1 with more episodes"
        )


def choose_actions(output: Output, greedy: bool, dice: torch.Generator) -> Tensor:
    """(E,) The most probable actions, or sampled ones."""
    return output.known_logits.argmax(-1) if greedy else output.sample(dice)
