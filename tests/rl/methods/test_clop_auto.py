"""CLOP with an alpha that a bandit chooses by the return on levels kept for this alone."""

import copy
import math

import numpy as np
import pytest
import torch

from clop import CLOP
from clop.distributed import Workers
from clop.errors import UsageError
from clop.rl.build import build_learner, split_levels
from clop.rl.config import TrainConfig
from clop.rl.envs.backends import installed_backends
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import Episodes, Frames, Step
from clop.rl.methods.base import Compose, Settings
from clop.rl.methods.clop import Clop
from clop.rl.methods.clop_auto import ALPHAS, Bandit, ClopAuto, ClopAutoMethod, hold_out
from clop.rl.ppo import build_network

real_games = pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="procgen-mirror is not installed")


# ---- the bandit ----------------------------------------------------------------------------------------------------


def played(bandit, reward, rounds):
    """The arms of so many rounds."""
    arms = []
    for k in range(rounds):
        arms.append(bandit.choose())
        bandit.learn(arms[-1], reward(arms[-1], k))
    return arms


def test_each_arm_is_tried_once_in_order_before_any_is_preferred():
    assert played(Bandit(6, 50, 1.0), lambda arm, k: 100.0 if arm == 0 else 0.0, 6) == [0, 1, 2, 3, 4, 5]


def test_bounds_by_hand():
    """Arm 0 has returned 1, 1 and 1, arm 1 has returned 2: spread sqrt(3) / 4, so 1 + 0.433 sqrt(ln 4 / 3) against
    2 + 0.433 sqrt(ln 4). Were arm 1 at 0.9, it would still be tried again with exploration 1 and not without."""
    for last, exploration, expected in ((2.0, 1.0, 1), (2.0, 0.0, 1), (0.9, 5.0, 1), (0.9, 0.0, 0)):
        bandit = Bandit(2, 50, exploration)
        for arm, reward in ((0, 1.0), (1, last), (0, 1.0), (0, 1.0)):
            bandit.learn(arm, reward)
        assert bandit.choose() == expected
    spread = math.sqrt(3) / 4
    assert np.std([1, 2, 1, 1]) == pytest.approx(spread)


def test_what_left_the_window_is_forgotten_and_tried_again():
    bandit = Bandit(2, 3, 0.0)
    for arm, reward in ((1, 9.0), (0, 1.0), (0, 1.0), (0, 1.0)):
        bandit.learn(arm, reward)
    assert bandit.choose() == 1
    assert bandit.state() == {"arms": [0, 0, 0], "rewards": [1.0, 1.0, 1.0]}


def test_the_best_arm_is_played_most():
    noise = np.random.default_rng(0)
    arms = played(Bandit(6, 50, 1.0), lambda arm, k: 10 + (arm == 3) * 2 + noise.normal(), 300)
    assert np.bincount(arms[50:], minlength=6).argmax() == 3
    assert np.mean(np.array(arms[50:]) == 3) > 0.4


def test_it_follows_a_change_that_a_bandit_without_a_window_misses():
    """Arm 0 returns 1 at first and 0.2 later, arm 1 always 0.6. The control remembers everything."""
    later = {}
    for window in (20, 10_000):
        bandit = Bandit(2, window, 1.0)
        arms = played(bandit, lambda arm, k: 0.6 if arm == 1 else (1.0 if k < 300 else 0.2), 400)
        later[window] = np.mean(np.array(arms[340:]) == 1)
    assert later[20] > 0.7
    assert later[10_000] < 0.3


def test_choices_do_not_depend_on_the_scale_of_returns():
    rewards = np.random.default_rng(1).normal(size=200)
    one = played(Bandit(6, 30, 1.0), lambda arm, k: arm + rewards[k], 200)
    other = played(Bandit(6, 30, 1.0), lambda arm, k: 1000 * (arm + rewards[k]) + 500, 200)
    assert one == other


# ---- held-out levels -----------------------------------------------------------------------------------------------


def test_the_last_levels_are_held_out():
    levels = LevelSet("bigfish", "hard", 100, 50)
    assert hold_out(levels, None) == (LevelSet("bigfish", "hard", 100, 45), LevelSet("bigfish", "hard", 145, 5))
    assert hold_out(levels, 49) == (LevelSet("bigfish", "hard", 100, 1), LevelSet("bigfish", "hard", 101, 49))
    assert hold_out(LevelSet("bigfish"), None)[1].num_levels == 20


@pytest.mark.parametrize(
    ("levels", "count", "message"),
    [
        (0, None, "with num_levels=0 it has all"),
        (1, None, "to hold out 1 of 1 training levels"),
        (50, 50, "to hold out 50 of 50 training levels"),
        (50, 0, "it needs at least one"),
    ],
)
def test_too_few_levels_are_refused(levels, count, message):
    with pytest.raises(UsageError, match=message):
        hold_out(LevelSet("bigfish", num_levels=levels), count)


