"""Ways to evaluate an agent, each with a name and a version.

``clop-v1``
    Fresh games, the network in evaluation mode, sampled actions. Every env contributes the same number of complete
    episodes. Were it the first N episodes to end anywhere, short ones would be counted too often, and in most games an
    early end is a loss. Levels: the range of training, or for unseen ones those of
    :meth:`~clop.rl.envs.levels.LevelSet.split`.
``clop-v2``
    The same in blocks of 128 episodes at most, each with games and randomness of its own, so that processes can share
    the blocks and the episodes are the same to the bit whatever their number.
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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clop.errors import UsageError, unknown_name
from clop.rl.envs.levels import SPLITS, STRICT_LEVELS


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
PROTOCOLS = ("clop-v1", "clop-v2", "strict-v1", *PEERS)
_EPISODES, _ENVS = 1000, 64
_BLOCK, _BLOCK_ENVS = 128, 32  # episodes and games of clop-v2: small enough that eight processes have something to do


@dataclass(frozen=True)
class EvalConfig:
    """One evaluation: what decides its numbers besides the agent."""

    split: Literal["train", "test"] = "test"
    """``train`` for levels seen in training, ``test`` for unseen ones."""
    protocol: str = "clop-v1"
    """``clop-v1``, ``clop-v2``, ``strict-v1``, or one of other code: see :data:`PEERS`."""
    greedy: bool = False
    """Whether to take the most probable action instead of a sampled one."""
    episodes: int | None = None
    """Least number of episodes; each env plays the same number. By default the protocol's: 1000 for ours."""
    num_envs: int | None = None
    """Games that are played at once; by default 64 for our protocols, and 32 in a block of clop-v2."""
    seed: int = 0
    """Decides the levels that are drawn and the actions."""

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UsageError(unknown_name("protocol", self.protocol, PROTOCOLS))
        if self.split not in SPLITS:
            raise UsageError(unknown_name("split", self.split, SPLITS))
        if min(self.wanted, self.num_envs or _ENVS) < 1:
            raise UsageError(f"episodes and num_envs must be at least 1, got {self.episodes} and {self.num_envs}")
        if self.protocol in PEERS and (self.episodes, self.num_envs) != (None, None):
            raise UsageError(f"{self.protocol} has its own number of episodes and envs; leave them to it")
        if self.protocol == "strict-v1":
            if self.split == "train":
                raise UsageError("strict-v1 plays unseen levels; for those of training use the protocol clop-v1")
            if self.wanted != STRICT_LEVELS:
                raise UsageError(f"strict-v1 plays {STRICT_LEVELS} levels once each, got episodes={self.episodes}")

    @property
    def name(self) -> str:
        """The protocol with its switch, to stand beside a score."""
        return f"{self.protocol}-greedy" if self.greedy else self.protocol

    @property
    def wanted(self) -> int:
        """Least number of episodes."""
        if self.episodes is not None:
            return self.episodes
        return PEERS[self.protocol].episodes if self.protocol in PEERS else _EPISODES

    @property
    def envs(self) -> int:
        """Envs that are used; no more than episodes."""
        if self.protocol in PEERS:
            return PEERS[self.protocol].envs
        usual = _BLOCK_ENVS if self.counts == "blocks" else _ENVS
        return min(usual if self.num_envs is None else self.num_envs, -(-self.wanted // self.blocks))

    @property
    def blocks(self) -> int:
        """Parts that are played apart."""
        return -(-self.wanted // _BLOCK) if self.counts == "blocks" else 1

    @property
    def quota(self) -> int:
        """Episodes of each env."""
        return -(-self.wanted // (self.blocks * self.envs))

    @property
    def total(self) -> int:
        """Episodes that are played and counted."""
        return self.blocks * self.envs * self.quota if self.counts in ("quota", "blocks") else self.wanted

    @property
    def counts(self) -> str:
        """Which episodes: ``quota``, ``blocks`` (the quota in each), ``list``, ``first`` or ``last``."""
        if self.protocol in PEERS:
            return PEERS[self.protocol].counts
        return {"clop-v1": "quota", "clop-v2": "blocks", "strict-v1": "list"}[self.protocol]


def check_games(config: EvalConfig, uses_batch_statistics: bool) -> None:
    """A :class:`UsageError` for a network that normalises frames by one another and has only one."""
    if uses_batch_statistics and (config.counts == "list" or config.envs == 1):
        raise UsageError(
            f"batch norm with the statistics of the frames at hand needs many games to the end, which {config.name} "
            f"with {config.envs} does not have; use the protocol clop-v1 with more episodes"
        )
