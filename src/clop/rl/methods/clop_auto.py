"""CLOP whose alpha is chosen while learning, by a bandit that looks at levels kept for this alone: ours."""

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from clop.errors import UsageError
from clop.layer import CLOP
from clop.layer_settings import Variant
from clop.rl.encoders.base import Site, Slots
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.vector import VectorGames
from clop.rl.methods.base import Context, Method, Settings, in_mode
from clop.rl.methods.clop import find_slot
from clop.rl.settings import Mode

ALPHAS = (0.0, 0.1, 0.3, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class ClopAuto:
    """CLOP with an alpha that a bandit chooses by the return on held-out training levels (ours)."""

    num_levels: int | None = None
    """The last training levels, which are played to choose alpha and never learnt on; a tenth of them if not given."""
    envs: int = 8
    """Games on the held-out levels. They step as often as those of training, so with 64 of those an eighth more steps
    are played than the run counts."""
    episodes: int = 5
    """Episodes that have to end before an alpha is judged and the next one chosen."""
    window: int = 50
    """How many judgements the bandit remembers."""
    exploration: float = 1.0
    """Weight of the bonus for what is little tried, in standard deviations of the remembered returns."""
    largest: float = 1.0
    """Alphas above this are left out; with 0 none is left but 0, and nothing is held out."""
    slot: str | None = None
    """Where the layer goes, named as for the method clop."""
    variant: Variant = "paper"
    """``paper`` is the paper's rule, ``raster`` that of the authors' code."""
    rollout_mode: Mode = "train"
    """Whether the layer acts while collecting (``train``, as in the authors' code) or only in updates."""

    def __post_init__(self) -> None:
        if min(self.envs, self.episodes) < 1:
            raise UsageError(f"clop_auto.envs and episodes must be at least 1, got {self.envs} and {self.episodes}")
        if self.window < len(ALPHAS):
            raise UsageError(f"clop_auto.window must hold each of {len(ALPHAS)} alphas once, got {self.window}")
        if self.exploration < 0:
            raise UsageError(f"clop_auto.exploration must not be negative, got {self.exploration}")
        if not 0 <= self.largest <= 1:
            raise UsageError(f"clop_auto.largest is a probability and must lie in [0, 1], got {self.largest}")

    @property
    def alphas(self) -> tuple[float, ...]:
        return tuple(alpha for alpha in ALPHAS if alpha <= self.largest)

    def build(self) -> "ClopAutoMethod":
        return ClopAutoMethod(self)


class ClopAutoMethod(Method):
    """Before each rollout the held-out games are played for a while; once enough episodes have ended, their mean return
    is the reward of the alpha that was learnt with since the last choice, and the next is chosen.

    In a run of several processes each plays a share of these games; the returns are added up, so all choose alike.
    """

    incompatible: ClassVar[Mapping[str, str]] = {"clop": "clop_auto chooses the alpha of the layer, clop fixes it"}

    layer: CLOP

    def __init__(
        self, config: ClopAuto, open_games: Callable[[LevelSet, int, int, str], VectorGames] = LevelSet.open
    ) -> None:
        self.config, self.open_games = config, open_games
        self.bandit = Bandit(len(config.alphas), config.window, config.exploration)
        self.arm = self.bandit.choose()
        self.games: VectorGames | None = None
        self.saved: Mapping[str, Any] | None = None  # games of a state that are not playing yet
        self.action_rng = torch.Generator()
        self.pending = torch.zeros(2, dtype=torch.float64)  # sum and number of the returns since the last choice
        self.last_return: float | None = None
        self.extra_steps = 0
        self.played: Counter[int] = Counter()  # iterations with each arm

    def configure(self, settings: Settings) -> Settings:
        settings = settings.act_in(self.config.rollout_mode)
        if self._chooses:
            learnt, self.held_out = hold_out(settings.levels, self.config.num_levels)
            settings = replace(settings, levels=learnt)
        return settings

    def fill(self, slots: Slots, settings: Settings) -> None:
        def layer(site: Site) -> nn.Module:
            alpha = self.config.alphas[self.arm]
            self.layer = CLOP(alpha, variant=self.config.variant, generator=site.generator)
            return self.layer

        slots.put(find_slot(self.config.slot, settings, "clop_auto"), layer)
        self.backend, self.steps = settings.backend, settings.ppo.num_steps

    @property
    def _chooses(self) -> bool:
        return len(self.config.alphas) > 1

    def begin_iteration(self, ctx: Context) -> None:
        if not self._chooses:
            return
        if self.games is None:
            self._open(ctx)
        if ctx.iteration > 0:
            self._play(ctx)
            total, count = self.pending.tolist()
            if count >= self.config.episodes:
                self.last_return = reward = total / count
                self.bandit.learn(self.arm, reward)
                self.arm = self.bandit.choose()
                self.pending.zero_()
        self.played[self.arm] += 1
        self.layer.alpha = self.config.alphas[self.arm]

    def metrics(self) -> dict[str, float]:
        """What was chosen, and what it cost."""
        if not self._chooses:
            return {}
        values = {"alpha": self.layer.alpha, "extra_env_steps": float(self.extra_steps)}
        if self.last_return is not None:
            values["held_out_return"] = self.last_return
        tried = enumerate(self.config.alphas)
        return values | {f"iterations_alpha_{alpha:g}": float(self.played[arm]) for arm, alpha in tried}

    def notes(self) -> dict[str, str | float]:
        if not self._chooses:
            return {}
        return {"held_out": self.held_out.text, "extra_env_steps": self.extra_steps}

    def state(self) -> dict[str, Any]:
        return {
            "bandit": self.bandit.state(),
            "arm": self.arm,
            "pending": self.pending.clone(),
            "last_return": self.last_return,
            "extra_steps": self.extra_steps,
            "played": [self.played[arm] for arm in range(len(self.config.alphas))],
            "action_rng": self.action_rng.get_state(),
            "games": self.saved if self.games is None else self.games.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.bandit.load(state["bandit"])
        self.arm = state["arm"]
        self.layer.alpha = self.config.alphas[self.arm]
        self.pending = state["pending"].clone()
        self.last_return, self.extra_steps = state["last_return"], state["extra_steps"]
        self.played = Counter(dict(enumerate(state["played"])))
        self.action_rng.set_state(state["action_rng"])
        self.saved = state["games"]
        if self.games is not None and self.saved is not None:
            self.games.restore(self.saved)

    def _open(self, ctx: Context) -> None:
        """Start the games, or go on with those of a state. Not before they are needed: an evaluation needs none."""
        seed = 0
        if self.saved is None:
            seed = int(torch.randint(2**31 - 1, (), generator=ctx.generator))
            self.action_rng.manual_seed(seed)
        envs = -(-self.config.envs // ctx.workers.size)
        self.games = self.open_games(self.held_out, envs, seed, self.backend)
        if self.saved is not None:
            self.games.restore(self.saved)
            self.saved = None

    def _play(self, ctx: Context) -> None:
        """As many steps as a rollout, with the network in evaluation mode: CLOP and other noise are off."""
        assert self.games is not None
        returns: list[float] = []
        with torch.no_grad(), in_mode(ctx.model, False):
            for _ in range(self.steps):
                frames = torch.from_numpy(self.games.observe().obs).to(ctx.device)
                actions = ctx.model(frames, value=False).cpu().sample(self.action_rng)
                returns += self.games.step(actions.numpy()).finished.returns.tolist()
        self.extra_steps += self.steps * self.games.num_envs * ctx.workers.size
        self.pending += ctx.workers.sum(torch.tensor([sum(returns), len(returns)], dtype=torch.float64))


def hold_out(levels: LevelSet, count: int | None) -> tuple[LevelSet, LevelSet]:
    """The levels to learn on, and the last ones, to choose alpha on."""
    if levels.num_levels == 0:
        raise UsageError("clop_auto holds out training levels and needs a number of them; with num_levels=0 it has all")
    count = max(1, levels.num_levels // 10) if count is None else count
    if not 1 <= count < levels.num_levels:
        raise UsageError(
            f"clop_auto is to hold out {count} of {levels.num_levels} training levels; it needs at least one, and at "
            "least one must be left to learn on: see num_levels and clop_auto.num_levels"
        )
    kept = levels.num_levels - count
    return (
        replace(levels, num_levels=kept),
        replace(levels, start_level=levels.start_level + kept, num_levels=count),
    )


class Bandit:
    r"""Upper confidence bounds over the last judgements only (sliding-window UCB, Garivier and Moulines, 2011).

    .. math:: \arg\max_k\; \bar r_k + c\, s \sqrt{\ln n / n_k}

    with :math:`n_k` of the :math:`n` remembered judgements on arm k, :math:`\bar r_k` their mean and :math:`s` the
    standard deviation of all n, so that c does not depend on a game's scale of returns. What is not remembered is
    tried at once; of equals, the first is taken.
    """

    def __init__(self, arms: int, window: int, exploration: float) -> None:
        self.arms, self.exploration = arms, exploration
        self.memory: deque[tuple[int, float]] = deque(maxlen=window)

    def learn(self, arm: int, reward: float) -> None:
        self.memory.append((arm, reward))

    def choose(self) -> int:
        rewards: list[list[float]] = [[] for _ in range(self.arms)]
        for arm, reward in self.memory:
            rewards[arm].append(reward)
        if (untried := next((arm for arm, own in enumerate(rewards) if not own), None)) is not None:
            return untried
        spread = float(np.std([reward for _, reward in self.memory]))
        log = math.log(len(self.memory))
        bounds = [np.mean(own) + self.exploration * spread * math.sqrt(log / len(own)) for own in rewards]
        return int(np.argmax(bounds))

    def state(self) -> dict[str, list[Any]]:
        return {"arms": [arm for arm, _ in self.memory], "rewards": [reward for _, reward in self.memory]}

    def load(self, state: Mapping[str, list[Any]]) -> None:
        self.memory.clear()
        self.memory.extend(zip(state["arms"], state["rewards"], strict=True))