def test_the_agent_learns_on_the_others():
    method = ClopAuto(num_levels=30).build()
    settings = method.configure(Settings(LevelSet("bigfish")))
    assert settings.levels == LevelSet("bigfish", num_levels=170)
    assert settings.rollout_mode == "train"
    assert method.notes()["held_out"] == "levels 170 to 199"


def test_an_evaluation_on_training_levels_leaves_them_out_and_one_on_unseen_levels_keeps_away_from_them():
    """Neither seen nor unseen. Fails when the return on training levels counts levels that were not learnt on, and
    when the list of strict-v1 differs from that of the other methods."""
    config = TrainConfig.preset("quick", "bigfish", method="clop_auto")
    assert split_levels(config, "train") == LevelSet("bigfish", num_levels=45)
    assert split_levels(config, "test") == LevelSet("bigfish", num_levels=50)
    plain = TrainConfig.preset("quick", "bigfish", method="clop")
    assert split_levels(plain, "train") == split_levels(plain, "test") == LevelSet("bigfish", num_levels=50)


@real_games
def test_training_never_sees_a_held_out_level_and_the_choice_sees_no_other():
    ppo = {"num_envs": 4, "num_steps": 4, "update_epochs": 1, "num_minibatches": 1}
    method = "clop_auto(num_levels=2, envs=3)"
    learner = build_learner(TrainConfig.preset("quick", "leaper", method, num_levels=6, ppo=ppo))
    for _ in range(2):
        learner.iterate()
        assert learner.rollout.level_seeds.max() < 4
    games = learner.method.methods["clop_auto"].games
    assert set(games.observe().level_seeds) <= {4, 5}
    assert games.num_envs == 3


# ---- in the learner ------------------------------------------------------------------------------------------------


class CountingGames:
    """Two held-out games whose episodes last ``length`` steps and return what ``returns`` says at that time."""

    def __init__(self, levels, num_envs, seed, backend):
        self.num_envs = num_envs
        self.clock, self.length, self.worth = 0, 2, 1.0

    def observe(self):
        zeros = np.zeros(self.num_envs, np.int32)
        return Frames(np.full((self.num_envs, 64, 64, 3), self.clock % 256, np.uint8), zeros, zeros)

    def step(self, actions):
        self.clock += 1
        ended = np.arange(self.num_envs if self.clock % self.length == 0 else 0)
        rewards, dones = np.zeros(self.num_envs, np.float32), np.full(self.num_envs, len(ended) > 0)
        returns, zeros = np.full(len(ended), self.worth), np.zeros(len(ended), np.int32)
        return Step(rewards, dones, Episodes(ended, returns, zeros, zeros, zeros > 0))

    def state(self):
        return {"clock": self.clock, "worth": self.worth}

    def restore(self, state):
        self.clock, self.worth = state["clock"], state["worth"]


def auto(make_games=CountingGames, **settings):
    return ClopAutoMethod(ClopAuto(**({"envs": 2, "episodes": 4} | settings)), make_games)


def test_an_alpha_is_judged_by_what_follows_its_updates(make_learner):
    """The arm of iteration k is credited with the return that the network has after it, before the next is chosen."""
    method = auto()
    learner = make_learner(method, num_envs=2, num_steps=4, num_minibatches=1)
    (layer,) = (m for m in learner.model.modules() if isinstance(m, CLOP))
    alphas = []
    for k in range(8):
        if method.games is not None:
            method.games.worth = 10.0 + k
        learner.iterate()
        alphas.append(layer.alpha)
    assert alphas[:6] == list(ALPHAS)
    assert method.bandit.state()["arms"][:6] == [0, 1, 2, 3, 4, 5]
    assert method.bandit.state()["rewards"] == [11.0, 12, 13, 14, 15, 16, 17]
    assert method.extra_steps == 7 * 4 * 2


def test_an_alpha_stays_until_enough_episodes_have_ended(make_learner):
    """Two games with an end every second step: four ends in four steps, so eight take two iterations."""
    method = auto(episodes=8)
    learner = make_learner(method, num_envs=2, num_steps=4)
    alphas, metrics = [], []
    for _ in range(5):
        metrics.append(learner.iterate()[0])
        alphas.append(method.layer.alpha)
    assert alphas == [0.0, 0.0, 0.1, 0.1, 0.3]
    assert [m["alpha"] for m in metrics] == alphas
    assert "held_out_return" not in metrics[1]
    assert metrics[2]["held_out_return"] == 1
    assert [m["extra_env_steps"] for m in metrics] == [0, 8, 16, 24, 32]
    assert metrics[4]["iterations_alpha_0"] == 2
    assert metrics[4]["iterations_alpha_0.3"] == 1


def test_held_out_games_are_played_in_evaluation_mode(make_learner):
    method = auto()
    learner = make_learner(method, num_envs=2, num_steps=4, mode="train")
    learner.iterate()
    modes = []
    handle = learner.model.register_forward_hook(lambda m, *_: modes.append((m.training, torch.is_grad_enabled())))
    noise, training = learner.method_rng.get_state(), learner.model.training
    method.begin_iteration(learner.context())
    handle.remove()
    assert modes == [(False, False)] * 4
    assert learner.model.training is training
    assert torch.equal(learner.method_rng.get_state(), noise)


