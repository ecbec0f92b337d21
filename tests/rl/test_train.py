"""From settings to a learner: what a run plays, and what its chance depends on."""

import pytest
import torch

from clop.distributed import Workers
from clop.rl.envs.levels import TrainLevels, single_level
from clop.rl.envs.vector import installed_backends
from clop.rl.evaluate import Seeds
from clop.rl.presets import PRESETS
from clop.rl.train import build_learner, game_seed, preset_config

needs_games = pytest.mark.skipif(not installed_backends(), reason="no Procgen is installed")


class OneOfTwo(Workers):
    """A process that does not wait for the other."""

    def __init__(self, rank):
        self.size, self.rank = 2, rank


def row(preset):
    ppo, network = preset.ppo, preset.network
    scale = (preset.mode, preset.levels, preset.steps, ppo.num_envs, ppo.num_steps, ppo.batch // ppo.minibatches)
    advantages = (ppo.advantage_norm, ppo.advantage_std)
    return *scale, ppo.epochs, ppo.schedule, *advantages, ppo.accumulate, network.topology, network.norm


def test_presets_are_the_published_settings():
    """OpenAI's and the CLOP authors', easy and hard: minibatches of 2048, 8192, 4096 and 16384 transitions."""
    openai = (3, "constant", "minibatch", "population", "mean", "shared", "none")
    authors = (3, "linear", "batch", "unbiased", "sum", "split", "block")
    assert {name: row(preset) for name, preset in PRESETS.items() if name != "quick"} == {
        "procgen-easy": ("easy", 200, 25_000_000, 64, 256, 2048, *openai),
        "procgen-hard": ("hard", 500, 200_000_000, 256, 256, 8192, *openai),
        "authors-easy": ("easy", 200, 25_000_000, 128, 256, 4096, *authors),
        "authors-hard": ("hard", 500, 200_000_000, 512, 256, 16_384, *authors),
    }
    assert {name: preset.rollout_mode for name, preset in PRESETS.items()} == {
        **dict.fromkeys(("procgen-easy", "procgen-hard", "quick"), "eval"),
        **dict.fromkeys(("authors-easy", "authors-hard"), "train"),
    }
    assert {PRESETS[name].ppo.micro_batch for name in ("authors-easy", "authors-hard")} == {2048}  # decides the sum


@needs_games
def test_a_run_plays_the_mode_and_levels_of_its_settings():
    """Fails when a setting is lost on the way, and a hard agent learns in easy games."""
    config = preset_config("leaper", "quick", mode="hard", start_level=7, levels=3)
    with build_learner(config).games as games:
        assert (games.game, games.mode, games.start_level, games.num_levels) == ("leaper", "hard", 7, 3)
    with single_level(TrainLevels("leaper", "hard", 7, 3), 9, "auto") as games:
        assert (games.game, games.mode, games.start_level, games.num_levels) == ("leaper", "hard", 9, 1)


@needs_games
def test_processes_and_seeds_draw_levels_and_numbers_of_their_own(vector):
    """Fails when two processes are given the same levels, which other actions would hide, or when two of a run's
    generators are one."""
    config = {"levels": 0, "game": "fruitbot", "preset": "quick"}
    made = [
        build_learner(preset_config(**config, seed=seed), workers=OneOfTwo(rank))
        for seed, rank in ((0, 0), (0, 1), (1, 0))
    ]
    first, second, other = ({*learner.games.observe().level_seeds.tolist()} for learner in made)
    assert not first & second
    assert not first & other
    generators = [generator for learner in made for generator in (learner.noise, learner.dice, learner.shuffle)]
    assert len({generator.initial_seed() for generator in generators}) == 9
    weights = [vector(learner.model.parameters()) for learner in made]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_seeds_of_training_and_of_evaluations_have_nothing_to_do_with_each_other():
    seeds = [game_seed(0, 0), *Seeds.of(0, "test"), *Seeds.of(0, "train"), *Seeds.of(1, "test")]
    assert len(set(seeds)) == len(seeds)
