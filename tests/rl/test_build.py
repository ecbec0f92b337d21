"""From settings to a learner: what a run plays, what its chance depends on, and what is refused before it begins."""

import pytest
import torch

from clop.distributed import Workers
from clop.errors import UsageError
from clop.rl.build import build_learner, check_run, game_seed
from clop.rl.config import TrainConfig
from clop.rl.envs.backends import PROCGEN, installed_backends
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec
from clop.rl.evaluate import Seeds

needs_games = pytest.mark.skipif(not set(PROCGEN) & set(installed_backends()), reason="no Procgen is installed")


class OneOfTwo(Workers):
    """A process that does not wait for the other."""

    def __init__(self, rank):
        self.size, self.rank = 2, rank


def played(games):
    """Game, mode and levels."""
    return tuple(games.identity[name] for name in ("game", "distribution_mode", "start_level", "num_levels"))


@needs_games
def test_a_run_plays_the_mode_and_levels_of_its_settings():
    """Fails when a setting is lost on the way, and a hard agent learns in easy games."""
    config = TrainConfig.preset("quick", "leaper", distribution_mode="hard", start_level=7, num_levels=3)
    with build_learner(config).games as games:
        assert played(games) == ("leaper", "hard", 7, 3)
        assert games.num_envs == config.ppo.num_envs
    with LevelSet("leaper", "hard", 7, 3).single(9).open(1, seed=0) as games:
        assert played(games) == ("leaper", "hard", 9, 1)


@needs_games
def test_processes_and_seeds_draw_levels_and_numbers_of_their_own(vector):
    """Fails when two processes are given the same levels, which other actions would hide, or when two of a run's
    generators are one."""
    config = TrainConfig.preset("quick", "fruitbot", num_levels=0)
    made = [build_learner(config.changed(seed=seed), workers=OneOfTwo(rank)) for seed, rank in ((0, 0), (0, 1), (1, 0))]
    first, second, other = ({*learner.games.observe().level_seeds.tolist()} for learner in made)
    assert not first & second
    assert not first & other
    generators = [
        generator for learner in made for generator in (learner.method_rng, learner.action_rng, learner.shuffle_rng)
    ]
    assert len({generator.initial_seed() for generator in generators}) == 9
    weights = [vector(learner.model.parameters()) for learner in made]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_seeds_of_training_and_of_evaluations_have_nothing_to_do_with_each_other():
    seeds = [game_seed(0, 0), *Seeds.of(0, "test"), *Seeds.of(0, "train"), *Seeds.of(1, "test")]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize(
    ("method", "changes", "sentence"),
    [
        ("daac+idaac", {}, "idaac and daac cannot be combined"),
        ("ppo", {"distribution_mode": "hard", "num_levels": 600}, "tests maze, hard on levels 500 to 1499"),
        ("ppo", {"ppo.num_steps": 5, "ppo.num_minibatches": 64, "processes": 2}, "transitions of one process"),
        ("batch_norm(statistics=batch)", {"eval_episodes": 1}, "needs many games to the end"),
        ("batch_norm(statistics=batch)", {"test_every": 8, "test_episodes": 1}, "needs many games to the end"),
    ],
)
def test_what_would_end_a_run_later_is_refused_before_it_begins(method, changes, sentence):
    config = TrainConfig.preset("quick", "maze", method, **changes)
    with pytest.raises(UsageError, match=sentence):
        check_run(config)


def test_frames_that_the_encoder_leaves_too_little_of_are_refused_before_a_run_begins(monkeypatch):
    """An 8×8 frame is a 1×1 map to IMPALA, on which nothing can be swapped."""
    config = TrainConfig.preset("procgen-easy", "maze", "clop")
    check_run(config)
    monkeypatch.setattr("clop.rl.envs.procgen.spec", lambda game: EnvSpec((8, 8, 3), 15))
    with pytest.raises(UsageError, match="frames of 8×8 leave a map of 1×1 behind the encoder impala"):
        check_run(config)


@pytest.mark.parametrize("preset", ["procgen-easy", "procgen-hard", "authors-easy", "authors-hard", "quick"])
def test_every_preset_can_be_run(preset):
    check_run(TrainConfig.preset(preset, "maze", "clop"))
