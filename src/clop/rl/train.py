"""TrainConfig, and the learner it describes; writes no file."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from clop.distributed import Workers
from clop.errors import UsageError
from clop.rl import methods
from clop.rl.envs.levels import TrainLevels
from clop.rl.envs.vector import VectorGames
from clop.rl.evaluate import EvalConfig, check_games
from clop.rl.games import check_mode, find_game
from clop.rl.methods import METHODS, MethodConfig
from clop.rl.methods.base import Mode, Plan
from clop.rl.network import NetworkConfig
from clop.rl.ppo import Learner, PPOConfig, check_share
from clop.rl.presets import find_preset
from clop.seeds import check_seed


@dataclass(frozen=True)
class TrainConfig:
    """One training run: everything that decides its numbers."""

    game: str
    preset: str
    mode: str
    """``easy`` or ``hard``."""
    start_level: int
    levels: int
    """Training levels; 0 stands for all."""
    steps: int
    """Env steps in all; the last iteration may go beyond."""
    seed: int
    processes: int
    """That share the games; their number decides who draws what."""
    threads: int
    """Of each process; sums over more threads round differently."""
    backend: str
    network: NetworkConfig
    ppo: PPOConfig
    rollout_mode: Mode
    methods: Mapping[str, MethodConfig] = field(default_factory=dict)
    """Settings by name, in the order in which the methods are composed; none of them is plain PPO."""
    test_every: int = 0
    """Env steps between tests on unseen levels while training; 0 for none. They do not change the training."""
    test_episodes: int = 32
    """Of each such test, by the protocol clop-v1."""
    eval_episodes: int = 1000
    """Of each evaluation at the end, by the same protocol."""

    def __post_init__(self) -> None:
        find_game(self.game)
        check_mode(self.mode)
        check_seed(self.seed)
        for name in ("steps", "test_episodes", "eval_episodes"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.test_every < 0:
            raise UsageError(f"test_every must not be negative, got {self.test_every}; 0 stands for no tests")
        if self.processes < 1 or self.ppo.num_envs % self.processes:
            raise UsageError(f"processes={self.processes} does not divide num_envs={self.ppo.num_envs}")

    @property
    def method(self) -> str:
        """The methods' names joined with ``+``."""
        return "+".join(self.methods) or "ppo"

    @property
    def iterations(self) -> int:
        return -(-self.steps // self.ppo.batch)

    def asdict(self) -> dict[str, Any]:
        """Plain names and numbers, as written to a file."""
        return dataclasses.asdict(self) | {
            "methods": {name: dataclasses.asdict(config) for name, config in self.methods.items()}  # type: ignore[call-overload]
        }

    @classmethod
    def fromdict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The inverse of :meth:`asdict`."""
        values = dict(values)
        values["network"] = NetworkConfig(**values["network"])
        values["ppo"] = PPOConfig(**values["ppo"])
        values["methods"] = {name: METHODS[name](**settings) for name, settings in values["methods"].items()}
        return cls(**values)


def preset_config(game: str, preset: str, **changes: Any) -> TrainConfig:
    """A preset for a game with some settings changed."""
    chosen = find_preset(preset)
    values: dict[str, Any] = {
        "mode": chosen.mode,
        "start_level": 0,
        "levels": chosen.levels,
        "steps": chosen.steps,
        "seed": 0,
        "processes": 1,
        "threads": 1,
        "backend": "auto",
        "network": chosen.network,
        "ppo": chosen.ppo,
        "rollout_mode": chosen.rollout_mode,
        "eval_episodes": chosen.eval_episodes,
    }
    return TrainConfig(game=game, preset=preset, **(values | changes))


def build_learner(config: TrainConfig, device: torch.device | str = "cpu", workers: Workers | None = None) -> Learner:
    """This process's share of the games and a network to play them; the same weights in every process."""
    workers = workers or Workers()

    def games(plan: Plan) -> VectorGames:
        levels = plan.levels
        return VectorGames(
            levels.game,
            workers.share(plan.ppo.num_envs),
            mode=levels.mode,
            start_level=levels.start_level,
            num_levels=levels.num_levels,
            rand_seed=game_seed(config.seed, workers.rank),
            backend=plan.backend,
        )

    method = methods.compose(dict(config.methods))
    return Learner(build_plan(config), method, games, config.steps, config.seed, device, workers)


def build_plan(config: TrainConfig) -> Plan:
    """The plan of a run before its methods have edited it."""
    levels = TrainLevels(config.game, config.mode, config.start_level, config.levels)
    return Plan(levels, config.ppo, config.network, torch.Generator(), config.rollout_mode, config.backend)


def edited_plan(config: TrainConfig) -> Plan:
    """The plan of a run after its methods have edited it, to look at: nothing is built, no random number is used up."""
    plan = build_plan(config)
    with torch.random.fork_rng(devices=[]):
        methods.compose(dict(config.methods)).configure(plan)
    return plan


def check_run(config: TrainConfig) -> None:
    """A :class:`UsageError` for what would end a run after it has begun: methods that contradict each other, levels
    that cannot be tested on, tests that the network is not fit for, a share of the transitions that no minibatches
    divide."""
    plan = edited_plan(config)
    plan.check()
    check_games(EvalConfig(episodes=config.eval_episodes), plan.network.uses_batch_statistics)
    if config.test_every:
        check_games(EvalConfig(episodes=config.test_episodes), plan.network.uses_batch_statistics)
    build_plan(config).levels.level_range("test")
    check_share(plan.ppo, plan.ppo.batch // config.processes)


def game_seed(seed: int, stream: int) -> int:
    """A seed for the games, different for each run and stream of levels, in the range the games take."""
    return (seed * 1_000_003 + stream * 7_919 + 1) % (2**31 - 1)
