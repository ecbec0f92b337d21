"""UCB-DrAC: the bandit by hand, its trap, and who is credited with what."""

import pytest
import torch

from clop.augment import AUGMENTATIONS
from clop.distributed import Workers
from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec
from clop.rl.methods import compose
from clop.rl.methods.augmented import name_of
from clop.rl.methods.base import Settings
from clop.rl.methods.drac import Drac
from clop.rl.methods.ucb_drac import ARMS, Bandit, UcbDrac
from clop.rl.network import slots_of


def play(bandit, reward, rounds):
    """Arms that were played, if each credit follows its choice at once."""
    played = []
    for _ in range(rounds):
        played.append(arm := bandit.choose())
        bandit.credit(arm, reward(arm))
    return played


def counts(played):
    return [played.count(arm) for arm in range(8)]


# ---- the bandit ------------------------------------------------------------------------------------------------------


def test_the_arms_are_those_of_the_authors_in_their_order():
    assert " ".join(ARMS) == "crop random_conv grayscale flip rotate cutout cutout_color color_jitter"
    assert set(ARMS) <= set(AUGMENTATIONS)


def test_the_first_choices_by_hand():
    """n = 1 makes all bounds 0, and the first of equals wins. Then n = 2: arm 0 with a return of -1 has -1 + 0.5
    sqrt(ln 2 / 2) = -0.71, the others 0.5 sqrt(ln 2) = 0.42; with a return of 0.2 it has 0.49 and stays."""
    left, stays = (Bandit(3, "reference", 0.5, 10) for _ in range(2))
    assert left.choose() == stays.choose() == 0
    left.credit(0, -1.0)
    stays.credit(0, 0.2)
    assert left.choose() == 1
    assert stays.choose() == 0


@pytest.mark.parametrize(
    ("init", "bounds"), [("reference", (0.40924, 0.44592, 0.39161)), ("sweep", (0.43184, 0.55157, 0.43395))]
)
def test_a_bound_is_the_mean_and_the_bonus(init, bounds):
    """By hand, after credits 3, 1, 2: 0.2 + 0.3 sqrt(ln 7 / 4) and so on for ``reference``, whose counts are one more;
    0.2 + 0.3 sqrt(ln 6 / 3) and so on for ``sweep``."""
    bandit = Bandit(3, init, 0.3, 10)
    for arm, reward in ((0, 0.1), (0, 0.2), (0, 0.3), (1, 0.15), (2, 0.2), (2, 0.1)):
        bandit.credit(arm, reward)
    assert bandit.bounds() == pytest.approx(bounds, abs=1e-5)
    assert bandit.choose() == 1


def test_only_the_last_returns_are_remembered_and_all_are_counted():
    """With a window of 2, returns of 1, 2 and 6 have the mean 4."""
    bandit = Bandit(2, "reference", 0.0, 2)
    for reward in (1.0, 2.0, 6.0):
        bandit.credit(0, reward)
    bandit.credit(1, 3.9)
    assert bandit.choose() == 0
    bandit.credit(1, 4.2)
    assert bandit.choose() == 1  # 4.05
    assert bandit.credits == [3, 2]


@pytest.mark.parametrize("init", ["reference", "sweep"])
def test_small_equal_returns_are_shared_by_all_arms(init):
    played = counts(play(Bandit(8, init, 0.1, 10), lambda _: 0.1, 400))
    assert max(played) - min(played) <= 1


def test_returns_above_the_bonus_trap_the_reference_at_its_first_arm():
    """Even if another arm is twice as good; the sweep finds it."""
    assert counts(play(Bandit(8, "reference", 0.1, 10), lambda _: 1.0, 1525)) == [1525] + [0] * 7
    better = [2.0 if arm == 5 else 1.0 for arm in range(8)]
    assert set(play(Bandit(8, "reference", 0.1, 10), better.__getitem__, 1525)) == {0}
    found = counts(play(Bandit(8, "sweep", 0.1, 10), better.__getitem__, 1525))
    assert found[5] > 1500
    assert min(found) >= 1


def test_the_sweep_tries_each_arm_once_first():
    assert play(Bandit(8, "sweep", 0.1, 10), lambda arm: -arm, 8) == list(range(8))


# ---- in the learner --------------------------------------------------------------------------------------------------


def observed(learner, iterations):
    """For each iteration: the arm of its update, the mean return of its rollout, and the metrics."""
    rows = []
    for _ in range(iterations):
        metrics, _ = learner.iterate()
        rows.append((learner.method.methods["ucb_drac"].arm, learner.rollout.returns.double().mean().item(), metrics))
    return rows


def test_an_arm_is_credited_with_the_rollout_after_its_use(make_learner):
    """Fails when an arm gets the returns of the rollout it is used on, which no augmentation has touched yet."""
    method = compose({"ucb_drac": UcbDrac(init="sweep")})
    rows = observed(make_learner(method, small=True), 6)
    arms, returns = [arm for arm, *_ in rows], [mean for _, mean, _ in rows]
    assert arms == list(range(6))
    bandit = method.methods["ucb_drac"].bandit
    assert [list(window) for window in bandit.windows[:5]] == [[mean] for mean in returns[1:]]
    assert not bandit.windows[5]
    assert len(set(returns)) == 6  # so that crediting any other rollout would be seen


def test_the_first_iteration_credits_nothing(make_learner):
    method = compose({"ucb_drac": UcbDrac()})
    observed(make_learner(method, small=True), 1)
    assert sum(method.methods["ucb_drac"].bandit.credits) == 0