def test_processes_share_the_games_and_choose_alike(make_learner):
    """Each has half of the returns; both add up the same sum, with four games in all."""

    class Pair(Workers):
        def __init__(self, other):
            self.size, self.rank, self.other = 2, 0, other

        def sum(self, tensor):
            return tensor + torch.tensor([self.other * 4.0, 4.0], dtype=torch.float64)

    learner, chosen = make_learner(num_envs=2, num_steps=4), []
    for own, other in ((3.0, 5.0), (5.0, 3.0)):
        method = auto(envs=4)
        build_network(method.configure(learner.settings), method, 0, torch.Generator())
        for k in range(10):
            ctx = learner.context()
            ctx.iteration, ctx.workers = k, Pair(other * (1 + method.arm))
            method.begin_iteration(ctx)
            method.games.worth = own * (1 + method.arm)
        assert method.games.num_envs == 2
        assert method.extra_steps == 9 * 4 * 4
        chosen.append((method.bandit.state()["arms"], method.bandit.state()["rewards"][1:]))
    assert chosen[0] == chosen[1]


def test_a_resumed_run_goes_on_bit_for_bit(make_learner, noise_games, resumed_as_straight):
    """Judgements, the arm, what has been counted for it, the held-out games and the dice that play them."""

    def games(levels, num_envs, seed, backend):
        return noise_games(num_envs, seed=5)

    straight, _ = resumed_as_straight(lambda: auto(games, episodes=3), before=3, iterations=3, num_minibatches=1)
    method = straight.method.methods["method"]
    assert len(method.bandit.memory) >= 2
    assert method.games.clock == 5 * 4


@real_games
def test_a_resumed_run_goes_on_in_its_real_games(vector):
    ppo = {"num_envs": 2, "num_steps": 4, "update_epochs": 1, "num_minibatches": 1}
    config = TrainConfig.preset("quick", "leaper", "clop_auto(num_levels=2, envs=2, episodes=1)", num_levels=6, ppo=ppo)
    straight = build_learner(config)
    for _ in range(2):
        straight.iterate()
    state = copy.deepcopy(straight.state())
    resumed = build_learner(config.changed(seed=4))
    resumed.load(state)
    for learner in (straight, resumed):
        for _ in range(2):
            learner.iterate()
    assert torch.equal(vector(straight.model.parameters()), vector(resumed.model.parameters()))
    one, other = (learner.method.methods["clop_auto"].state() for learner in (straight, resumed))
    assert torch.equal(one.pop("games")["games"], other.pop("games")["games"])
    for name in ("pending", "action_rng"):
        assert torch.equal(one.pop(name), other.pop(name))
    assert one == other


def test_a_loaded_method_needs_no_games_to_be_evaluated(make_learner):
    """And keeps those of its state for whoever trains on."""
    one = auto()
    learner = make_learner(one, num_envs=2, num_steps=4)
    learner.iterate(), learner.iterate()
    other = auto(make_games=None)
    make_learner(other, num_envs=2, num_steps=4)
    other.load(one.state())
    assert other.games is None
    assert other.state()["games"] == one.state()["games"] == {"clock": 4, "worth": 1.0}
    assert other.layer.alpha == one.layer.alpha == 0.1


# ---- zero and refusals ---------------------------------------------------------------------------------------------


def test_with_alpha_zero_alone_it_is_ppo_bit_for_bit(make_learner, vector):
    """Nothing to choose: no level is held out and no game is played."""
    settings = {"mode": "train", "num_envs": 2, "num_steps": 2, "num_minibatches": 2}
    base, method = make_learner(**settings), make_learner(auto(make_games=None, largest=0.0), **settings)
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    assert torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
    assert torch.equal(base.method_rng.get_state(), method.method_rng.get_state())
    assert method.method.notes() == {}


def test_alphas_above_the_largest_are_left_out():
    assert ClopAuto().alphas == (0.0, 0.1, 0.3, 0.6, 0.8, 1.0)
    assert ClopAuto(largest=0.6).alphas == (0.0, 0.1, 0.3, 0.6)


def test_it_cannot_be_combined_with_a_fixed_alpha():
    with pytest.raises(UsageError, match="clop_auto and clop cannot be combined: clop_auto chooses the alpha"):
        Compose({"clop": Clop().build(), "clop_auto": ClopAuto().build()})


@pytest.mark.parametrize(
    "settings", [{"envs": 0}, {"episodes": 0}, {"window": 5}, {"exploration": -1}, {"largest": 1.5}, {"largest": -0.5}]
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(UsageError, match="must"):
        ClopAuto(**settings)


def test_the_notes_of_methods_carry_their_names():
    method = Compose({"clop_auto": (auto := ClopAuto().build())})
    auto.configure(Settings(LevelSet("bigfish")))
    assert method.notes() == {"clop_auto.held_out": "levels 180 to 199", "clop_auto.extra_env_steps": 0}
