"""From a config to a learner; writes no file."""

import torch

from clop.distributed import Workers
from clop.rl import methods
from clop.rl.config import TrainConfig
from clop.rl.encoders import check_map
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.vector import VectorGames
from clop.rl.methods.base import Settings
from clop.rl.network import slots_of
from clop.rl.ppo import Learner
from clop.rl.protocols import EvalConfig, check_games


def build_learner(config: TrainConfig, device: torch.device | str = "cpu", workers: Workers | None = None) -> Learner:
    """This process's share of the games and a network to play them; the same weights in every process."""
    workers = workers or Workers()

    def games(settings: Settings) -> VectorGames:
        envs = workers.share(settings.ppo.num_envs)
        return settings.levels.open(envs, game_seed(config.seed, workers.rank), settings.backend)

    method = methods.compose(dict(config.methods))
    return Learner(config.settings, method, games, config.total_timesteps, config.seed, device, workers)


def edited_settings(config: TrainConfig) -> Settings:
    """The settings of a run after its methods have edited them."""
    return methods.compose(dict(config.methods)).configure(config.settings)


def depends_on_total(config: TrainConfig) -> str | None:
    """The setting that makes a run depend on its total from the first step on; None if a longer run begins alike."""
    return "ppo.schedule" if edited_settings(config).ppo.schedule != "constant" else None


def split_levels(config: TrainConfig, split: str) -> LevelSet:
    """What the agent of a run has seen, to play its ``train`` or ``test`` levels.

    Levels that a method kept for itself are neither: they were not learnt on, and are not new to the agent.
    """
    return edited_settings(config).levels if split == "train" else config.levels


def check_run(config: TrainConfig) -> None:
    """A :class:`UsageError` for what would end a run after it has begun: methods that contradict each other, levels
    that cannot be tested on, frames too small for the encoder, tests that the network is not fit for, a share of the
    transitions that no minibatches divide."""
    method = methods.compose(dict(config.methods))
    settings = method.configure(config.settings)
    check_map(settings.network, settings.spec.input_shape)
    method.fill(slots_of(settings.network.encoder), settings)
    check_games(EvalConfig(episodes=config.eval_episodes), settings.network.uses_batch_statistics)
    if config.test_every:
        check_games(EvalConfig(episodes=config.test_episodes), settings.network.uses_batch_statistics)
    config.levels.split("test")
    settings.ppo.check_share(settings.ppo.batch_size // config.processes)


def game_seed(seed: int, stream: int) -> int:
    """A seed for the games, different for each run and stream of levels, in the range the games take."""
    return (seed * 1_000_003 + stream * 7_919 + 1) % (2**31 - 1)