def test_the_arm_is_the_augmentation_of_the_penalty(make_learner):
    method = compose({"ucb_drac": UcbDrac(init="sweep")})
    learner, seen = make_learner(method, small=True, update_epochs=2), []
    ucb = method.methods["ucb_drac"]
    assert [type(kind) for kind in ucb.augmentations.values()] == [AUGMENTATIONS[name] for name in ARMS]

    class Spy:
        keeps_bytes = True

        def __init__(self, name, kind):
            self.name, self.kind = name, kind

        def draw(self, *args, **settings):
            seen.append(self.name)
            return self.kind.draw(*args, **settings)

        def apply(self, images, drawn):
            return self.kind.apply(images, drawn)

    ucb.augmentations = {name: Spy(name, kind) for name, kind in ucb.augmentations.items()}
    observed(learner, 8)
    assert seen == [name for name in ARMS for _ in range(2)]


@pytest.mark.parametrize(
    ("shape", "left_out"),
    [
        ((64, 64, 3), set()),
        ((64, 64, 1), set()),
        ((48, 64, 3), {"rotate"}),
        ((64, 64, 4), {"grayscale", "color_jitter"}),
        ((48, 64, 4), {"grayscale", "color_jitter", "rotate"}),
    ],
)
def test_arms_that_do_not_fit_the_frames_are_left_out(shape, left_out, monkeypatch):
    """Fails when a sweep meets an arm that ends the run, or the arms of Procgen's frames are others than published."""
    monkeypatch.setattr("clop.rl.envs.procgen.spec", lambda game: EnvSpec(shape, 15))
    ucb, settings = UcbDrac(init="sweep").build(), Settings(LevelSet("maze"))
    ucb.fill(slots_of(settings.network.encoder), settings)
    arms = [name for name in ARMS if name not in left_out]
    assert [name_of(kind) for kind in ucb.augmentations.values()] == arms
    assert list(ucb.metrics()) == [f"arm_{name}" for name in arms]
    assert [ARMS[arm] for arm in play(ucb.bandit, lambda arm: 0.0, 2 * len(arms))] == arms * 2


def test_a_state_from_when_all_arms_were_played_goes_on_with_those_that_fit(monkeypatch):
    """Fails when an agent that was trained on oblong frames, and never left crop, can be loaded no more."""
    monkeypatch.setattr("clop.rl.envs.procgen.spec", lambda game: EnvSpec((48, 64, 3), 15))
    ucb, settings = UcbDrac().build(), Settings(LevelSet("maze"))
    ucb.fill(slots_of(settings.network.encoder), settings)
    ucb.load({"bandit": {"credits": [2] + [0] * 7, "windows": [[-1.0, -1.0]] + [[]] * 7}, "arm": 0})
    assert ucb.bandit.credits == [2] + [0] * 7
    assert ARMS[ucb.bandit.choose()] == "random_conv"


def test_the_histogram_of_arms_is_logged_and_counts_iterations(make_learner):
    method = compose({"ucb_drac": UcbDrac(init="sweep")})
    rows = observed(make_learner(method, small=True, update_epochs=3, micro_batch=5), 10)
    for k, (_, _, metrics) in enumerate(rows, start=1):
        histogram = [metrics[f"arm_{name}"] for name in ARMS]
        assert sum(histogram) == k
        assert histogram == counts([arm for arm, *_ in rows[:k]])
    assert "crop" in method.notes()["ucb_drac.arms"]
    assert method.notes()["ucb_drac.init"] == "sweep"


class TwoProcesses(Workers):
    """This process and one with other returns; gradients stay as they are."""

    def __init__(self, other):
        self.size, self.rank, self.other = 2, 0, other

    def sum(self, tensor):
        return tensor + self.other

    def average_gradients(self, parameters):
        pass

    def average_statistics(self, model):
        pass


def test_returns_are_averaged_over_processes(make_learner):
    """So that all choose alike; crediting one's own returns would let the processes drift apart."""
    method = compose({"ucb_drac": UcbDrac()})
    learner = make_learner(method, small=True)
    ucb, ctx = method.methods["ucb_drac"], learner.context()
    for _ in range(2):
        learner.collect()
        learner.rollout.returns.fill_(0.5)
        ctx.workers = TwoProcesses(0.1)
        ucb.prepare(learner.rollout, ctx)
    assert list(ucb.bandit.windows[0]) == [pytest.approx(0.3)]


def test_the_state_of_the_bandit_goes_on():
    one, other = (Bandit(8, "reference", 0.1, 3) for _ in range(2))
    rewards = torch.rand(60, generator=torch.Generator().manual_seed(0)).mul_(0.2).tolist()
    for reward in rewards[:30]:
        one.credit(one.choose(), reward)
    other.load(one.state())
    for reward in rewards[30:]:
        assert other.choose() == one.choose()
        other.credit(one.choose(), reward)
        one.credit(one.choose(), reward)
    assert other.state() == one.state()


# ---- settings --------------------------------------------------------------------------------------------------------


def test_drac_beside_ucb_drac_is_refused_with_the_reason():
    with pytest.raises(
        UsageError, match="ucb_drac and drac cannot be combined: ucb_drac chooses the augmentation that"
    ):
        compose({"drac": Drac(), "ucb_drac": UcbDrac()})


@pytest.mark.parametrize("settings", [{"alpha_r": -1}, {"exploration": -0.1}, {"window": 0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(UsageError, match=r"must"):
        UcbDrac(**settings)
